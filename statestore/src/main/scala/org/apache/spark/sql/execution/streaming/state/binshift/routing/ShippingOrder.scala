package org.apache.spark.sql.execution.streaming.state.binshift.routing

import org.json4s.{DefaultFormats, Formats, JValue}

import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.ControlDir
import org.json4s.JsonDSL._

/**
 * Says what should be shipped: the moves of some steps of a migration, as copies of version `base`. It is the content of
 * `shipping.json`, where executors read it. The driver announces an order with each epoch. While it does, sources export and targets
 * stage; once an order is no longer announced, both forget it.
 *
 * Invariants: no bin moves twice in an order, and each is at its source from `base` until its step.
 *
 * @param id        unique among all orders
 * @param broadcast number of a Spark broadcast. The shipments are its blocks, so destroying the broadcast removes what is left of
 *                  them from all executors.
 * @param firstStep  position of the first of `steps` in the migration's plan
 * @param delivery  how the bins come to their new owners. Unless they are copied ahead, the moves take effect at `base`.
 */
private[sql] final case class ShippingOrder(
    id: String, broadcast: Long, base: Long, firstStep: Int, steps: IndexedSeq[Seq[Move]],
    delivery: Delivery) {

  def isAhead: Boolean = delivery == Delivery.Ahead

  def isOnDemand: Boolean = delivery == Delivery.OnDemand

  /** True if the epoch `base` waits for the bins. */
  def isAtSwitch: Boolean = !isAhead && !isOnDemand

  /**
   * True if the switch at `version` may use bins of this order. If the order's bins aren't copied ahead, only the switch at its base
   * may: whatever a store has of them later is out of date, even if the same bins move between the same partitions again.
   */
  def serves(version: Long): Boolean = isAhead || version == base

  /** Maps partitions to the one with whose files they begin. */
  def splits: Map[Int, Int] = delivery match {
    case Delivery.WholeFiles(begun) => begun
    case _ => Map.empty
  }

  /** The bins that leave `partition`, with their steps, by the partition that they go to. */
  def leaving(partition: Int): Map[Int, Seq[ShippedBin]] = shipped(_.source == partition, _.target)

  /** The bins that arrive at `partition`, with their steps, by the partition that they come from. */
  def arriving(partition: Int): Map[Int, Seq[ShippedBin]] = shipped(_.target == partition, _.source)

  /** The same order without the bins that come with whole files. */
  def byRows: ShippingOrder = if (splits.isEmpty) this else copy(steps = steps.map(_.filterNot(isSplit)))

  /** For each partition that begins with the files of `partition`, the bins with which it begins. */
  def splitsOf(partition: Int): Map[Int, Seq[Int]] =
    steps.flatten.filter(m => m.source == partition && isSplit(m)).groupMap(_.target)(_.bin)

  /** The partition with whose files `partition` begins, and the bins with which it begins. */
  def splitTo(partition: Int): Option[(Int, Seq[Int])] = splits.get(partition).map { source =>
    source -> steps.flatten.filter(m => m.target == partition && m.source == source).map(_.bin)
  }

  private def isSplit(move: Move): Boolean = splits.get(move.target).contains(move.source)

  def covers(step: Int): Boolean = step >= firstStep && step < firstStep + steps.size

  private def shipped(isMine: Move => Boolean, peer: Move => Int): Map[Int, Seq[ShippedBin]] =
    steps.zipWithIndex.flatMap { case (moves, i) =>
      moves.filter(isMine).map(m => peer(m) -> ShippedBin(m.bin, if (isOnDemand) m.bin else firstStep + i))
    }.groupMap(_._1)(_._2)
}

/** @param step the step with which the bin moves, or the bin's own number if it comes on demand */
private[binshift] final case class ShippedBin(bin: Int, step: Int)

private[sql] object ShippingOrder {
  val File = "shipping.json"
  private val FormatVersion = 2

  def read(dir: ControlDir): Seq[ShippingOrder] = dir.decoded(File)(fromJson).getOrElse(Nil)

  private def fromJson(json: JValue): Seq[ShippingOrder] = {
    implicit val formats: Formats = DefaultFormats
    ControlDir.requireFormat(json, File, FormatVersion, advice = ", or delete it")
    (json \ "orders").children.map { o =>
      ShippingOrder((o \ "id").extract[String], (o \ "broadcast").extract[Long],
        (o \ "base").extract[Long], (o \ "first_step").extract[Int],
        (o \ "steps").children.map(_.children.map { m =>
          val numbers = m.extract[Array[Int]]
          Move(numbers(0), numbers(1), numbers(2))
        }).toIndexedSeq, delivery(o))
    }
  }

  private def delivery(order: JValue)(implicit formats: Formats): Delivery = {
    val splits = (order \ "splits").children.map(_.extract[Array[Int]]).map(pair => pair(0) -> pair(1)).toMap
    val name = (order \ "delivery").extract[String]
    Delivery.of(name, splits).getOrElse(throw new IllegalArgumentException(s"no delivery is called '$name'"))
  }

  def write(dir: ControlDir, orders: Seq[ShippingOrder]): Unit =
    if (orders.isEmpty) dir.delete(File)
    else dir.write(File, ("format" -> FormatVersion) ~ ("orders" -> orders.map(toJson)))

  private def toJson(o: ShippingOrder): JValue =
    ("id" -> o.id) ~ ("broadcast" -> o.broadcast) ~ ("base" -> o.base) ~ ("first_step" -> o.firstStep) ~
      ("delivery" -> o.delivery.name) ~
      ("steps" -> o.steps.map(_.map(m => List(m.bin, m.source, m.target)).toList).toList) ~
      ("splits" -> o.splits.toList.sorted.map { case (target, source) => List(target, source) })
}

/**
 * Announces an order in force. The jobs of an epoch carry it.
 *
 * @param next  the step that is waited for
 * @param isDue whether that step takes effect at the epoch after this one
 */
private[sql] final case class ShippingHint(order: String, next: Int, isDue: Boolean)

private[sql] object ShippingHint {
  def render(runId: String, epoch: Long, hints: Seq[ShippingHint]): String =
    (s"$runId:$epoch" +: hints.map(h => s"${h.order}:${h.next}:${h.isDue}")).mkString(";")

  /** Parses the hints; `None` if the text is for another run or epoch. */
  def parse(text: String, runId: String, epoch: Long): Option[Seq[ShippingHint]] = text.split(';').toSeq match {
    case where +: hints if where == s"$runId:$epoch" =>
      Some(hints.map(_.split(':')).collect {
        case Array(order, next, isDue) => ShippingHint(order, next.toInt, isDue.toBoolean)
      })
    case _ => None
  }
}
