package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration

import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, ProcessConf}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.BinKeyCodec
import org.apache.spark.sql.types.StructType

/**
 * The option `readChangeFeed` of the `statestore` data source, for a binned store.
 *
 * Spark's reader of changelogs decodes keys with the encoders it is given, so it is given some that
 * take the bin off first. Rows that were adopted or released appear in the feed as puts and deletes.
 */
private[binshift] object BinnedChangeFeed {
  private type Encoders = (RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Short)

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
   * Relies on Spark: the provider keeps the encoders of each family in a member that is private to
   * Scala only. Read by reflection, once per reader.
   */
  private def encodersOf(provider: RocksDBStateStoreProvider): Map[String, Encoders] =
    encoders.invoke(provider).asInstanceOf[ConcurrentHashMap[String, Encoders]].asScala.toMap

  private lazy val encoders = classOf[RocksDBStateStoreProvider].getMethods
    .find(_.getName.endsWith("$$keyValueEncoderMap")).getOrElse(throw BinshiftException.unsupportedVersion(
        "this Spark's RocksDB provider has no keyValueEncoderMap; use the binshift for your Spark version"))
}

/**
 * Decodes stored keys; never encodes. (Spark's trait of key encoders is sealed, hence the subclass of
 * one that is not, whose own fields stay unused.)
 */
private final class BinStrippingKeyDecoder(keys: RocksDBKeyStateEncoder, codec: BinKeyCodec)
  extends NoPrefixKeyStateEncoder(null, new StructType(), false) {
  override def decodeKey(keyBytes: Array[Byte]): UnsafeRow = keys.decodeKey(codec.stripBin(keyBytes))
}
