package org.apache.spark.sql.execution.streaming.state.binshift.keys

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.rocksdb.{ColumnFamilyHandle, ReadOptions, RocksDB => NativeRocksDB, Slice, Snapshot}

import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.StateStoreColumnFamilySchemaUtils
import org.apache.spark.sql.execution.streaming.state.{ByteArrayPair, ColumnFamilyInfo, RocksDB, RocksDBStateStoreProvider, StateStore}
import org.apache.spark.util.NextIterator

/**
 * A column family of a store. Families are numbered in the order in which an operator happened to create them, so a family may have
 * another number in each partition. That's why rows are moved by the name of their family.
 *
 * @param isInternal whether Spark counts its rows separately from the user's
 */
private[binshift] final case class ColumnFamily(name: String, isInternal: Boolean) {
  /** True if operators read it in the order of its keys, so that the bin comes behind the key. */
  def isReadInOrder: Boolean = ColumnFamily.isReadInOrder(name)
}

private[binshift] object ColumnFamily {
  /** The only family of a store that was made without column families. */
  val Default: ColumnFamily = ColumnFamily(StateStore.DEFAULT_COL_FAMILY_NAME, isInternal = false)

  /**
   * True if operators read a family in the order of its keys across partitioning keys, and stop early:
   * timers by time, TTL indexes, and the time index of a join.
   */
  def isReadInOrder(family: String): Boolean =
    family.startsWith(TtlPrefix) ||
      family.startsWith("$") && family.endsWith("_timestampToKey") ||
      family == "left-tsWithKey" || family == "right-tsWithKey"

  /** The state variable of a TTL index. */
  def timedOutBy(family: String): Option[String] = Option.when(family.startsWith(TtlPrefix))(family.substring(TtlPrefix.length))

  private val TtlPrefix = StateStoreColumnFamilySchemaUtils.getTtlColFamilyName("")

  /** Calls `consume` for each row, and closes the iterator. */
  def each(rows: NextIterator[ByteArrayPair])(consume: ByteArrayPair => Unit): Unit =
    try rows.foreach(consume)
    finally rows.closeIfNeeded()

  /** Groups bins into ranges (first, last) that contain no other bins except empty ones, so that neighbours need only one scan. */
  def ranges(bins: Seq[Int], isEmpty: Int => Boolean = _ => false): Seq[(Int, Int)] =
    bins.sorted.foldLeft(List.empty[(Int, Int)]) {
      case ((first, last) :: done, bin) if (last + 1 until bin).forall(isEmpty) => (first, bin) :: done
      case (done, bin) => (bin, bin) :: done
    }.reverse

  /** The families of a loaded database. */
  def of(db: RocksDB, useColumnFamilies: Boolean): Seq[ColumnFamily] = numbered(db, useColumnFamilies).map(_.family)

  /** The families of a loaded database with their numbers. */
  def numbered(db: RocksDB, useColumnFamilies: Boolean): Seq[NumberedFamily] =
    if (!useColumnFamilies) Seq(NumberedFamily(Default, None))
    else families(db).toSeq.sortBy(_._1).map { case (name, info) =>
      NumberedFamily(ColumnFamily(name, info.isInternal), Some(info.cfId))
    }

  /** True if Spark counts the rows of a family of a loaded database separately; asked once per family. */
  def isInternal(db: RocksDB, useColumnFamilies: Boolean, name: String): Boolean =
    useColumnFamilies && families(db)(name).isInternal

  /** Relies on Spark: `RocksDB` keeps its families in a private map. Read by reflection, a few times per switch. */
  private def families(db: RocksDB): collection.Map[String, ColumnFamilyInfo] =
    field.get(db).asInstanceOf[ConcurrentHashMap[String, ColumnFamilyInfo]].asScala

  private lazy val field = {
    val field = classOf[RocksDB].getDeclaredField("colFamilyNameToInfoMap")
    field.setAccessible(true)
    field
  }
}

/**
 * A family and how its keys begin in one store's native database.
 *
 * @param number `None` in a store without families
 */
private[binshift] final case class NumberedFamily(family: ColumnFamily, number: Option[Short]) {
  /** The bytes that the keys of all its rows begin with. */
  val prefix: Array[Byte] = number.fold(Array.emptyByteArray)(
    RocksDBStateStoreProvider.encodeStateRowWithPrefix(Array.emptyByteArray, _))

  def nativeKey(key: Array[Byte]): Array[Byte] = prefix ++ key

  /** A native key without its family's number. */
  def keyIn(native: Array[Byte]): Array[Byte] = java.util.Arrays.copyOfRange(native, prefix.length, native.length)

  /** The bin of a native key. */
  def binOf(native: Array[Byte]): Int = BinKeyCodec.of(family.name).binOf(keyIn(native))

  /**
   * Ranges of native keys, from (inclusive) and to (exclusive), that hold all rows of `bins`.
   *
   * @param isEmpty bins that have no rows here, which ranges may include
   */
  def ranges(bins: Seq[Int], isEmpty: Int => Boolean = _ => false): Seq[(Array[Byte], Array[Byte])] = {
    val codec = BinKeyCodec.of(family.name)
    if (codec.isBehind) Seq((prefix, NumberedFamily.successor(prefix)))
    else ColumnFamily.ranges(bins, isEmpty).map { case (first, last) =>
      (prefix ++ BinKeyCodec.lowerBound(first).get,
        BinKeyCodec.lowerBound(last + 1).map(prefix ++ _).getOrElse(NumberedFamily.successor(prefix)))
    }
  }

  /**
   * Calls `consume(native key, value)` for each row of `bins`, in the order of keys.
   *
   * @param snapshot which rows there are; if it is not given, those that are there now
   * @param passing  called with the bytes of each key that is passed, also of others
   */
  def foreachRow(
      db: NativeRocksDB, handle: ColumnFamilyHandle, bins: Seq[Int], snapshot: Option[Snapshot] = None,
      passing: Long => Unit = _ => ())(
      consume: (Array[Byte], Array[Byte]) => Unit): Unit = {
    val codec = BinKeyCodec.of(family.name)
    val wanted = bins.toSet
    ranges(bins).foreach { case (from, to) =>
      val upper = new Slice(to)
      // Each row is read once, so none of them needs a place in the cache.
      val options = new ReadOptions().setIterateUpperBound(upper).setFillCache(false)
      snapshot.foreach(options.setSnapshot(_))
      val rows = db.newIterator(handle, options)
      try {
        rows.seek(from)
        while (rows.isValid) {
          val key = rows.key
          passing(key.length)
          if (!codec.isBehind || wanted(codec.binOf(key))) consume(key, rows.value)
          rows.next()
        }
        rows.status()
      } finally {
        rows.close()
        options.close()
        upper.close()
      }
    }
  }
}

private[binshift] object NumberedFamily {
  /** The number of the family to which a native key belongs, in a store with families. */
  def numberIn(native: Array[Byte]): Short = RocksDBStateStoreProvider.getColumnFamilyBytesAsId(native)

  /** The one of all families of a store to which a native key belongs. */
  def of(native: Array[Byte], families: Seq[NumberedFamily]): NumberedFamily =
    families.find(family => KeyRows.begins(native, family.prefix)).getOrElse(
      throw new IllegalStateException(s"a key has the number of none of the families ${families.mkString(", ")}"))

  /** The smallest key that is greater than all keys that begin with `prefix`. */
  def successor(prefix: Array[Byte]): Array[Byte] =
    prefix.lastIndexWhere(_ != -1) match {
      case -1 => Array.fill(64)(0xff.toByte)
      case last => prefix.take(last) :+ (prefix(last) + 1).toByte
    }
}
