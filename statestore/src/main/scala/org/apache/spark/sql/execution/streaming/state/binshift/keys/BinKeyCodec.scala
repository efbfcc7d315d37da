package org.apache.spark.sql.execution.streaming.state.binshift.keys

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * The bytes of a key in a binned store.
 *
 * {{{
 *   +----------+----------------------------+        +----------------------------+----------+
 *   | bin      | key as Spark encodes it    |   or   | key as Spark encodes it    | bin      |
 *   | 2 bytes  | any length                 |        | any length                 | 2 bytes  |
 *   +----------+----------------------------+        +----------------------------+----------+
 * }}}
 *
 * The bin is an unsigned big-endian number. In front of the key, it keeps the keys of a bin together, in the order of bins. If
 * operators read a family in the order of its keys, across bins, the bin comes behind the key. It doesn't change that order there,
 * because no key that Spark encodes is a prefix of another key of its family.
 *
 * @param isBehind whether the family has the bin behind the key
 */
private[sql] final class BinKeyCodec private (val isBehind: Boolean) {
  import BinKeyCodec._

  def encode(bin: Int, key: Array[Byte]): Array[Byte] = {
    val out = new Array[Byte](BinBytes + key.length)
    putBin(bin, out, if (isBehind) key.length else 0)
    System.arraycopy(key, 0, out, if (isBehind) 0 else BinBytes, key.length)
    out
  }

  /** The key as Spark encoded it. */
  def stripBin(binned: Array[Byte]): Array[Byte] =
    if (binned.length < BinBytes) throw withoutBin(binned)
    else if (isBehind) java.util.Arrays.copyOf(binned, binned.length - BinBytes)
    else java.util.Arrays.copyOfRange(binned, BinBytes, binned.length)

  def binOf(binned: Array[Byte]): Int = {
    if (binned.length < BinBytes) throw withoutBin(binned)
    val at = if (isBehind) binned.length - BinBytes else 0
    ((binned(at) & 0xff) << 8) | (binned(at + 1) & 0xff)
  }
}

private[sql] object BinKeyCodec {
  /** Number of distinct bins that two bytes can tell apart. */
  val MaxBins: Int = 1 << 16

  private val BinBytes = 2

  private def withoutBin(key: Array[Byte]): BinshiftException = BinshiftException("SOURCE_DAMAGED").migration(
    s"a stored key has ${key.length} bytes and no bin; check the checkpoint with `binshift fsck`")

  private val InFront = new BinKeyCodec(isBehind = false)
  private val Behind = new BinKeyCodec(isBehind = true)

  /** The form of a family's keys. It depends on the family's name only, so that all partitions agree on it. */
  def of(family: String): BinKeyCodec = if (ColumnFamily.isReadInOrder(family)) Behind else InFront

  /** The smallest possible key that begins with `bin`; `None` for the bin after the last one that can be encoded. */
  def lowerBound(bin: Int): Option[Array[Byte]] = Option.when(bin < MaxBins) {
    val out = new Array[Byte](BinBytes)
    putBin(bin, out, 0)
    out
  }

  private def putBin(bin: Int, out: Array[Byte], at: Int): Unit = {
    out(at) = (bin >>> 8).toByte
    out(at + 1) = bin.toByte
  }
}
