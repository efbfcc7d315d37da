package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import org.rocksdb.{Options, RocksDB => NativeRocksDB}

import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreConf}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, Extent, KeyRows, NumberedFamily}
import org.apache.spark.sql.internal.SQLConf

/** Answers of a linked version, on a database that is made for the test. */
object TestLinkedRows {
  private val Families =
    Seq("one", "several", "numbered").zipWithIndex.map { case (name, i) =>
      NumberedFamily(ColumnFamily(name, isInternal = false), Some((i + 1).toShort))
    }

  /**
   * The pieces of an answer, as "key=rows", or "key=-" if they are not given.
   *
   * @param stored     rows, as "key=bytes of its value" with blanks between; one with a slash is one of several of its key,
   *                   and one with a number behind a # one of a series
   * @param asked      keys; one that ends with a slash or a # has several rows
   * @param areChecked whether rows have checksums
   * @param shift      by how much families are numbered higher where the rows go
   */
  def pieces(directory: String, stored: String, asked: String, areChecked: Boolean, shift: Int): String = {
    val dir = new File(directory)
    val options = new Options().setCreateIfMissing(true)
    val native = NativeRocksDB.open(options, dir.getPath)
    words(stored).map(_.split('=')).foreach { case Array(key, size) =>
      native.put(Families(Seq('/', '#').indexWhere(key.contains(_)) + 1).nativeKey(bytes(key)), new Array[Byte](size.toInt))
    }
    native.close()
    options.close()
    val keys = words(asked).map { key =>
      if (key.endsWith("/")) KeyRows("several", key.getBytes, Extent.Beginning)
      else if (key.endsWith("#")) KeyRows("numbered", bytes(key + "0"), NumberAt)
      else KeyRows("one", key.getBytes, Extent.One)
    }.toIndexedSeq
    val numbers = Families.map(f => f.family.name -> f.number.map(n => (n + shift).toShort)).toMap
    val conf = new SQLConf()
    conf.setConfString("spark.sql.streaming.stateStore.rowChecksum.enabled", areChecked.toString)
    val linked = new LinkedRows(dir, Families, RocksDBConf(new StateStoreConf(conf)))
    try {
      Iterator.unfold(0) { done =>
        Option.when(done < keys.size) {
          val found = linked.first(keys.drop(done), numbers)
          val told = keys.slice(done, done + found.size).zip(found).map { case (key, rows) =>
            s"${text(key)}=${rows.fold("-")(
                _.map { case (rest, value) => s"${text(key, rest)}:${value.length}" }.mkString(","))}"
          }
          (told.mkString(" "), done + found.size)
        }
      }.mkString("|")
    } finally linked.close()
  }

  /** Keys of a series have their number in front of the rest. */
  private val NumberAt = Extent.Numbered(1)

  private def bytes(key: String): Array[Byte] = key.split('#') match {
    case Array(rest, number) => "#".getBytes ++ Extent.Numbered.bytesOf(number.toLong) ++ rest.getBytes
    case _ => key.getBytes
  }

  private def text(key: KeyRows): String =
    if (key.extent == NumberAt) new String(key.key.drop(1 + Extent.Numbered.Width)) + "#" else new String(key.key)

  private def text(key: KeyRows, rest: Array[Byte]): String =
    if (key.extent == NumberAt) NumberAt.numberOf(NumberAt.rowKey(key.key, rest)).toString else new String(rest)

  private def words(text: String): Seq[String] = text.split(' ').toSeq.filter(_.nonEmpty)
}
