package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.execution.streaming.state.binshift.routing.{AuditSample, RoutingTable}

/** Parts of audits, for tests in Python. */
object TestAudits {
  /** The key that differs first, or an empty text. Rows are written as `family/key=number`, in their order, with blanks between them. */
  def firstDifference(noted: String, committed: String): String = {
    val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)
    rows(noted).foreach(_.write(out))
    val comparison = new RowComparison(NotedRow.read(new DataInputStream(new ByteArrayInputStream(bytes.toByteArray))))
    rows(committed).foreach(comparison.next)
    comparison.difference.fold("")(row => s"${row.family}/${new String(row.key, UTF_8)}")
  }

  private def rows(text: String): Seq[NotedRow] = text.split(' ').toSeq.filter(_.nonEmpty).map { row =>
    val Array(family, key, value) = row.split("[/=]")
    new NotedRow(family, key.getBytes(UTF_8), (value.toLong, 7L))
  }

  /** The bins that are drawn if `moved` of `bins` move. */
  def sample(bins: Int, moved: Int, epoch: Long, n: Int): Array[Int] = {
    def table(owner: Int => Int) = RoutingTable(2, scala.collection.immutable.ArraySeq.tabulate(bins)(owner))
    AuditSample.of(table(_ => 0), table(bin => if (bin < moved) 1 else 0), epoch, n).toArray.sorted
  }
}
