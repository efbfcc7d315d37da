package org.apache.spark.sql.execution.streaming.state.binshift.conversion

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorsUtils
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, StoreBins}
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.{StateVariableType, TransformWithStateOperatorProperties}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.{DataType, DoubleType, FloatType, StructType, TimestampType}

/**
 * Describes a store well enough to open it without its operator. The description comes from the metadata and schema files that
 * Spark keeps in the checkpoint.
 *
 * Serializable: it travels with the tasks of an offline conversion.
 *
 * @param operator    name of the operator, as its progress reports it
 * @param families    column families; only the default one if the store has none
 * @param schemaFiles the files that the schemas come from, for operators that may change them
 */
private[sql] final case class StoreForm(
    operatorId: Long,
    operator: String,
    storeName: String,
    families: Seq[FamilyForm],
    schemaFiles: Seq[String]) {

  def useColumnFamilies: Boolean = families.exists(_.name != StateStore.DEFAULT_COL_FAMILY_NAME)

  /** True if the keys have no columns: all rows are in partition 0, whatever the number of partitions. */
  def isSingle: Boolean = operator == StoreForm.GlobalLimit || families.forall(_.keySchema.isEmpty)

  /**
   * True if Spark may distribute rows by other values than those of the keys. A JVM key may be stored as another type than that of
   * its column, which only the plan knows, and Python may change some keys.
   */
  def mayBePlain: Boolean = operator == StoreForm.TransformInJvm || singleKeysMayDiffer

  /** True if Python may turn some keys into other values: a timestamp into another instant, or null into NaN. */
  def singleKeysMayDiffer: Boolean = {
    def has(types: DataType*) = groupingTypes.exists(_.existsRecursively(types.contains))
    operator != StoreForm.TransformInJvm && StatefulOperatorsUtils.TRANSFORM_WITH_STATE_OP_NAMES.contains(operator) &&
    (has(TimestampType) || operator == StoreForm.TransformInPandas && has(FloatType, DoubleType))
  }

  /** Computes the partition, out of `partitions`, into which Spark's hash puts the keys of each family. */
  private[conversion] def placing(partitions: Int): StoreBins = {
    val placing = new StoreBins(operator, storeName, partitions)
    families.foreach(f => placing.register(f.name, f.spec))
    placing
  }

  /** True if it is the family that Spark makes in each store with families, and whose schema is only a placeholder. */
  private[conversion] def isUnused(f: FamilyForm): Boolean = useColumnFamilies && f.name == StateStore.DEFAULT_COL_FAMILY_NAME

  /** Types of the columns by which rows are distributed, as they are in the keys of the families. */
  private def groupingTypes: Seq[DataType] = {
    val placed = placing(partitions = 1)
    families.filterNot(isUnused).flatMap(f => placed.of(f.name).keyTypes)
  }
}

private[sql] final case class FamilyForm(
    name: String, keySchema: StructType, valueSchema: StructType, spec: KeyStateEncoderSpec, isMultiValued: Boolean) {
  /**
   * True if Spark counts its rows separately from the user's. Relies on Spark: operators declare this when they make a family. It
   * is so for the timers, TTL and counters of `transformWithState`, and for everything but the values of a join.
   */
  def isInternal: Boolean =
    name.startsWith("$") || ColumnFamily.isReadInOrder(name) || StoreForm.JoinCounts(name)
}

