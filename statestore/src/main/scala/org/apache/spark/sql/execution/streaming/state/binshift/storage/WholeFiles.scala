package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File
import java.nio.file.Files

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.rocksdb.{Checkpoint, Options, RocksDB => NativeRocksDB}

import org.apache.spark.sql.execution.streaming.state.{RocksDBCheckpointMetadata, RocksDBConf}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowsByBin

/**
 * All files of a store as of a version, with which another store may begin. They are never modified.
 *
 * @param dir      the directory of a native database
 * @param families the families, with the numbers that the keys have
 * @param rows     the number of rows of those bins that the other store is to have
 */
private[binshift] class WholeFiles(dir: File, val families: Seq[NumberedFamily], val rows: RowsByBin) {

  def bytes: Long = dir.listFiles.toSeq.map(_.length).sum

  /** Fills an empty directory with a separate database. Files of rows are immutable, and hard-linked if the disk allows it. */
  def into(target: File): Unit = Using.resource(Files.list(dir.toPath)) { files =>
    files.iterator.asScala.foreach { file =>
      val to = target.toPath.resolve(file.getFileName)
      if (file.toString.endsWith(".sst")) HardLinks.linkOrCopy(file, to) else Files.copy(file, to)
    }
  }

  /** The metadata that a snapshot of these files would have, without files in a checkpoint. */
  def metadata: RocksDBCheckpointMetadata = {
    val numbers = families.flatMap(f => f.number.map(f.family -> _))
    def ifAny[K, V](of: Map[K, V]) = Option.when(of.nonEmpty)(of)
    val total = rows.total
    RocksDBCheckpointMetadata(Nil, Nil, total.rows, total.internal,
      ifAny(numbers.map { case (family, number) => family.name -> number }.toMap),
      ifAny(numbers.map { case (family, _) => family.name -> family.isInternal }.toMap),
      numbers.map(_._2).maxOption)
  }
}

private[binshift] object WholeFiles {
  /** Runs `body` with the database in `dir`, opened for reading. */
  def reading[T](dir: File, conf: RocksDBConf)(body: NativeRocksDB => T): T = {
    val merging = RocksDBFields.mergeOperator(conf)
    val options = new Options().setMergeOperator(merging)
    try Using.resource(NativeRocksDB.openReadOnly(options, dir.getPath))(body)
    finally {
      options.close()
      merging.close()
    }
  }

  /** Makes hard links to the files of an open database, after RocksDB has written out its memory. */
  def link(native: NativeRocksDB, dir: File): Unit = Using.resource(Checkpoint.create(native))(_.createCheckpoint(dir.getPath))
}
