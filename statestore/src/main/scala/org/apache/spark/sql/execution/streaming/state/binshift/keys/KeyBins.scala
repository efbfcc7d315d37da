package org.apache.spark.sql.execution.streaming.state.binshift.keys

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.expressions.{BoundReference, CollationAwareMurmur3Hash, Expression, GetStructField, Literal, Pmod, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorsUtils
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.{DataType, StructField, StructType}

/**
 * Computes the bin of a state key, from the hash of those of its columns that the exchange hashed.
 *
 * Not thread-safe: the projection reuses its output row. One instance per column family of a store.
 *
 * @param key the partitioning columns, bound to the state key
 */
private[binshift] final class KeyBins(key: Seq[Expression], bins: Int) {
  private val projection = UnsafeProjection.create(Seq(KeyBins.hash(key)))

  /** The bin of `key`, which may also consist of the leading columns of a key, if these include all partitioning columns. */
  def apply(key: UnsafeRow): Int = ofHash(hash(key))

  /** The hash of the partitioning columns of `key`. */
  def hash(key: UnsafeRow): Int = projection(key).getInt(0)

  /** The bin of a key with this hash. Relies on Spark: its `Pmod` gives the same for both. */
  def ofHash(hash: Int): Int = Math.floorMod(hash, bins)

  /** The partitioning columns of a key, with structs taken apart. Reuses the row that it returns. */
  def keyOf(key: UnsafeRow): UnsafeRow = keyProjection(key)

  def keyTypes: Seq[DataType] = columns.map(_.dataType)

  /** Hashes of the partitioning columns of a key. */
  lazy val hashes: KeyHashes = new KeyHashes(columns)

  private lazy val columns = key.flatMap(flat)
  private lazy val keyProjection = UnsafeProjection.create(columns)

  private def flat(e: Expression): Seq[Expression] = e.dataType match {
    case s: StructType => s.indices.flatMap(i => flat(GetStructField(e, i)))
    case _ => Seq(e)
  }
}

private[sql] object KeyBins {
  /**
   * Bin of a row. The exchange and the store must agree on it, so both take it from here.
   *
   * Relies on Spark: `HashPartitioning.partitionIdExpression` is `Pmod` of this very hash. Because both use the same hash, the
   * first table of a checkpoint (bin modulo n, where n divides the number of bins) places each key where Spark does.
   */
  def expression(keys: Seq[Expression], bins: Int): Expression = Pmod(hash(keys), Literal(bins))

  private def hash(keys: Seq[Expression]): Expression = new CollationAwareMurmur3Hash(keys)
}

/** Finds the columns of an operator's partitioning key in the keys of its column families. */
private[binshift] object PartitioningKey {

  /**
   * The partitioning columns of a family's keys.
   *
   * Relies on Spark: how each operator builds its state keys. In most cases, the encoder's form shows which columns of the key the
   * operator has appended. Two cases are recognized by their names: a join's values by index, and the TTL index of a map variable.
   *
   * @param operator name of the operator, as its progress reports it
   * @param family   name of the column family, or of the store for operators with several stores
   * @param specOf   encoders of the store's other families
   */
  def of(operator: String, family: String, spec: KeyStateEncoderSpec,
      specOf: String => Option[KeyStateEncoderSpec]): Seq[Expression] = spec match {
    case NoPrefixKeyStateEncoderSpec(schema) =>
      columns(if (haveNumbers(operator, family)) schema.dropRight(1) else schema)
    case PrefixKeyScanStateEncoderSpec(schema, prefix) => columns(schema.take(prefix))
    case RangeKeyScanStateEncoderSpec(schema, _) => Seq(elementOf(family, schema, specOf))
    case other => columns(TimestampKeys.schemaOf(other).getOrElse(
          throw BinshiftException.unsupportedVersion(
            s"column family $family has keys of an unknown kind (${other.getClass.getSimpleName}); this " +
              "binshift does not know the operator that made them; use the binshift for your Spark version")).dropRight(1))
  }

  /** True if an operator reads the family in the order of its keys across partitioning keys. */
  def isReadInOrder(spec: KeyStateEncoderSpec): Boolean =
    spec.isInstanceOf[RangeKeyScanStateEncoderSpec] || TimestampKeys.areInOrder(spec)

  /** True if the rows of a key are numbered from zero on without gaps, in the last column of the state key. */
  def haveNumbers(operator: String, family: String): Boolean = operator == Join && ValuesByIndex(family)

  /** The store with the values that `store` counts. */
  def storeOfValues(operator: String, store: String): Option[String] =
    Option.when(operator == Join)(store.replace(Counts, Values)).filter(_ != store)

  /** The store that counts the values in `store`. */
  def storeOfCounts(operator: String, store: String): Option[String] =
    Option.when(operator == Join)(store.replace(Values, Counts)).filter(_ != store)

  private val Join = "symmetricHashJoin"
  private val Counts = "-keyToNumValues"
  private val Values = "-keyWithIndexToValue"

  /** In these stores, a join that counts the values of a key appends the index of the value to the key. */
  private val ValuesByIndex = Set("left-keyWithIndexToValue", "right-keyWithIndexToValue")

  /** Timers and TTL indexes of transformWithState: (time, element); a map's element is (key, user key). */
  private def elementOf(
      family: String, schema: StructType, specOf: String => Option[KeyStateEncoderSpec]): Expression = {
    val element = BoundReference(1, schema(1).dataType, schema(1).nullable)
    val isOfMap = ColumnFamily.timedOutBy(family).flatMap(specOf).exists(_.isInstanceOf[PrefixKeyScanStateEncoderSpec])
    if (isOfMap) GetStructField(element, 0) else element
  }

  // A struct hashes like its fields, so the nested keys of transformWithState need no unpacking.
  private def columns(schema: Seq[StructField]): Seq[Expression] =
    schema.zipWithIndex.map { case (f, i) => BoundReference(i, f.dataType, f.nullable) }
}

/**
 * The bins of the keys of one store, for all of its column families.
 *
 * Not thread-safe; a store is used by one task at a time.
 *
 * @param operator name of the operator, as its progress reports it
 */
private[binshift] final class StoreBins(operator: String, storeName: String, bins: Int) {
  private val registered = new java.util.HashMap[String, KeyStateEncoderSpec]()
  private val families = new java.util.HashMap[String, KeyBins]()

  /** The name of the operator. */
  def operatorName: String = operator

  /**
   * True if the operator makes the keys of its state not from the rows, but from values that passed through the user's language
   * and may have changed there.
   */
  def mayChangeKeys: Boolean = StatefulOperatorsUtils.TRANSFORM_WITH_STATE_OP_NAMES.contains(operator)

  /** Called for each family before its first key. */
  def register(family: String, spec: KeyStateEncoderSpec): Unit =
    if (spec != registered.put(family, spec)) families.clear()

  /** The encoders of the families that were registered so far. */
  def specs: Map[String, KeyStateEncoderSpec] = registered.asScala.toMap

  /** Resolved at the first key of a family: families may refer to each other, and all are registered by then. */
  def of(family: String): KeyBins = {
    val known = families.get(family)
    if (known != null) known
    else {
      val key = PartitioningKey.of(operator, nameOf(family), registered.get(family), f => Option(registered.get(f)))
      val made = new KeyBins(key, bins)
      families.put(family, made)
      made
    }
  }

  /** The name of the store with the values that this one counts. */
  def storeOfValues: Option[String] = PartitioningKey.storeOfValues(operator, storeName)

  /** The name of the store that counts the values in this one. */
  def storeOfCounts: Option[String] = PartitioningKey.storeOfCounts(operator, storeName)

  /** See [[PartitioningKey.haveNumbers]]. */
  def haveNumbers(family: String): Boolean = PartitioningKey.haveNumbers(operator, nameOf(family))

  /** Joins of the older state formats have a store, and no column families, for each kind of row. */
  private def nameOf(family: String): String = if (family == StateStore.DEFAULT_COL_FAMILY_NAME) storeName else family
}
