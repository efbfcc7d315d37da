package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.catalyst.encoders.AgnosticEncoder
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoders.{BoxedLeafEncoder, PrimitiveLeafEncoder, ProductEncoder, StringEncoder}
import org.apache.spark.sql.catalyst.expressions.{Attribute, NamedExpression}
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.catalyst.streaming.InternalOutputModes
import org.apache.spark.sql.execution.python.streaming.{FlatMapGroupsInPandasWithStateExec, TransformWithStateInPySparkExec}
import org.apache.spark.sql.execution.{AppendColumnsExec, AppendColumnsWithObjectExec, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.{FlatMapGroupsWithStateExec, FlatMapGroupsWithStateExecBase}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{OperatorLayout, Storage}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.{TransformWithStateExec, TransformWithStateExecBase}
import org.apache.spark.sql.streaming.{GroupStateTimeout, TimeMode}
import org.apache.spark.sql.types.{DataType, DoubleType, FloatType, StructType, TimestampType}

/** Finds the stateful operators of a plan, and says how each of them stores its state. */
private[binshift] object StatefulOperators {

  /** The operators that write state; those that only read it share the writer's id. */
  def writers(plan: SparkPlan): Seq[StateStoreWriter] = plan.collect {
    case op: StateStoreWriter if op.stateInfo.isDefined => op
  }

  def idOf(op: StatefulOperator): Long = op.getStateInfo.operatorId

  def layoutOf(op: StateStoreWriter): OperatorLayout = OperatorLayout(op.shortName, storageOf(op))

  /**
   * The inputs whose rows have to follow the routing table. An initial state is read in the first
   * batch only; in later ones Spark leaves its plan in place without running it.
   */
  def routedInputs(op: StatefulOperator): Seq[SparkPlan] = op match {
    case tws: TransformWithStateExecBase if !hasInitialState(tws) => op.children.take(1)
    case fmgws: FlatMapGroupsWithStateExec if !fmgws.hasInitialState => op.children.take(1)
    case _ => op.children
  }

  /**
   * True if an operator reads and writes its state only by the key of the row at hand, which is the key that its exchange hashes, and
   * never scans it except [[scansToForget to remove rows]]. This only matters for speed: the results of other operators are right as
   * well, but they wait for whole bins.
   *
   * Relies on Spark: an aggregation in update mode and a deduplication scan their state if the event time is in their keys, and an
   * operator with arbitrary state scans it if it has a timeout. `transformWithState` has neither timers nor TTL if it has no time
   * mode. In Spark 4.3, a deduplication opens a scan in each epoch, but reads it only if the event time is in its key.
   */
  def looksUpByKey(op: StatefulOperator): Boolean = op match {
    case _: StateStoreRestoreExec => true
    case save: StateStoreSaveExec => save.outputMode.contains(InternalOutputModes.Update) && mayForget(save)
    case distinct: StreamingDeduplicateExec => mayForget(distinct)
    case grouped: FlatMapGroupsWithStateExec => grouped.timeoutConf == GroupStateTimeout.NoTimeout
    case grouped: FlatMapGroupsInPandasWithStateExec => grouped.timeoutConf == GroupStateTimeout.NoTimeout
    case jvm: TransformWithStateExec => jvm.timeMode == TimeMode.None
    case python: TransformWithStateInPySparkExec => python.timeMode == TimeMode.None
    case join: StreamingSymmetricHashJoinExec => Joins.lookUpByKey(join)
    case _ => false
  }

  /**
   * True if an operator that looks up by key has a single scan, at the end of an epoch, which removes rows that are not later than
   * the watermark and gives nothing out. Such a scan may leave out bins that haven't arrived, and removes their rows once they have.
   *
   * Relies on Spark: a watermark never falls, and an epoch drops arriving rows that are not later than the watermark by which the
   * epoch before removed, before they meet state. So no row can meet a row of state that was left out, because that row's event
   * time is in its key.
   */
  def scansToForget(op: StatefulOperator): Boolean = looksUpByKey(op) && (op match {
    case save: StateStoreSaveExec => save.keyExpressions.exists(isEventTime)
    case distinct: StreamingDeduplicateExec => distinct.keyExpressions.exists(isEventTime)
    case join: StreamingSymmetricHashJoinExec => Joins.scan(join)
    case _ => false
  })

  /** True if nothing is removed by time, or the column by which rows are removed is the one by which late rows are dropped. */
  private def mayForget(op: WatermarkSupport): Boolean = !op.keyExpressions.exists(isEventTime) || {
    // With several event times, which a setting for old queries allows, the two may be different.
    val times = op.child.output.filter(isEventTime).map(_.exprId).distinct
    times.size == 1 && op.keyExpressions.filter(isEventTime).forall(_.exprId == times.head) &&
    op.eventTimeWatermarkForLateEvents.isDefined
  }

  /**
   * True if the operator has stores with column families.
   *
   * Relies on Spark: these are the stores of `transformWithState`, and of joins from the third format on.
   */
  def hasFamilies(op: StateStoreWriter): Boolean = op match {
    case _: TransformWithStateExecBase => true
    case join: StreamingSymmetricHashJoinExec => join.stateFormatVersion >= 3
    case _ => false
  }

  /** True if the operator makes the keys of its state from values that passed through the user's language. */
  def mayChangeKeys(op: StateStoreWriter): Boolean = op.isInstanceOf[TransformWithStateExecBase]

  /** For each input of such an operator, the columns by which its rows are distributed, unless these are known to stay as they are. */
  def keysThatMayChange(op: StatefulOperator): Seq[Seq[Attribute]] = op match {
    case jvm: TransformWithStateExec if isWrittenAgain(jvm) => Nil
    case jvm: TransformWithStateExec => Seq(jvm.groupingAttributes, jvm.initialStateGroupingAttrs)
    case python: TransformWithStateInPySparkExec => Seq(python.groupingAttributes, python.initialStateGroupingAttrs)
    case _ => Nil
  }

  /**
   * True if the key of the state certainly equals that of the row, because `groupByKey` has made the columns from the same values.
   *
   * Relies on Spark: `groupByKey` appends the key in the form that its encoder writes, and the operator reads the key with an encoder and
   * writes it again. The columns of `groupBy(…).as` may contain anything else, such as text that isn't UTF-8.
   */
  private def isWrittenAgain(op: TransformWithStateExec): Boolean = {
    lazy val appended = op.collect {
      case a: AppendColumnsExec => a.serializer
      case a: AppendColumnsWithObjectExec => a.newColumnsSerializer
    }.flatten.map(_.exprId).toSet
    val inputs = op.groupingAttributes ++ (if (op.hasInitialState) op.initialStateGroupingAttrs else Nil)
    isOfPlainValues(op.keyEncoder.encoder) && inputs.forall(column => appended(column.exprId))
  }

  /** True if a key is text, a number or a tuple of these. User code can change other keys, or reads and writes them itself. */
  private def isOfPlainValues(key: AgnosticEncoder[_]): Boolean = key match {
    case StringEncoder | _: PrimitiveLeafEncoder[_] | _: BoxedLeafEncoder[_, _] => true
    case p: ProductEncoder[_] =>
      p.clsTag.runtimeClass.getName.startsWith("scala.Tuple") && p.fields.forall(f => isOfPlainValues(f.enc))
    case _ => false
  }

  /** True if a watermark is on a column. */
  def isEventTime(column: NamedExpression): Boolean = column.metadata.contains(EventTimeWatermark.delayKey)

  private def hasInitialState(op: TransformWithStateExecBase): Boolean = op match {
    case jvm: TransformWithStateExec => jvm.hasInitialState
    case python: TransformWithStateInPySparkExec => python.hasInitialState
    case _ => true
  }

  /**
   * The storage is binned if the operator's state key consists of the columns that its exchange hashes, and of columns that the
   * operator appends. Without grouping columns there is one partition, whatever the number of state partitions.
   */
  private def storageOf(op: StateStoreWriter): Storage = op match {
    case save: StateStoreSaveExec => unlessGlobal(save.keyExpressions)
    case aggregate: WatermarkSupport if aggregate.shortName == RealTimeAggregate => unlessGlobal(aggregate.keyExpressions)
    case session: SessionWindowStateStoreSaveExec => unlessGlobal(session.keyWithoutSessionExpressions)
    case _: StreamingGlobalLimitExec => Storage.Single
    case _: StreamingDeduplicateExec | _: StreamingDeduplicateWithinWatermarkExec => Storage.Binned
    case _: StreamingSymmetricHashJoinExec => Storage.Binned
    case _: FlatMapGroupsWithStateExecBase => Storage.Binned
    case tws: TransformWithStateExec =>
      // A typed key of another type than its column (groupBy(int).as[Long, V]) has another hash.
      if (sameTypes(tws.keyEncoder.schema, tws.groupingAttributes)) Storage.Binned else Storage.Plain
    case python: TransformWithStateInPySparkExec =>
      if (python.groupingAttributes.exists(mayComeBackAsAnother(python, _))) Storage.Plain else Storage.Binned
    case _ => Storage.Plain
  }

  /**
   * True if Python may return a key as another value than the one that the exchange hashed. Python takes a timestamp for one in its
   * own time zone, and in pandas a null among floats is NaN.
   */
  private def mayComeBackAsAnother(python: TransformWithStateInPySparkExec, key: Attribute): Boolean = {
    def has(types: DataType*) = key.dataType.existsRecursively(types.contains)
    def mayBeNull = key.nullable || key.dataType != FloatType && key.dataType != DoubleType
    has(TimestampType) || python.userFacingDataType == UserFacingDataType.PANDAS && has(FloatType, DoubleType) && mayBeNull
  }

  /**
   * The operator that real-time mode uses for an aggregation, row by row. Recognized by its name, because Spark 4.2 doesn't have it.
   *
   * Relies on Spark: it has the same state as the usual operator, and Spark lets each of them continue with the state of the other.
   */
  private val RealTimeAggregate = "StatefulStreamlineAggregate"

  private def unlessGlobal(keys: Seq[Any]): Storage = if (keys.isEmpty) Storage.Single else Storage.Binned

  private def sameTypes(key: StructType, columns: Seq[Attribute]): Boolean =
    key.map(_.dataType) == columns.map(_.dataType)
}
