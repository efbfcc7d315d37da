package binshift.benchmarks

import java.sql.Timestamp

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming._

/** A query that does little but set timers and let them fire: each row is a key with one timer. */
object TimerQuery {
  /**
   * @param df          columns `timestamp` and `value`
   * @param seconds     from a row to its timer, in event time
   * @param isScattered whether keys come in no order, as names and ids do, or else ascending
   * @param keys        how many there are; after them, the same ones set the same timers again. 0 if each row is a new one
   */
  def of(df: DataFrame, seconds: Int, isScattered: Boolean, keys: Long): DataFrame = {
    val odd = if (isScattered) 0x9e3779b97f4a7c15L else 1L
    val spark = df.sparkSession
    import spark.implicits._
    df.as[(Timestamp, Long)].withWatermark("timestamp", "0 seconds")
      .groupByKey(row => (if (keys > 0) row._2 % keys else row._2) * odd)
      .transformWithState(new OneTimer(seconds, keys), TimeMode.EventTime(), OutputMode.Append()).toDF("key")
  }
}

class OneTimer(seconds: Int, keys: Long) extends StatefulProcessor[Long, (Timestamp, Long), Long] {
  @transient private var count: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    count = getHandle.getValueState[Long]("count", Encoders.scalaLong, TTLConfig.NONE)

  override def handleInputRows(
      key: Long, rows: Iterator[(Timestamp, Long)], timers: TimerValues): Iterator[Long] = {
    val (time, value) = rows.next()
    count.update(1)
    getHandle.registerTimer((if (keys > 0) value % keys else time.getTime) + seconds * 1000L)
    Iterator.empty
  }

  override def handleExpiredTimer(key: Long, timers: TimerValues, expired: ExpiredTimerInfo): Iterator[Long] = {
    count.clear()
    Iterator(key)
  }
}
