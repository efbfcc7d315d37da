package org.apache.spark.sql.execution.streaming.state.binshift.conversion

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.types.StructType

/**
 * Reads the keys of a store back into rows, from the bytes that Spark's encoders made of them.
 *
 * An operator registers the families of its store only after the store is loaded. Code that needs the keys earlier takes the
 * families from the schema files of the checkpoint, as Spark's own offline tools do.
 *
 * Not thread-safe: encoders reuse their rows.
 *
 * @param default  the schema of the store itself, which describes its rows if it has no families
 * @param families the families from the schema files; evaluated only if the store has families
 */
private[binshift] final class StockKeys(
    default: KeyForm,
    families: => Map[String, KeyForm],
    useColumnFamilies: Boolean,
    encoding: String,
    schemas: Option[StateSchemaProvider]) {

  private val encoders = new java.util.HashMap[String, RocksDBKeyStateEncoder]()

  /** The encoders of the families, for [[StoreBins]]. */
  def specs: Map[String, KeyStateEncoderSpec] = forms.view.mapValues(_.spec).toMap

  /** Valid until the next call. */
  def row(family: String, key: Array[Byte]): UnsafeRow = {
    val known = encoders.get(family)
    if (known != null) known.decodeKey(key)
    else {
      val made = encoderOf(family)
      encoders.put(family, made)
      made.decodeKey(key)
    }
  }

  private lazy val forms: Map[String, KeyForm] = {
    val own = Map(StateStore.DEFAULT_COL_FAMILY_NAME -> default)
    if (useColumnFamilies) own ++ families else own
  }

  private def encoderOf(family: String): RocksDBKeyStateEncoder = {
    val KeyForm(spec, valueSchema) = forms.getOrElse(family,
      throw BinshiftException("CHECKPOINT_DAMAGED").configuration(
        s"the checkpoint has rows of column family $family, but no schema of it; restore the files below " +
          "_metadata and _stateSchema of the operator from a copy of the checkpoint"))
    val data =
      if (encoding == StateStoreEncoding.Avro.toString) new AvroStateEncoder(spec, valueSchema, schemas, family)
      else new UnsafeRowDataEncoder(spec, valueSchema)
    RocksDBStateEncoder.getKeyEncoder(data, spec, useColumnFamilies)
  }
}

/** @param valueSchema schema of the values, which the encoders need as well */
private[binshift] final case class KeyForm(spec: KeyStateEncoderSpec, valueSchema: StructType)
