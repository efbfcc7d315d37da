package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration

import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, ProcessConf}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.BinKeyCodec
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.types.StructType

/**
 * Implements the option `readChangeFeed` of the `statestore` data source for binned stores.
 *
 * Spark's reader of changelogs decodes keys with the encoders that it is given, so we give it some that remove the bin first. Rows
 * that were adopted or released don't appear in the feed.
 */
private[binshift] object BinnedChangeFeed {
  private type Encoders = (RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Short)

  /**
   * The version with which a partition's part of a feed begins. If the partition was retired before, it is one after the end, because
   * Spark 4.1 opens its directory all the same.
   *
   * @throws BinshiftException if the number of partitions changes in between. Spark reads all partitions of the last version from the
   *                           first version on, but a partition that comes into being has a snapshot of its first version, and no
   *                           changelog.
   */
  def firstToRead(partition: Int, routing: EpochRouting, startVersion: Long, endVersion: Long): Long = {
    val last = routing.partitionsOf(endVersion)
    // Epoch v - 1 committed version v.
    val changed =
      (startVersion - 1 until endVersion).reverse.flatMap(v => routing.partitionsOf(v).filterNot(last.contains).map(v -> _))
        .headOption.filter { case (v, before) => v >= startVersion || last.exists(_ > before) }
    changed.foreach { case (epoch, before) =>
      val next = if (last.exists(_ > before)) epoch + 1 else epoch
      throw BinshiftException("PARTITIONS_CHANGED", "epoch" -> epoch).configuration(
        s"the change feed cannot be read across epoch $epoch, at which the query went from $before to ${last.mkString} " +
          s"partitions; read up to batch ${epoch - 1}, or from batch $next on")
    }
    if (last.exists(_ <= partition)) endVersion + 1 else startVersion
  }

  /** @param family column family to read; `None` for a store that has none */
  def reader(
      provider: RocksDBStateStoreProvider,
      db: RocksDB,
      startVersion: Long,
      endVersion: Long,
      family: Option[String],
      endCheckpointId: Option[String],
      storeConf: StateStoreConf,
      hadoopConf: Configuration): StateStoreChangeDataReader = {
    val codec = CompressionCodec.createCodec(ProcessConf(), storeConf.compressionCodec)
    ChangeDataReader.of(provider.stateStoreId, db, startVersion, endVersion, endCheckpointId, codec,
      strippingBins(encodersOf(provider)), family, storeConf, hadoopConf)
  }

  private def strippingBins(encoders: Map[String, Encoders]): ConcurrentHashMap[String, Encoders] =
    new ConcurrentHashMap(encoders.map {
      case (family, (key, value, id)) =>
        family -> ((new BinStrippingKeyDecoder(key, BinKeyCodec.of(family)), value, id): Encoders)
    }.asJava)

  /**
   * Relies on Spark: the provider keeps the encoders of each family in a member that is private only in Scala. Read by reflection, once
   * per reader.
   */
  private def encodersOf(provider: RocksDBStateStoreProvider): Map[String, Encoders] =
    encoders.invoke(provider).asInstanceOf[ConcurrentHashMap[String, Encoders]].asScala.toMap

  private lazy val encoders = classOf[RocksDBStateStoreProvider].getMethods
    .find(_.getName.endsWith("$$keyValueEncoderMap")).getOrElse(throw BinshiftException.unsupportedVersion(
        "this Spark's RocksDB provider has no keyValueEncoderMap; use the binshift for your Spark version"))
}

/**
 * Decodes stored keys; never encodes. (Spark's trait of key encoders is sealed, so this extends a subclass that isn't, whose own
 * fields stay unused.)
 */
private final class BinStrippingKeyDecoder(keys: RocksDBKeyStateEncoder, codec: BinKeyCodec)
  extends NoPrefixKeyStateEncoder(null, new StructType(), false) {
  override def decodeKey(keyBytes: Array[Byte]): UnsafeRow = keys.decodeKey(codec.stripBin(keyBytes))
}
