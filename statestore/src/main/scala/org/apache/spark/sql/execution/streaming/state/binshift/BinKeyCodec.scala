package org.apache.spark.sql.execution.streaming.state.binshift

/**
 * The bytes of a key in a binned store.
 *
 * {{{
 *   +----------+----------------------------+
 *   | bin      | key as Spark encodes it    |
 *   | 2 bytes  | any length                 |
 *   +----------+----------------------------+
 * }}}
 *
 * The bin is an unsigned big-endian number, so that RocksDB keeps a bin's keys together and bins in
 * ascending order.
 */
private[sql] object BinKeyCodec {
  val PrefixBytes = 2

  /** Number of distinct bins that the prefix can tell apart. */
  val MaxBins: Int = 1 << 16

  def encode(bin: Int, key: Array[Byte]): Array[Byte] = {
    val out = new Array[Byte](PrefixBytes + key.length)
    putBin(bin, out)
    System.arraycopy(key, 0, out, PrefixBytes, key.length)
    out
  }

  def binOf(binned: Array[Byte]): Int = ((binned(0) & 0xff) << 8) | (binned(1) & 0xff)

  /** The key as Spark encoded it. */
  def stripBin(binned: Array[Byte]): Array[Byte] =
    java.util.Arrays.copyOfRange(binned, PrefixBytes, binned.length)

  /** The smallest possible key of `bin`; `None` for the bin after the last that can be encoded. */
  def lowerBound(bin: Int): Option[Array[Byte]] = Option.when(bin < MaxBins) {
    val out = new Array[Byte](PrefixBytes)
    putBin(bin, out)
    out
  }

  private def putBin(bin: Int, out: Array[Byte]): Unit = {
    out(0) = (bin >>> 8).toByte
    out(1) = bin.toByte
  }
}
