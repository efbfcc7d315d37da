package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.{PrintWriter, StringWriter}
import java.nio.ByteBuffer
import java.nio.file.{Files, Path => LocalPath, Paths}
import java.util.zip.CRC32C

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.binshift.TestFuzzFiles
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, CheckpointIds, ControlDir, EntryName, Layout, RunHistory}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingLog, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{DamagedShipment, ShipmentFormat, ShipmentMarker}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.Manifest

/**
 * Feeds decoders of the JVM, as `tests/fuzz` does with those of Python. What a decoder throws has to be one of the errors
 * that its caller expects; and an error of the virtual machine, such as of its memory, is a failure, too.
 */
object TestFuzz {
  private val Epoch = 4L
  private val Base = 7L

  /** A chunk of a shipment, with rows of two families and the end of a part. */
  def chunk(): Array[Byte] = {
    val families = Seq(NumberedFamily(ColumnFamily("default", isInternal = false), None),
      NumberedFamily(ColumnFamily("$ttl_x", isInternal = true), Some(3: Short)))
    val chunks = mutable.Buffer.empty[Array[Byte]]
    val writer = new ShipmentFormat.Writer(Base, "attempt", families, 1 << 16, (_, bytes, _) => chunks += bytes)
    (0 until 5).foreach(i => writer.write(i % 2, i % 2, Array.fill(3 + i)(i.toByte), Array.fill(20)(i.toByte)))
    writer.close()
    chunks.head
  }

  /** A marker of a store that has sent to two partitions. */
  def marker(): Array[Byte] =
    ByteBuffer.allocate(52).putInt(0).putLong(9).putInt(1).putInt(2).putInt(0).putLong(3).putInt(4).putInt(5).putInt(5).putLong(
      6).array

  /**
   * Feeds inputs, each behind its length.
   *
   * @param folder a checkpoint with the golden files, one of which is replaced
   * @return JSON: how many were decoded, how many refused and by what, the failures, and the slowest one in milliseconds
   */
  def feed(target: String, folder: String, inputs: Array[Byte]): String = {
    val decode = targets(target, Paths.get(folder))
    val in = ByteBuffer.wrap(inputs)
    var (decoded, index, slowest) = (0, 0, 0L)
    val refused = mutable.Map.empty[String, Int].withDefaultValue(0)
    val failures = mutable.Buffer.empty[(Int, String)]
    while (in.hasRemaining) {
      val input = new Array[Byte](in.getInt())
      in.get(input)
      val began = System.nanoTime()
      try {
        decode(input)
        decoded += 1
      } catch {
        case e: BinshiftException => refused(if (e.condition.isEmpty) e.kind else e.condition) += 1
        case _: DamagedShipment => refused("DamagedShipment") += 1
        case _: Manifest.Unknown => refused("Manifest.Unknown") += 1
        case e: Throwable => failures += index -> traceOf(e)
      }
      slowest = math.max(slowest, System.nanoTime() - began)
      index += 1
    }
    compact(render(("decoded" -> decoded) ~ ("refused" -> refused.toMap) ~ ("slowest_ms" -> slowest / 1000000) ~
        ("failures" -> failures.map { case (at, trace) => ("index" -> at) ~ ("trace" -> trace) })))
  }

  private def targets(name: String, folder: LocalPath): Array[Byte] => Any = name match {
    case "shipment" => readChunk
    // The checksums are corrected, so that the decoding after them is fed, too.
    case "shipment with its checksum" => bytes => readChunk(withSum(bytes))
    case "marker" => bytes => ShipmentMarker.read(bytes, 4)
    case "manifest" => Manifest.parse
    case "manifest with its checksums" => bytes => {
        val manifest = Manifest.parse(withSums(bytes))
        manifest.without(manifest.files.keySet)
      }
    case "key" => bytes =>
        Seq("default", "$ttl_x").foreach { family =>
          val codec = BinKeyCodec.of(family)
          codec.encode(codec.binOf(bytes), codec.stripBin(bytes))
        }
    case file => ofFile(folder, file)
  }

  private def readChunk(bytes: Array[Byte]): Any =
    ShipmentFormat.read(bytes, Base, 0)((_, _) => ())((_, _, _, _) => ())

  private def withSum(bytes: Array[Byte]): Array[Byte] =
    if (bytes.length < 8) bytes
    else {
      val crc = new CRC32C
      crc.update(bytes, 8, bytes.length - 8)
      ByteBuffer.wrap(bytes.clone()).putLong(0, crc.getValue).array
    }

  private def withSums(bytes: Array[Byte]): Array[Byte] = {
    val out = ByteBuffer.wrap(bytes.clone()).order(java.nio.ByteOrder.LITTLE_ENDIAN)
    var at = 0
    while (at + 7 <= bytes.length) {
      val end = math.min(bytes.length, at + 7 + (out.getShort(at + 4) & 0xffff))
      val crc = new CRC32C
      crc.update(bytes, at + 6, end - at - 6)
      val value = crc.getValue.toInt
      out.putInt(at, ((value >>> 15) | (value << 17)) + 0xa282ead8)
      at = end
    }
    out.array
  }

  private def ofFile(folder: LocalPath, name: String): Array[Byte] => Any = {
    val dir = ControlDir.of(new Path(folder.toUri), new Configuration)
    val file = folder.resolve(if (name == "commits") s"commits/${Epoch - 1}" else s"binshift/$name")
    val read: () => Any = name.split('/') match {
      case Array("layout.json") => () => Layout.read(dir)
      case Array("runs.json") => () => RunHistory.read(dir).runs.toList
      case Array("runs", n) => () => RunHistory.readClaim(dir, n.toLong)
      case Array("shipping.json") => () => ShippingOrder.read(dir).foreach(o => (o.leaving(1), o.arriving(1)))
      case Array("routing", _) =>
        () => new RoutingLog(dir).read(EntryName(Epoch, EntryName.Unknown)).map(e => (e.table.sizes, e.table.binsOf, e.name))
      case Array("changed_keys", _) => () => ChangedKeys.read(dir)
      case Array("commits") => () => CheckpointIds.read(dir, Epoch)
      case _ => TestFuzzFiles.reader(dir, name)
    }
    bytes => {
      Files.write(file, bytes)
      read()
    }
  }

  private def traceOf(e: Throwable): String = {
    val out = new StringWriter
    e.printStackTrace(new PrintWriter(out))
    out.toString.take(4000)
  }
}