private[sql] object StoreForm {
  private val GlobalLimit = "globalLimit"
  private val TransformInJvm = "transformWithStateExec"
  private val TransformInPandas = "transformWithStateInPandasExec"
  private val MetadataVersion = 2
  private[sql] val JoinCounts = Set("left-keyToNumValues", "right-keyToNumValues")
  /** Families of joins of state format 4, in which a key has several values. */
  private val JoinFamilies =
    for (side <- Set("left", "right"); name <- Set("keyWithTsToValues", "tsWithKey")) yield s"$side-$name"

  /**
   * The stores of an operator.
   *
   * @param stateRoot the checkpoint's directory of state
   */
  def of(stateRoot: String, metadata: OperatorStateMetadata, hadoopConf: Configuration): Seq[StoreForm] = {
    val id = metadata.operatorInfo.operatorId
    val operator = metadata.operatorInfo.operatorName
    val lists = metadata match {
      case m: OperatorStateMetadataV2 if StatefulOperatorsUtils.TRANSFORM_WITH_STATE_OP_NAMES.contains(operator) =>
        TransformWithStateOperatorProperties.fromJson(m.operatorPropertiesJson).stateVariables
          .filter(_.stateVariableType == StateVariableType.ListState).map(_.stateName).toSet
      case _ => Set.empty[String]
    }
    storesOf(metadata).map { store =>
      val files = schemaFiles(stateRoot, id, store)
      val families = schemasOf(files, hadoopConf).map { s =>
        val prefix = store.numColsPrefixKey
        val spec = s.keyStateEncoderSpec.getOrElse {
          if (prefix > 0) PrefixKeyScanStateEncoderSpec(s.keySchema, prefix) else NoPrefixKeyStateEncoderSpec(s.keySchema)
        }
        FamilyForm(s.colFamilyName, s.keySchema, s.valueSchema, spec, lists(s.colFamilyName) || JoinFamilies(s.colFamilyName))
      }
      StoreForm(id, operator, store.storeName, families, if (store.isInstanceOf[StateStoreMetadataV2]) files else Nil)
    }
  }

  private def storesOf(metadata: OperatorStateMetadata): Seq[StateStoreMetadata] = metadata match {
    case m: OperatorStateMetadataV1 => m.stateStoreInfo.toSeq
    case m: OperatorStateMetadataV2 => m.stateStoreInfo.toSeq
    case other => throw BinshiftException.unsupportedVersion(
        s"operator ${other.operatorInfo.operatorId} has metadata of version ${other.version}, which is unknown to this " +
          "binshift; use the binshift for your Spark version")
  }

  /** The families of one store as of an epoch, for an operator that has families. */
  def families(store: StateStoreId, epoch: Long, hadoopConf: Configuration): Map[String, KeyForm] = {
    val operator = new Path(store.checkpointRootLocation, store.operatorId.toString)
    val metadata = OperatorStateMetadataReader.createReader(operator, hadoopConf, MetadataVersion, epoch).read()
    val form = metadata.toSeq.flatMap(of(store.checkpointRootLocation, _, hadoopConf)).find(_.storeName == store.storeName)
    form.getOrElse(throw BinshiftException("CHECKPOINT_DAMAGED").configuration(
        s"$operator has no metadata of store '${store.storeName}' as of epoch $epoch; restore its _metadata from a " +
          "copy of the checkpoint")).families.map(f => f.name -> KeyForm(f.spec, f.valueSchema)).toMap
  }

  /**
   * Relies on Spark: metadata of version 2 names all schema files in use, oldest first, by absolute paths. If the checkpoint was
   * moved since, these are out of date. The schema of an operator without families is below its partition 0.
   */
  private def schemaFiles(stateRoot: String, operatorId: Long, store: StateStoreMetadata): Seq[String] = store match {
    case s: StateStoreMetadataV2 => s.stateSchemaFilePaths.map(relocated(stateRoot, operatorId, _))
    case s =>
      val dir =
        StateStoreId(stateRoot, operatorId, StateStore.PARTITION_ID_TO_CHECK_SCHEMA, s.storeName).storeCheckpointLocation()
      Seq(StateSchemaCompatibilityChecker.schemaFile(dir).toString)
  }

  /** The present path of a schema file, in a checkpoint that may have been moved. */
  def relocated(stateRoot: String, operatorId: Long, file: String): String = {
    val marker = s"/$SchemaDir/"
    file.lastIndexOf(marker) match {
      case -1 => file
      case at => new Path(new Path(stateRoot, operatorId.toString), SchemaDir + "/" + file.substring(at + marker.length)).toString
    }
  }

  val SchemaDir = "_stateSchema"

  /** The newest schema of each family. If the operator no longer uses a family, only an older file has its schema. */
  private def schemasOf(files: Seq[String], hadoopConf: Configuration): Seq[StateStoreColFamilySchema] =
    files.flatMap { file =>
      val path = new Path(file)
      StateSchemaCompatibilityChecker.readSchemaFile(CheckpointFileManager.create(path.getParent, hadoopConf).open(path))
    }.foldLeft(Map.empty[String, StateStoreColFamilySchema])((known, s) => known + (s.colFamilyName -> s))
      .values.toSeq.sortBy(_.colFamilyName)
}
