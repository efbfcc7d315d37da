package org.apache.spark.sql.execution.streaming.state.binshift.keys

import org.rocksdb.{ColumnFamilyHandle, ReadOptions, RocksDB => NativeRocksDB, Slice}

import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.StateStoreColumnFamilySchemaUtils
import org.apache.spark.sql.execution.streaming.state.{ByteArrayPair, ColumnFamilyInfo, RocksDB, RocksDBStateStoreProvider, StateStore}
import org.apache.spark.util.NextIterator

/**
 * A column family of a store. Its number differs from partition to partition, in the order in which
 * operators happened to create the families; what is moved is moved by name.
 *
 * @param isInternal whether Spark counts its rows apart from the user's
 */
private[binshift] final case class ColumnFamily(name: String, isInternal: Boolean)

private[binshift] object ColumnFamily {
  /** The only family of a store that was made without. */
  val Default: ColumnFamily = ColumnFamily(StateStore.DEFAULT_COL_FAMILY_NAME, isInternal = false)

  /**
   * Whether operators read a family in the order of its keys across partitioning keys, and stop early:
   * timers by time, TTL indexes, and the time index of a join.
   */
  def isReadInOrder(family: String): Boolean =
    StateStoreColumnFamilySchemaUtils.isTtlColFamilyName(family) ||
      family.startsWith("$") && family.endsWith("_timestampToKey") ||
      family == "left-tsWithKey" || family == "right-tsWithKey"

  /**
   * Calls `consume` for each row of `bins` in a family, whose keys the database gives as stored. A
   * bin is a range of keys, or else, in a family that is read in order, all rows are looked through.
   */
  def foreachRow(db: RocksDB, family: String, bins: Seq[Int])(consume: ByteArrayPair => Unit): Unit = {
    val codec = BinKeyCodec.of(family)
    if (codec.isBehind) {
      val wanted = bins.toSet
      each(db.rangeScan(None, None, family)) { row => if (wanted(codec.binOf(row.key))) consume(row) }
    } else {
      ranges(bins).foreach { case (first, last) =>
        each(db.rangeScan(BinKeyCodec.lowerBound(first), BinKeyCodec.lowerBound(last + 1), family))(consume)
      }
    }
  }

  /** Calls `consume` for each row, and closes the iterator. */
  def each(rows: NextIterator[ByteArrayPair])(consume: ByteArrayPair => Unit): Unit =
    try rows.foreach(consume)
    finally rows.closeIfNeeded()

  /** Runs of bins with nothing but empty ones between them, as (first, last), so that neighbours cost one scan. */
  def ranges(bins: Seq[Int], isEmpty: Int => Boolean = _ => false): Seq[(Int, Int)] =
    bins.sorted.foldLeft(List.empty[(Int, Int)]) {
      case ((first, last) :: done, bin) if (last + 1 until bin).forall(isEmpty) => (first, bin) :: done
      case (done, bin) => (bin, bin) :: done
    }.reverse

  /** The families of a loaded database. */
  def of(db: RocksDB, useColumnFamilies: Boolean): Seq[ColumnFamily] = numbered(db, useColumnFamilies).map(_.family)

  /**
   * The families of a loaded database with their numbers.
   *
   * Relies on Spark: `RocksDB` keeps both in a private map. Read by reflection, a few times per switch.
   */
  def numbered(db: RocksDB, useColumnFamilies: Boolean): Seq[NumberedFamily] =
    if (!useColumnFamilies) Seq(NumberedFamily(Default, None))
    else db.allColumnFamilyNames.toSeq.sorted.map { name =>
      val info = infoOf(db, name)
      NumberedFamily(ColumnFamily(name, info.isInternal), Some(info.cfId))
    }

  /** Whether Spark counts the rows of a family of a loaded database apart; asked once per family. */
  def isInternal(db: RocksDB, useColumnFamilies: Boolean, name: String): Boolean =
    useColumnFamilies && infoOf(db, name).isInternal

  private def infoOf(db: RocksDB, name: String): ColumnFamilyInfo =
    infoMethod.invoke(db, name).asInstanceOf[ColumnFamilyInfo]

  private lazy val infoMethod = {
    val method = classOf[RocksDB].getDeclaredMethod("getColumnFamilyInfo", classOf[String])
    method.setAccessible(true)
    method
  }
}

/**
 * A family and how its keys begin in one store's native database.
 *
 * @param number `None` in a store without families
 */
private[binshift] final case class NumberedFamily(family: ColumnFamily, number: Option[Short]) {
  /** What the keys of all rows begin with. */
  val prefix: Array[Byte] = number.fold(Array.emptyByteArray)(
    RocksDBStateStoreProvider.encodeStateRowWithPrefix(Array.emptyByteArray, _))

  def nativeKey(key: Array[Byte]): Array[Byte] = prefix ++ key

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

  /** Calls `consume(native key, value)` for each row of `bins`, in the order of keys. */
  def foreachRow(db: NativeRocksDB, handle: ColumnFamilyHandle, bins: Seq[Int])(
      consume: (Array[Byte], Array[Byte]) => Unit): Unit = {
    val codec = BinKeyCodec.of(family.name)
    val wanted = bins.toSet
    ranges(bins).foreach { case (from, to) =>
      val upper = new Slice(to)
      val options = new ReadOptions().setIterateUpperBound(upper)
      val rows = db.newIterator(handle, options)
      try {
        rows.seek(from)
        while (rows.isValid) {
          val key = rows.key
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
  /** The number of the family that a native key is of, in a store with families. */
  def numberIn(native: Array[Byte]): Short = RocksDBStateStoreProvider.getColumnFamilyBytesAsId(native)

  /** The smallest key that is greater than all keys that begin with `prefix`. */
  private def successor(prefix: Array[Byte]): Array[Byte] =
    RocksDB.prefixUpperBound(prefix).getOrElse(Array.fill(64)(0xff.toByte))
}
