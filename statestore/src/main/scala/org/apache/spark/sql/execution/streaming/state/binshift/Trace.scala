package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.{File, FileOutputStream, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.UUID

import org.apache.hadoop.fs.Path

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Writes down what happens to routing and state, so that a run can be checked against the model of the protocol afterwards (see
 * docs/model.md). Each process appends to a file of its own in the directory that the setting names, one line of JSON for each
 * event. Each line is written as a whole at once, so that a process that is killed loses none but the last.
 *
 * An event that announces something, such as `deletes`, is written before it is done, and one that reports something, such as
 * `committed`, afterwards and before anybody else can hear of it. So whatever another process builds on has been written down.
 *
 * Without the setting nothing is done: callers ask `isOn` before they make the values of an event. Thread-safe.
 */
private[sql] object Trace extends Logging {
  /** The directory; read once in a process, as the setting is one of the application. */
  lazy val folder: Option[String] = Option(SparkEnv.get).flatMap(_.conf.getOption(BinshiftConf.Trace))

  private lazy val file: Option[TraceFile] = folder.map(TraceFile.open(_, SparkEnv.get.executorId))

  lazy val isOn: Boolean = file.isDefined

  /** An event of a store. */
  def apply(event: String, store: StateStoreId, values: (String, Any)*): Unit =
    write(event, store.storeCheckpointLocation(), values)

  /** @param dir of a store or of a checkpoint */
  def apply(event: String, dir: Path, values: (String, Any)*): Unit = write(event, dir, values)

  /** Bins as ranges, such as `0-3,7`. */
  def ranges(bins: Iterable[Int]): String = {
    val sorted = bins.toIndexedSeq.sorted
    val starts = sorted.indices.filter(i => i == 0 || sorted(i - 1) < sorted(i) - 1)
    starts.zip(starts.drop(1) :+ sorted.size).map { case (from, to) =>
      if (to - from == 1) sorted(from).toString else s"${sorted(from)}-${sorted(to - 1)}"
    }.mkString(",")
  }

  private def write(event: String, dir: Path, values: Seq[(String, Any)]): Unit = file.foreach { out =>
    val task = Option(TaskContext.get()).map("task" -> _.taskAttemptId())
    try out.append(Seq("event" -> event, "dir" -> dir.toUri.getPath) ++ task ++ values)
    catch { case e: IOException => logWarning(s"the trace lacks an event '$event' of $dir", e) }
  }
}

/** The lines of one process, in their order. */
private final class TraceFile(out: FileOutputStream, process: String) {
  private var count = 0L

  def append(values: Seq[(String, Any)]): Unit = synchronized {
    val all = Seq("t" -> System.currentTimeMillis(), "n" -> count, "process" -> process) ++ values
    count += 1
    out.write((TraceFile.json(all.toMap, all.map(_._1)) + "\n").getBytes(UTF_8))
  }
}

private object TraceFile {
  def open(dir: String, executor: String): TraceFile = {
    val folder = new File(dir)
    folder.mkdirs()
    // Executors of two applications may have the same number, and pids come again.
    val process = s"$executor-${ProcessHandle.current.pid}-${UUID.randomUUID().toString.take(8)}"
    val file = new File(folder, s"$process.jsonl")
    try new TraceFile(new FileOutputStream(file, true), process)
    catch {
      case e: IOException => throw BinshiftException("INVALID_VALUE", "name" -> BinshiftConf.Trace, "value" -> dir).configuration(
          s"${BinshiftConf.Trace} is '$dir', and $file cannot be written (${e.getMessage}); it must be a directory that the driver " +
            "and all executors can write to", e)
    }
  }

  private def json(of: Map[String, Any], order: Seq[String]): String =
    order.filter(of(_) != None).map(name => s"${text(name)}:${json(of(name))}").mkString("{", ",", "}")

  private def json(value: Any): String = value match {
    case Some(v) => json(v)
    case None | null => "null"
    case n @ (_: Int | _: Long | _: Boolean) => n.toString
    case many: Map[_, _] => many.map { case (k, v) => s"${text(k.toString)}:${json(v)}" }.mkString("{", ",", "}")
    case many: Iterable[_] => many.map(json).mkString("[", ",", "]")
    case many: Array[_] => many.map(json(_)).mkString("[", ",", "]")
    case other => text(other.toString)
  }

  private def text(value: String): String = value.flatMap {
    case '"' => "\\\""
    case '\\' => "\\\\"
    case c if c < ' ' => f"\\u${c.toInt}%04x"
    case c => c.toString
  }.mkString("\"", "", "\"")
}
