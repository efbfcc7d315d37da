package org.apache.spark.sql.execution.streaming.state.binshift

/** Configuration keys. Spark passes all that start with `Prefix` on to state-store providers. */
private[sql] object BinshiftConf {
  val Prefix = "spark.sql.streaming.stateStore.binshift."

  /** Number of bins of a new checkpoint; an existing checkpoint keeps its own. */
  val Bins: String = Prefix + "bins"
  val DefaultBins = 1024

  /** Routing-log entries that are kept, beyond those that recovery needs, for the history. */
  val RoutingEntriesToRetain: String = Prefix + "routing.minEntriesToRetain"

  /** A step waits for its copies for so many epochs without progress. Then its bins are sent at the switch. */
  val MaxEpochsToWait: String = Prefix + "ship.maxEpochsToWait"

  /** How many of the bins that a step moves are compared with what their old owner had committed: a number, `all` or `off`. */
  val Audit: String = Prefix + "audit"

  /** Makes partitions leave executors that Spark decommissions, without a call by the user. */
  val EvacuationEnabled: String = Prefix + "decommission.drain"

  /** On how many other executors the files of each partition are kept, in case its own executor dies. */
  val Standbys: String = Prefix + "standbys"

  /** How often a standby looks at the checkpoint. */
  val StandbysInterval: String = Prefix + "standbys.interval"

  /** Most bytes of standbys on an executor. */
  val StandbysMaxBytes: String = Prefix + "standbys.maxBytes"

  /** Makes the driver look for requests of other processes in the checkpoint, and may demand that they are signed. */
  val RequestsEnabled: String = Prefix + "requests.enabled"

  /** A file on the driver's machine that contains the secret for signing requests. */
  val RequestsSecretFile: String = Prefix + "requests.secretFile"

  /** Lets queries of a session run on binshift even if they are in real-time mode. */
  val RealTime: String = Prefix + "realTime"

  /** The directory in which each process of the application writes down what it does (see [[Trace]]). */
  val Trace: String = Prefix + "trace"

  /** How often the driver looks for requests while there are none. */
  val RequestsInterval: String = Prefix + "requests.interval"

  /** All settings for users. A query doesn't start if there is any other setting below `Prefix` (see KnownSettings). */
  val All: Set[String] = Set(
    Bins, RoutingEntriesToRetain, MaxEpochsToWait, EvacuationEnabled, Standbys, StandbysInterval, StandbysMaxBytes,
    RequestsEnabled,
    RequestsSecretFile, RealTime, RequestsInterval, Trace, Audit) ++ Seq("ship.chunkBytes", "ship.maxBytesPerSecond",
    "ship.maxBytesInFlight",
    "ship.maxStagedBytes", "ship.minBytesToSplit", "ship.timeout", "compaction.bytesPerSecond").map(Prefix + _)

  /** Prefix of what binshift itself sets in the sessions of queries. A user's function may start another query from such a session. */
  val Internal: String = Prefix + "internal."

  /**
   * The routing rule sets this in the session of the running query, to the query's run id. A store that finds its own run id here
   * belongs to a routed query. Any other store only reads, as in the `statestore` data source or a session without the extension.
   */
  val RoutedRun: String = Internal + "routedRun"

  /**
   * Set with [[RoutedRun]]: the layout of the checkpoint. Stores need it when Spark creates them, and can't read it from the
   * checkpoint at that moment, because Spark holds a lock that the tasks of all queries need.
   */
  val RoutedLayout: String = Prefix + "internal.routedLayout"

  /**
   * Set in the session of a query in real-time mode, in which each task has a core all the time, and an epoch is logged when it
   * ends.
   */
  val RealTimeRun: String = Internal + "realTimeRun"

  /** Local property of a batch's jobs: which routing-log entries are in force (see EpochRouting). */
  val RoutingHint = "binshift.routing"

  /** Local property of a batch's jobs: whether the next epoch has another table (see KeyCheck). */
  val StepHint = "binshift.step"

  /** Local property of a batch's jobs: the order in force, if there is one (see ShippingHint). */
  val ShippingHint = "binshift.shipping"

  /** Local property of a batch's jobs: where its stores send their statistics (see ReportAddress). */
  val StatisticsHint = "binshift.statistics"
}
