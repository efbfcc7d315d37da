package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.{File, FileNotFoundException}
import java.nio.file.{Files, Path}

import scala.util.Try

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path => HadoopPath}

import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, Savepoints, SnapshotList}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinnedFileManager, FilesHere, WarmFileManager}
import org.apache.spark.sql.execution.streaming.state.{RocksDBFileManager, RocksDBFileMapping, RocksDBImmutableFile, StateStoreConf}

/** Failing loads and uploads of a store's files, without a database. */
final class TestFileManagers(directory: String) {
  private val root = Files.createDirectories(Path.of(directory))
  private val checkpoint = s"file:$root/checkpoint"
  private val hadoopConf = new Configuration
  private val savepoints = new Savepoints(ControlDir.of(new HadoopPath(checkpoint), hadoopConf))
  private val Version = 3L
  private val Sst = "000012.sst"

  /**
   * Has a snapshot that is not there be loaded, with a file that is here; returns whether the file counts as one of the
   * checkpoint before and after.
   *
   * @param isLater whether the file is taken away by another load
   */
  def mappedAfterFailure(isLater: Boolean): Array[Boolean] = {
    val manager = new WarmFileManager(checkpoint, scratch(), hadoopConf, "lz4", "test", StateStoreConf.empty, false, None)
    val mapping = new RocksDBFileMapping
    val local = scratch()
    var before = false
    def isMapped = mapping.getDfsFileForLoad(manager, Sst, Version + 1).isDefined
    val here: FilesHere = () =>
      Some(new FilesHere.Loading {
        override def link(into: File, mapping: RocksDBFileMapping, version: Long): Seq[File] = {
          val file = Files.writeString(into.toPath.resolve(Sst), "rows")
          mapping.mapToDfsFile(Sst, RocksDBImmutableFile(Sst, "000012-unique.sst", 4), version - 1)
          before = isMapped
          Seq(file.toFile)
        }
        override def changelog(version: Long, id: Option[String]): Option[File] = None
        override def close(isOk: Boolean): Unit = ()
      })
    manager.use(here, isDisowned = (_, _) => false, savepoints)
    def load(): Unit = manager.loadCheckpointFromDfs(Version, local, mapping, None)
    if (isLater) manager.loading(Try(load()))
    val failure = Try(manager.loading(load())).failed.toOption.exists(_.isInstanceOf[FileNotFoundException])
    Array(before, failure, new File(local, Sst).exists, isMapped)
  }

  /** The content of the snapshot that remains when a run learns, after uploading its own, that it has ended. */
  def leftAfterLateUpload(isReplaced: Boolean): String = {
    val manager = new BinnedFileManager(checkpoint, scratch(), hadoopConf, "lz4", "test", StateStoreConf.empty, false, None)
    var asked = 0
    manager.use(() => None,
      isDisowned = { (_, _) =>
        asked += 1
        if (asked == 2 && isReplaced) {
          save(new RocksDBFileManager(checkpoint, scratch(), hadoopConf, "lz4", "next", StateStoreConf.empty, false, None),
            "next run")
        }
        asked == 2
      },
      savepoints)
    val refused = Try(save(manager, "first run")).failed.toOption.exists(_.isInstanceOf[BinshiftException])
    if (refused) left() else "the first run was not told"
  }

  private def save(manager: RocksDBFileManager, content: String): Unit = {
    val dir = scratch()
    Files.writeString(dir.toPath.resolve(Sst), content)
    Files.writeString(dir.toPath.resolve("CURRENT"), "MANIFEST")
    val (_, files) = new RocksDBFileMapping().createSnapshotFileMapping(manager, dir, Version)
    manager.saveCheckpointToDfs(dir, Version, 1, 0, files, None, None, None, false)
  }

  private def left(): String = {
    val zip = new HadoopPath(checkpoint, s"$Version.zip")
    val fs: FileSystem = zip.getFileSystem(hadoopConf)
    if (!fs.exists(zip)) "none"
    else {
      val Seq(file) = SnapshotList.read(fs, zip, scratch()).sstFiles
      Files.readString(root.resolve("checkpoint/SSTs").resolve(file.dfsSstFileName))
    }
  }

  private def scratch(): File = Files.createTempDirectory(root, "local").toFile
}
