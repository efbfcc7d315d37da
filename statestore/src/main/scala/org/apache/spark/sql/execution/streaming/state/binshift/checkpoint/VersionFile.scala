package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.{File, FileNotFoundException}

import scala.util.matching.Regex

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, RocksDBFileManager, StateStoreId}

/**
 * A file of a version of a store, as described by its name.
 *
 * Relies on Spark: a snapshot is `<version>.zip`, a changelog `<version>.changelog`, with `_<id>` behind the version under
 * checkpoint format 2; the checksum of either has its name and `.crc`.
 *
 * @param id the id of the attempt that made it, under checkpoint format 2
 */
private[sql] final case class VersionFile(version: Long, id: Option[String], kind: VersionFile.Kind, isChecksum: Boolean) {
  def isSnapshot: Boolean = kind == VersionFile.Snapshot && !isChecksum

  def name: String = VersionFile.name(version, id, kind) + (if (isChecksum) VersionFile.Checksum else "")
}

private[sql] object VersionFile {
  sealed abstract class Kind(val ending: String)
  case object Snapshot extends Kind("zip")
  case object Changelog extends Kind("changelog")

  private val Checksum = ".crc"
  private val Form: Regex = raw"(\d+)(?:_([^.]+))?\.(zip|changelog)(\.crc)?".r

  def parse(name: String): Option[VersionFile] = name match {
    case Form(version, id, ending, crc) => version.toLongOption.map(
        VersionFile(_, Option(id), if (ending == Snapshot.ending) Snapshot else Changelog, crc != null))
    case _ => None
  }

  def name(version: Long, id: Option[String], kind: Kind): String =
    s"$version${id.fold("")("_" + _)}.${kind.ending}"

  /** The files of versions in a store's directory; none if there is no such directory. */
  def list(store: StateStoreId, hadoopConf: Configuration): Seq[VersionFile] = in(store.storeCheckpointLocation(), hadoopConf)

  /** The same for a store's directory. */
  def in(dir: Path, hadoopConf: Configuration): Seq[VersionFile] =
    try dir.getFileSystem(hadoopConf).listStatus(dir).toSeq.flatMap(f => parse(f.getPath.getName))
    catch { case _: FileNotFoundException => Nil }

  /** Opens the files of another store, to read its changelogs. The caller closes it. */
  def opened(store: StateStoreId, conf: RocksDBConf, hadoopConf: Configuration): RocksDBFileManager =
    new RocksDBFileManager(store.storeCheckpointLocation().toString, Unused, hadoopConf, conf.compressionCodec,
      s"binshift-changes-$store", conf.stateStoreConf, conf.fileChecksumEnabled,
      fileChecksumThreadPoolSize = Some(ReaderThreads.Size))

  /** Relies on Spark: local files are used only for snapshots. */
  private val Unused = new File("unused")
}
