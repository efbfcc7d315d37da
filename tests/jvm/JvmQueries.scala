package binshift.tests

import java.sql.Timestamp

import org.apache.spark.sql.{DataFrame, Encoders, Row}
import org.apache.spark.sql.functions.{col, expr}
import org.apache.spark.sql.streaming._

/** Queries that Python cannot express: the typed operators of the JVM API. Input: k, v, t. */
object JvmQueries {
  type Input = (String, Long, Timestamp)
  type Output = (String, String, Long)

  private val MinuteMs = 60000L
  private val BrokenText = "if(v % 4 = 0, cast(unhex(hex(160 + v)) as string), k)"

  /** Counts the rows of a key until it has had none for two minutes; some keys start with a count. */
  def countUntilSilent(df: DataFrame): DataFrame = {
    val spark = df.sparkSession
    import spark.implicits._
    val initial = Seq("key1" -> 100L, "key2" -> 200L, "elsewhere" -> 300L).toDS().groupByKey(_._1).mapValues(_._2)
    df.as[Input].withWatermark("t", "1 minute").groupByKey(_._1).flatMapGroupsWithState(
      OutputMode.Update(), GroupStateTimeout.EventTimeTimeout(), initial)(count).toDF("k", "what", "n")
  }

  private def count(key: String, rows: Iterator[Input], state: GroupState[Long]): Iterator[Output] =
    if (state.hasTimedOut) {
      val n = state.get
      state.remove()
      Iterator((key, "silent", n))
    } else {
      val seen = rows.toSeq
      val n = state.getOption.getOrElse(0L) + seen.size
      state.update(n)
      if (seen.nonEmpty) {
        val latest = seen.map(_._3.getTime).max
        state.setTimeoutTimestamp(math.max(latest, state.getCurrentWatermarkMs()) + 2 * MinuteMs)
      }
      Iterator((key, "seen", n))
    }

  def transformed(df: DataFrame): DataFrame = {
    val spark = df.sparkSession
    import spark.implicits._
    df.as[Input].withWatermark("t", "1 minute").groupByKey(_._1)
      .transformWithState(new Everything, TimeMode.EventTime(), OutputMode.Update()).toDF("k", "what", "n")
  }

  /** Like `transformed`, with a state variable more, which is declared first and never set. */
  def transformedWithOneMore(df: DataFrame): DataFrame = {
    val spark = df.sparkSession
    import spark.implicits._
    df.as[Input].withWatermark("t", "1 minute").groupByKey(_._1)
      .transformWithState(new EverythingAndMore, TimeMode.EventTime(), OutputMode.Update()).toDF("k", "what", "n")
  }

  /** Like `transformed`, with keys of text of which some is not UTF-8. */
  def brokenTransformed(df: DataFrame): DataFrame = {
    val spark = df.sparkSession
    import spark.implicits._
    df.withWatermark("t", "1 minute").select(expr(BrokenText).as("i"), col("v"), col("t")).groupBy("i").as[String, Input]
      .transformWithState(new Everything, TimeMode.EventTime(), OutputMode.Update()).toDF("k", "what", "n")
  }

  /** Uses each kind of state variable, without times. */
  def remembered(df: DataFrame): DataFrame = {
    val spark = df.sparkSession
    import spark.implicits._
    df.as[Input].groupByKey(_._1)
      .transformWithState(new Remembering, TimeMode.None(), OutputMode.Update()).toDF("k", "what", "n")
  }

  /** A query with an initial state, and a key of two columns. */
  def transformedWithInitialState(df: DataFrame): DataFrame = {
    val spark = df.sparkSession
    import spark.implicits._
    val initial = (0 until 80).map(i => (s"key$i", i % 2 == 0, 1000L + i)).toDS().groupByKey(r => (r._1, r._2))
    df.as[Input].groupByKey(r => (r._1, r._2 % 2 == 0))
      .transformWithState(new Sum, TimeMode.None(), OutputMode.Update(), initial).toDF("k", "what", "n")
  }

  /** A key that is hashed as an int by the exchange, and kept as a long. */
  def keyOfAnotherType(df: DataFrame): DataFrame = {
    val spark = df.sparkSession
    import spark.implicits._
    df.withColumn("i", (col("v") % 5).cast("int")).groupBy("i").as[Long, Row](Encoders.scalaLong,
      Encoders.row(
        df.withColumn("i", col("v").cast("int")).schema))
      .transformWithState(new Rows[Long], TimeMode.None(), OutputMode.Update()).toDF("k", "what", "n")
  }

  /** A key that is hashed as an int by the exchange, and kept as text, though the schema of its state says int. */
  def keyInText(df: DataFrame): DataFrame = {
    val typed = df.withColumn("i", (col("v") % 50).cast("int"))
    typed.groupBy("i").as[String, Row](Encoders.STRING, Encoders.row(typed.schema))
      .transformWithState(new Rows[String], TimeMode.None(), OutputMode.Update())(Encoders.product[Output])
      .toDF("k", "what", "n")
  }

  /** A key that is read into an array, which the processor could change. */
  def keyOfBytes(df: DataFrame): DataFrame =
    df.groupByKey((r: Row) => r.getString(0).getBytes)(Encoders.BINARY)
      .transformWithState(new Rows[Array[Byte]], TimeMode.None(), OutputMode.Update())(Encoders.product[Output])
      .toDF("k", "what", "n")

