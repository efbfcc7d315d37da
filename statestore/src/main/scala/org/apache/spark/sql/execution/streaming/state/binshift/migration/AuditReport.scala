package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

/**
 * A store's report on the audit of some of its bins.
 *
 * Messages are arrays of bytes, because the driver's network layer may not see the classes of a jar that was added later.
 *
 * @param epoch the epoch of the step with which the bins came
 */
private[sql] final case class AuditReport(
    runId: String, epoch: Long, operator: Long, store: String, executor: String, bins: Seq[Int], outcome: AuditOutcome) {
  import AuditOutcome._

  def toBytes: Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    val out = new DataOutputStream(bytes)
    Seq(runId, store, executor).foreach(out.writeUTF)
    Seq(epoch, operator).foreach(out.writeLong)
    out.writeInt(bins.size)
    bins.foreach(out.writeInt)
    outcome match {
      case Begun => out.writeByte(0)
      case Equal => out.writeByte(1)
      case Dropped(reason) =>
        out.writeByte(2)
        out.writeUTF(reason)
      case Differs(bin, key) =>
        out.writeByte(3)
        out.writeInt(bin)
        out.writeUTF(key)
    }
    bytes.toByteArray
  }
}

private[sql] object AuditReport {
  /** Name of the driver's endpoint, which answers each report with an empty array. */
  val EndpointName = "binshift-audits"

  def parse(bytes: Array[Byte]): AuditReport = {
    val in = new DataInputStream(new ByteArrayInputStream(bytes))
    val (run, store, executor) = (in.readUTF(), in.readUTF(), in.readUTF())
    AuditReport(run, in.readLong(), in.readLong(), store, executor, Seq.fill(in.readInt())(in.readInt()),
      in.readByte() match {
        case 0 => AuditOutcome.Begun
        case 1 => AuditOutcome.Equal
        case 2 => AuditOutcome.Dropped(in.readUTF())
        case 3 => AuditOutcome.Differs(in.readInt(), in.readUTF())
      })
  }
}

private[sql] sealed trait AuditOutcome

private[sql] object AuditOutcome {
  case object Begun extends AuditOutcome

  /** All rows are the ones that the old owner had committed. */
  case object Equal extends AuditOutcome

  /** The bins can't be audited any more. */
  final case class Dropped(reason: String) extends AuditOutcome

  /** @param key the first key whose row differs, is missing or is unexpected, with its column family */
  final case class Differs(bin: Int, key: String) extends AuditOutcome
}
