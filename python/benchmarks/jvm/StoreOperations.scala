package binshift.benchmarks

import java.nio.file.{Files, Path}
import java.util.UUID

import scala.util.Random

import org.apache.commons.io.FileUtils
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.{IntegerType, LongType, StructType}

/**
 * Measures the cost of one row in a state store, without a query around it. It fills stores of several providers with `keys` rows
 * each, performs an operation on some of them in random order, and aborts the changes. It repeats this as often as asked, in one
 * store after the other, so that disturbances of the machine affect all of them.
 */
object StoreOperations {
  private val keySchema = new StructType().add("id", LongType).add("part", IntegerType)
  private val valueSchema = new StructType().add("count", LongType).add("sum", LongType)
  private val Family = StateStore.DEFAULT_COL_FAMILY_NAME

  /** Nanoseconds a row of `operation` on `rows` of `keys` keys: for each provider, once for each of `times`. */
  def run(
      session: SparkSession, providers: Array[String], operation: String, keys: Int, rows: Int, times: Int)
      : Array[Array[Double]] = {
    val directory = Files.createTempDirectory("store-operations")
    val stores = providers.zipWithIndex.map { case (provider, i) =>
      session.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
      open(session, directory.resolve(i.toString), severalValues = operation == "merge")
    }
    try {
      val all = rowsOf(keySchema, keys)
      val values = rowsOf(valueSchema, rows)
      stores.foreach(fill(_, all, values(0)))
      val random = new Random(1)
      Array.fill(times) {
        val some = random.shuffle(all.toSeq).take(rows).toArray
        stores.map(once(_, operation, some, values))
      }.transpose
    } finally {
      stores.foreach(_.close())
      FileUtils.deleteDirectory(directory.toFile)
    }
  }

  private def open(session: SparkSession, directory: Path, severalValues: Boolean): StateStoreProvider = {
    val hadoop = new Configuration(session.sessionState.newHadoopConf())
    hadoop.set("spark.sql.streaming.query.runId", UUID.randomUUID.toString)
    hadoop.set("sql.streaming.runId", UUID.randomUUID.toString)
    val id = StateStoreProviderId(StateStoreId(directory.toString, 0, 0), UUID.randomUUID)
    StateStoreProvider.createAndInit(
      id, keySchema, valueSchema, NoPrefixKeyStateEncoderSpec(keySchema), useColumnFamilies = severalValues,
      StateStoreConf(session.sessionState.conf), hadoop, useMultipleValuesPerKey = severalValues, None)
  }

  private def fill(provider: StateStoreProvider, keys: Array[UnsafeRow], value: UnsafeRow): Unit = {
    val store = provider.getStore(0, None, false, false)
    keys.foreach(store.put(_, value, Family))
    store.commit()
    provider.doMaintenance()
  }

  private def once(
      provider: StateStoreProvider, operation: String, keys: Array[UnsafeRow], values: Array[UnsafeRow]): Double = {
    val store = provider.getStore(1, None, false, false)
    try {
      val begin = System.nanoTime()
      val n = work(store, operation, keys, values)
      (System.nanoTime() - begin).toDouble / n
    } finally store.abort()
  }

  /** Does the operation; how many rows it was done on. */
  private def work(
      store: StateStore, operation: String, keys: Array[UnsafeRow], values: Array[UnsafeRow]): Int = operation match {
    case "put" =>
      each(keys)(i => store.put(keys(i), values(i), Family))
    case "get" =>
      each(keys)(i => require(store.get(keys(i), Family) != null))
    case "update" => // as an aggregation does
      each(keys) { i =>
        require(store.get(keys(i), Family) != null)
        store.put(keys(i), values(i), Family)
      }
    case "merge" =>
      each(keys)(i => store.merge(keys(i), values(i), Family))
    case "remove" =>
      each(keys)(i => store.remove(keys(i), Family))
    case "evict" => // looks at all rows, and removes one in ten of those looked at
      val rows = store.iterator(Family)
      try rows.foldLeft(0) { (n, row) =>
          if (n % 10 == 0) store.remove(row.key, Family)
          n + 1
        }
      finally rows.close()
  }

  private def each(keys: Array[UnsafeRow])(f: Int => Unit): Int = {
    var i = 0
    while (i < keys.length) {
      f(i)
      i += 1
    }
    keys.length
  }

  private def rowsOf(schema: StructType, n: Int): Array[UnsafeRow] = {
    val projection = UnsafeProjection.create(schema)
    Array.tabulate(n) { i =>
      val fields = schema.map(_.dataType match {
        case LongType => Long.box(i * 0x9e3779b97f4a7c15L)
        case _ => Int.box(i % 7)
      })
      projection(new GenericInternalRow(fields.toArray[Any])).copy()
    }
  }
}
