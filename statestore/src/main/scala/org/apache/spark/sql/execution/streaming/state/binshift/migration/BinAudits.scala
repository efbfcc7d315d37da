package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.io.{BufferedInputStream, DataInputStream, File, FileInputStream}
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.concurrent.duration.DurationInt
import scala.util.Using
import scala.util.control.NonFatal

import org.apache.spark.SparkEnv
import org.apache.spark.rpc.{RpcEndpointRef, RpcTimeout}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, LogLine, OrWarn}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.CheckpointedBins
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{AuditSample, EpochRouting}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping._
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinKeyedRocksDB, RocksDBArguments, RocksDBFields}
import org.apache.spark.util.{RpcUtils, Utils}

/**
 * The audits of a store: compares some of the bins that came with a step with the rows that their old owner had committed,
 * according to the checkpoint.
 *
 * It takes a snapshot of the database at the load at which the last of these bins is here. Usually that is the load of the step,
 * before its epoch writes anything. If bins come on demand, it happens some epochs later, and the old owner's rows are compared
 * after the changes that this store has logged since. A background thread notes the rows, which is quick, and releases the
 * snapshot. Another one then reads the checkpoint and reports to the driver.
 *
 * An audit reads files that retention keeps for other reasons, and doesn't keep any itself. If a file is gone, or the store is
 * closed, the audit is dropped, and the driver is told why.
 *
 * Used by the store's task.
 */
private[binshift] final class BinAudits(
    db: BinKeyedRocksDB, store: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments, conf: BackgroundConf)
  extends OrWarn {
  import AuditOutcome._
  import BinAudits._

  /** Bins to be audited once they are all here. */
  private var due = Option.empty[Due]
  private val open = ConcurrentHashMap.newKeySet[AuditedRows]()

  /** Called when `arriving` have come with the step at `epoch`, or begin to come on demand. */
  def switched(epoch: Long, arriving: Map[Int, Seq[Int]]): Unit = if (conf.auditedBins > 0) {
    val tables = routing.at(epoch)
    val sample = tables.before.fold(Set.empty[Int])(AuditSample.of(_, tables.now, epoch, conf.auditedBins))
    val drawn = arriving.view.mapValues(_.filter(sample).sorted).filter(_._2.nonEmpty).toMap
    due.foreach(drop(_, "another step came before its last bin was there"))
    due = Option.when(drawn.nonEmpty)(Due(epoch, drawn))
  }

  /** Called when all bins are here as of `version`, before anything is written to it. */
  def whole(version: Long): Unit = due.foreach { d =>
    due = None
    try {
      val rows = new AuditedRows(db, RocksDBFields.native(db), ColumnFamily.numbered(db, arguments.useColumnFamilies))
      open.add(rows)
      ShippingThreads.notes.execute(() => note(d, version, rows))
    } catch {
      // An audit that can't begin is no reason to fail the epoch.
      case NonFatal(e) => dropFor(d, e)
    }
  }

  /** Called before the database is closed. */
  def release(): Unit = open.forEach { rows =>
    rows.close()
    open.remove(rows)
  }

  /** Called when everything was loaded from the checkpoint. */
  def forget(): Unit = {
    due.foreach(drop(_, "its store was loaded from the checkpoint before the last bin was there"))
    due = None
  }

  private def note(d: Due, version: Long, rows: AuditedRows): Unit = {
    val dir = new File(arguments.localRootDir.getParentFile, s"binshift-audit-${UUID.randomUUID()}")
    def file(source: Int) = new File(dir, source.toString)
    try {
      Faults.at("audit.note", store.partitionId)
      Utils.createDirectory(dir)
      d.bins.foreach { case (source, bins) => rows.note(bins, file(source))(new Pause(conf)(_, _)) }
      // Closed before the driver is told, because that may take a while.
      rows.close()
      tell(d, Begun)
      ShippingThreads.audits.execute(() => audit(d, version, dir, file))
    } catch {
      case NonFatal(e) =>
        Utils.deleteRecursively(dir)
        dropFor(d, e)
    } finally {
      rows.close()
      open.remove(rows)
    }
  }

  private def audit(d: Due, version: Long, dir: File, file: Int => File): Unit =
    try {
      val found = d.bins.toSeq.sortBy(_._1).iterator.flatMap { case (source, bins) =>
        compare(d.epoch, version, source, bins, file(source))
      }
      found.nextOption() match {
        case None => tell(d, Equal)
        case Some(row) =>
          logError(
            s"bin ${row.bin} of $store, which came at epoch ${d.epoch}, is not what its old owner had committed; the first " +
              s"key that differs is ${row.text}")
          tell(d, Differs(row.bin, row.text))
      }
    } catch {
      case NonFatal(e) => dropFor(d, e)
    } finally Utils.deleteRecursively(dir)

  private def compare(epoch: Long, version: Long, source: Int, bins: Seq[Int], noted: File): Option[NotedRow] =
    Using.resource(new DataInputStream(new BufferedInputStream(new FileInputStream(noted)))) { in =>
      val comparison = new RowComparison(NotedRow.read(in))
      val pause = new Pause(conf)
      def next(family: NumberedFamily, key: Array[Byte], value: Array[Byte]): Unit = {
        pause(key.length + value.length, () => true)
        comparison.next(NotedRow.of(db, family, key, value))
      }
      def from(partition: Int) = new CheckpointedBins(store.copy(partitionId = partition), routing, arguments, "audit.read")
      if (version > epoch) from(store.partitionId).foreachRowSince(epoch, version, bins)(next)
      else from(source).foreachStoredRow(epoch, Seq(0 -> bins))(())((_, family, key, value) => next(family, key, value))
      comparison.difference
    }

  private def dropFor(d: Due, e: Throwable): Unit = {
    logWarning(s"bins ${d.all.mkString(", ")} of $store could not be audited", e)
    drop(d,
      e match {
        case dropped: AuditDropped => dropped.getMessage
        case other =>
          s"what the old owner had committed cannot be read: ${String.valueOf(other.getMessage).linesIterator.take(1).mkString}"
      })
  }

  private def drop(d: Due, reason: String): Unit = ShippingThreads.audits.execute(() => tell(d, Dropped(reason)))

  private def tell(d: Due, outcome: AuditOutcome): Unit =
    orWarn(s"the driver could not be told the result of an audit of $store") {
      logInfo(LogLine("audit", "epoch" -> d.epoch, "operator" -> store.operatorId, "partition" -> store.partitionId,
          "store" -> store.storeName, "bins" -> d.all.size, "outcome" -> outcome))
      val report =
        AuditReport(routing.run, d.epoch, store.operatorId, store.storeName, SparkEnv.get.executorId, d.all, outcome)
      driver.askSync[Array[Byte]](report.toBytes, Timeout): Unit
    }
}

