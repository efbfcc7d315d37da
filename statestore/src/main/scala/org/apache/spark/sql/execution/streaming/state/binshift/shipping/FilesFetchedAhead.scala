package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import org.apache.spark.sql.execution.streaming.state.RocksDBFileMapping
import org.apache.spark.sql.execution.streaming.state.binshift.storage.FilesHere
import org.apache.spark.sql.execution.streaming.state.binshift.Trace
import org.apache.hadoop.fs.Path

/**
 * The files that this executor has fetched ahead for a store that comes to it: those of a partition that moves, and those of a
 * standby.
 */
private[binshift] final class FilesFetchedAhead(root: String) extends FilesHere {

  override def begin(): Option[FilesHere.Loading] = {
    val warm = WarmStore.of(root)
    val standby = StandbyStores.of(root).flatMap(_.begin())
    Option.when(warm.isDefined || standby.isDefined)(new FilesHere.Loading {

      override def link(into: File, mapping: RocksDBFileMapping, version: Long): Seq[File] =
        traced("standby", version)(standby.fold(Seq.empty[File])(_.link(into, mapping, version))) ++
          traced("fetched ahead", version)(warm.fold(Seq.empty[File])(_.link(into, mapping, version)))

      override def changelog(version: Long, id: Option[String]): Option[File] = standby.flatMap(_.changelog(version, id))

      override def close(isOk: Boolean): Unit = {
        warm.foreach(_.close())
        standby.foreach(_.close(isOk))
      }
    })
  }

  private def traced(way: String, version: Long)(linked: Seq[File]): Seq[File] = {
    if (Trace.isOn && linked.nonEmpty)
      Trace("files here", new Path(root), "way" -> way, "version" -> version, "files" -> linked.size)
    linked
  }
}
