package org.apache.spark.sql.execution.streaming.state.binshift

/** Configuration keys. Spark passes all that start with `Prefix` on to state-store providers. */
private[sql] object BinshiftConf {
  val Prefix = "spark.sql.streaming.stateStore.binshift."

  /** Number of bins of a new checkpoint; an existing checkpoint keeps its own. */
  val Bins: String = Prefix + "bins"
  val DefaultBins = 1024

  /** Routing-log entries that are kept, beyond those that recovery needs, for the history. */
  val RoutingEntriesToRetain: String = Prefix + "routing.minEntriesToRetain"

  /** Epochs in which nothing of its copies comes that a step waits before its bins are sent at the switch. */
  val MaxEpochsToWait: String = Prefix + "ship.maxEpochsToWait"

  /** How many of the bins that a step moves are compared with what their old owner had committed: a number, `all` or `off`. */
  val Audit: String = Prefix + "audit"

  /** Whether partitions leave executors that Spark decommissions, without a user's call. */
  val EvacuationEnabled: String = Prefix + "decommission.drain"

  /** On how many other executors the files of each partition are kept, for when its own dies. */
  val Standbys: String = Prefix + "standbys"

  /** Time between two looks of a standby at the checkpoint. */
  val StandbysInterval: String = Prefix + "standbys.interval"

  /** Most bytes of standbys on an executor. */
  val StandbysMaxBytes: String = Prefix + "standbys.maxBytes"

  /** Whether the driver looks for requests of other processes in the checkpoint, and whether they have to be signed. */
  val RequestsEnabled: String = Prefix + "requests.enabled"

  /** File of the driver's machine with the secret that signed requests are signed with. */
  val RequestsSecretFile: String = Prefix + "requests.secretFile"

  /** Whether queries of a session run on binshift in real-time mode, too. */
  val RealTime: String = Prefix + "realTime"

  /** Time between two looks, while nobody asks. */
  val RequestsInterval: String = Prefix + "requests.interval"

  /** All settings that a user can make. A query that finds another one below `Prefix` does not start (see KnownSettings). */
  val All: Set[String] = Set(
    Bins, RoutingEntriesToRetain, MaxEpochsToWait, EvacuationEnabled, Standbys, StandbysInterval, StandbysMaxBytes,
    RequestsEnabled,
    RequestsSecretFile, RealTime, RequestsInterval, Audit) ++ Seq("ship.chunkBytes", "ship.maxBytesPerSecond",
    "ship.maxBytesInFlight",
    "ship.maxStagedBytes", "ship.minBytesToSplit", "ship.timeout", "compaction.bytesPerSecond").map(Prefix + _)

  /** What binshift itself sets in the sessions of queries, from which a user's function may start another query. */
  val Internal: String = Prefix + "internal."

  /**
   * Set by the routing rule in the session of the running query, to the query's run id. A store that
   * finds its own run id here belongs to a routed query; any other store only reads (the `statestore`
   * data source, a session without the extension).
   */
  val RoutedRun: String = Internal + "routedRun"

  /**
   * Set with [[RoutedRun]]: the layout of the checkpoint. Spark makes stores under a lock that the tasks of all queries need, so
   * that nothing may be read there.
   */
  val RoutedLayout: String = Prefix + "internal.routedLayout"

  /**
   * Set in the session of a query in real-time mode: each of its tasks has a core all the time, and an epoch is logged when
   * it ends.
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