  /** Keys of text, some of which is not UTF-8, so that Java makes other characters of it. */
  def brokenText(df: DataFrame): DataFrame = {
    val typed = df.withColumn("i", expr(BrokenText))
    typed.groupBy("i").as[String, Row](Encoders.STRING, Encoders.row(typed.schema))
      .transformWithState(new Rows[String], TimeMode.None(), OutputMode.Update())(Encoders.product[Output])
      .toDF("k", "what", "n")
  }
}

/** Uses each kind of state variable, and event-time timers, several for each key. */
class Everything extends StatefulProcessor[String, JvmQueries.Input, JvmQueries.Output] {
  @transient private var count: ValueState[Long] = _
  @transient private var values: ListState[Long] = _
  @transient private var minutes: MapState[Long, Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    count = getHandle.getValueState[Long]("count", Encoders.scalaLong, TTLConfig.NONE)
    values = getHandle.getListState[Long]("values", Encoders.scalaLong, TTLConfig.NONE)
    minutes = getHandle.getMapState[Long, Long](
      "minutes", Encoders.scalaLong, Encoders.scalaLong, TTLConfig.NONE)
  }

  override def handleInputRows(
      key: String, rows: Iterator[JvmQueries.Input], timers: TimerValues): Iterator[JvmQueries.Output] = {
    rows.foreach { case (_, v, t) =>
      count.update((if (count.exists()) count.get() else 0L) + 1)
      values.appendValue(v)
      val minute = t.getTime / 60000L
      minutes.updateValue(minute, (if (minutes.containsKey(minute)) minutes.getValue(minute) else 0L) + 1)
      getHandle.registerTimer(math.max(t.getTime, timers.getCurrentWatermarkInMs()) + 90000L + v * 1000L)
    }
    Iterator((key, "seen", count.get()))
  }

  override def handleExpiredTimer(
      key: String, timers: TimerValues, expired: ExpiredTimerInfo): Iterator[JvmQueries.Output] = {
    val left = getHandle.listTimers().size
    val out = Iterator(
      (key, "fired", expired.getExpiryTimeInMs()), (key, "left", left.toLong), (key, "sum", values.get().sum),
      (key, "minutes", minutes.keys().size.toLong))
    if (left <= 1) { count.clear(); values.clear(); minutes.clear() }
    out
  }
}

class EverythingAndMore extends Everything {
  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    getHandle.getValueState[Long]("more", Encoders.scalaLong, TTLConfig.NONE)
    super.init(outputMode, timeMode)
  }
}

/** Values that are replaced, lists that grow, and maps that are looked up and scanned; all are cleared from time to time. */
class Remembering extends StatefulProcessor[String, JvmQueries.Input, JvmQueries.Output] {
  @transient private var total: ValueState[Long] = _
  @transient private var values: ListState[Long] = _
  @transient private var classes: MapState[Long, Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    total = getHandle.getValueState[Long]("total", Encoders.scalaLong, TTLConfig.NONE)
    values = getHandle.getListState[Long]("values", Encoders.scalaLong, TTLConfig.NONE)
    classes = getHandle.getMapState[Long, Long]("classes", Encoders.scalaLong, Encoders.scalaLong, TTLConfig.NONE)
  }

  override def handleInputRows(
      key: String, rows: Iterator[JvmQueries.Input], timers: TimerValues): Iterator[JvmQueries.Output] = {
    rows.foreach { case (_, v, _) =>
      total.update((if (total.exists()) total.get() else 0L) + v)
      // Appends without reading the list.
      values.appendValue(v)
      val c = v % 7
      if (classes.containsKey(c) && v % 3 == 0) classes.removeKey(c)
      else classes.updateValue(c, (if (classes.containsKey(c)) classes.getValue(c) else 0L) + 1)
    }
    val sizes = 10L * values.get().size + classes.keys().size
    val out = Iterator((key, "total", total.get()), (key, "sizes", sizes), (key, "classes", classes.values().sum))
    total.get() % 5 match {
      case 0 => total.clear()
      case 1 => values.clear()
      case 2 => classes.clear()
      case _ =>
    }
    out
  }
}

class Sum
  extends StatefulProcessorWithInitialState[
    (String, Boolean), JvmQueries.Input, JvmQueries.Output, (String, Boolean, Long)] {
  @transient private var sum: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    sum = getHandle.getValueState[Long]("sum", Encoders.scalaLong, TTLConfig.NONE)

  override def handleInitialState(
      key: (String, Boolean), initial: (String, Boolean, Long), timers: TimerValues): Unit =
    sum.update(initial._3)

  override def handleInputRows(
      key: (String, Boolean), rows: Iterator[JvmQueries.Input], timers: TimerValues): Iterator[JvmQueries.Output] = {
    sum.update((if (sum.exists()) sum.get() else 0L) + rows.map(_._2).sum)
    Iterator((key._1, key._2.toString, sum.get()))
  }
}

class Rows[K] extends StatefulProcessor[K, Row, JvmQueries.Output] {
  @transient private var n: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    n = getHandle.getValueState[Long]("n", Encoders.scalaLong, TTLConfig.NONE)

  override def handleInputRows(
      key: K, rows: Iterator[Row], timers: TimerValues): Iterator[JvmQueries.Output] = {
    n.update((if (n.exists()) n.get() else 0L) + rows.size)
    Iterator((key.toString, "rows", n.get()))
  }
}