private object BinAudits {
  private val Timeout = new RpcTimeout(10.seconds, "the driver's answer about an audit")

  /** Relies on Spark: an endpoint of the driver is found by its name, and each message is answered or fails. */
  private def driver: RpcEndpointRef = {
    val env = SparkEnv.get
    RpcUtils.makeDriverRef(AuditReport.EndpointName, env.conf, env.rpcEnv)
  }

  /** @param bins by the partition that they come from */
  final case class Due(epoch: Long, bins: Map[Int, Seq[Int]]) {
    def all: Seq[Int] = bins.values.flatten.toSeq.sorted
  }

  /** Pauses between reads to keep to the pace of copies, for as long as the rows are wanted. */
  final class Pause(conf: BackgroundConf) {
    private var bytes = 0L

    def apply(more: Long, isWanted: () => Boolean): Unit = {
      bytes += more
      if (bytes >= BytesAtOnce) {
        ShippingThreads.charge(bytes, conf.maxBytesPerSecond, conf.areAllCoresBusy)
        val deadline = System.nanoTime() + Meter.costNs(bytes, CopyPace.LeastRate)
        def mustWait = !ShippingThreads.maySend() || !conf.areAllCoresBusy && !ExecutorLoad.hasFreeCore
        while (isWanted() && mustWait && System.nanoTime() < deadline) Thread.sleep(PollMs)
        bytes = 0
      }
    }
  }

  private val BytesAtOnce = 64L << 10
  private val PollMs = 2L
}
