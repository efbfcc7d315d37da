package org.apache.spark.sql.execution.streaming.state.binshift

import java.nio.file.{Files, Path}

import org.apache.spark.SparkEnv
import org.apache.spark.util.Utils

/**
 * Injects faults at named points of shipping and conversion. By default it does nothing. Tests name a class of their own in the
 * Spark configuration.
 *
 * Points: `export.begin`, `export.link`, `export.start`, `export.chunk`, `export.scan`, `fetch.chunk` (and with `.` and the name
 * of a store, or the partition that sends), `push` (with `.` and that partition), `stage.file`, `stage.done`, `changelog.read`, `changelog.change`, `switch.ingest`, `switch.changes`, `switch.flush`, `switch.scan`, `switch.sweep`, `sweep`, `switch.done`, `store.committed`,
 * `rows.request`, `rows.ask`, `rows.poll`, `rows.answer`, `rows.push`, `rows.add`, `rows.overlay`, `checkpoint.read`, `checkpoint.changes`, `families.read`, `checkpoint.file`, `standby.file`,
 * `standby.changelog`, `standby.snapshot`, `standby.take`, `standby.turn`, `takeover.family`, `snapshot.check`, `snapshot.upload`, `versions.deleted`,
 * `convert.clean`, `convert.store`, `convert.partition`, `convert.finish` (and with `.` and the number of partitions), `retired.delete`, `retired.file`, `sources.look`, `run.begin`,
 * `run.clean`, `run.begun`, `audit.note`, `audit.read`; values of rows: `export.row`, `recovery.row`.
 */
private[sql] trait Faults {
  /** May throw, block or end the JVM. */
  def at(point: String, partition: Int): Unit

  /** May damage the bytes of a chunk. */
  def change(point: String, bytes: Array[Byte]): Array[Byte]
}

private[sql] object Faults {
  val ClassKey = "spark.binshift.internal.faults"

  /** Stands for the partition at points that don't know it. */
  val AnyPartition = -1

  private lazy val injected: Option[Faults] =
    Option(SparkEnv.get).flatMap(_.conf.getOption(ClassKey)).map { name =>
      Utils.classForName[Faults](name).getDeclaredConstructor().newInstance()
    }

  def at(point: String, partition: Int = AnyPartition): Unit = injected.foreach(_.at(point, partition))

  /** Some callers do so for each row. */
  def change(point: String, bytes: Array[Byte]): Array[Byte] =
    if (injected.isEmpty) bytes else injected.get.change(point, bytes)

  /** May damage a file that was fetched. */
  def change(point: String, file: Path): Unit = injected.foreach { faults =>
    val bytes = Files.readAllBytes(file)
    val changed = faults.change(point, bytes)
    if (changed ne bytes) Files.write(file, changed)
  }
}
