package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.io.File
import java.nio.file.{Files, Path}

import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}

/** Random records of a changelog that are held until they are needed. */
object TestHeldChanges {
  private val Kinds = Seq(RecordType.PUT_RECORD, RecordType.MERGE_RECORD, RecordType.DELETE_RECORD)

  /** How many come out, whether they are those that went in, whether some were in a file; files while they are held, and after. */
  def held(directory: String, seed: Long, records: Int, maxBytes: Long): Array[Long] = {
    val random = new Random(seed)
    val families = Seq("default", "$other", "third").zipWithIndex.map { case (name, i) =>
      NumberedFamily(ColumnFamily(name, name.startsWith("$")), Some(i.toShort))
    }
    val changes = Vector.fill(records) {
      val kind = Kinds(random.nextInt(Kinds.size))
      Change(kind, families(random.nextInt(families.size)), random.nextBytes(random.nextInt(40)),
        if (kind == RecordType.DELETE_RECORD) null else random.nextBytes(random.nextInt(300)))
    }
    val file = new File(Files.createDirectories(Path.of(directory)).toFile, "held")
    def files: Long = file.getParentFile.list.length
    val held = HeldChanges.of(changes.iterator, file, maxBytes)
    val during = files
    val out = Vector.newBuilder[Change]
    held.foreach(out += _)
    held.close()
    val isSame = out.result().map(form) == changes.map(form)
    Array(out.result().size, if (isSame) 1 else 0, if (held.isInFile) 1 else 0, during, files)
  }

  private def form(change: Change): Seq[Any] =
    Seq(change.kind, change.family, change.key.toSeq, Option(change.value).map(_.toSeq))
}
