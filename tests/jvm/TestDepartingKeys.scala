package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Delivery, Move, ShippedBin, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{DepartingKeys, DepartingRows, KeyBudget}

/** Plays histories of writes for the tests. */
object TestDepartingKeys {

  /**
   * Plays `history`: `+k` and `-k` write and remove the key of number `k`, `c` commits, `l` loads the last commit again, and
   * `s` does so and has the keys so far told. What comes out are all numbers, separated by spaces; "too many" if they were.
   */
  def play(history: String): String = {
    val keys = new DepartingKeys(new KeyBudget(Long.MaxValue))
    var soFar = Seq.empty[Array[Byte]]
    history.split(' ').filter(_.nonEmpty).foreach {
      case "c" => keys.onCommit()
      case "l" => keys.onLoad()
      case "s" =>
        keys.onLoad()
        soFar ++= keys.takeSoFar().getOrElse("timers", Nil)
      case write if write.head == '+' => keys.put("timers", key(write.tail.toInt))
      case write => keys.remove("timers", key(write.tail.toInt))
    }
    shown(keys, soFar)
  }

  /**
   * The same for `n` keys that are written one after the other, with room for some; each is removed again if `areRemoved`, in a
   * version of its own. Then another store writes one, with the room that is left.
   */
  def playMany(n: Int, areRemoved: Boolean): String = {
    val budget = new KeyBudget(n * 20)
    val (keys, others) = (new DepartingKeys(budget), new DepartingKeys(budget))
    (0 until n).foreach { i =>
      keys.put("timers", key(i))
      if (areRemoved) {
        keys.remove("timers", key(i))
        keys.onCommit()
      }
    }
    others.put("timers", key(0))
    val all = s"${shown(keys)}/${shown(others)}"
    require(budget.reserved == 0, budget.reserved)
    all
  }

  /** A bin leaves in two orders with the same step, and one of its keys is written; returns the keys that each order knows. */
  def playTwoOrders(): String = {
    val move = Move(0, 0, 1)
    val ofOrders = Seq(1L, 2L).map { base =>
      val order = ShippingOrder(s"$base", base, base, 0, IndexedSeq(Seq(move)), Delivery.Ahead)
      new DepartingRows(order, Seq(ShippedBin(move.bin, 0)))
    }
    ofOrders.head.onCommit(2)
    DepartingRows.fed(ofOrders).foreach(_.addKey(move.bin, "timers", key(7), 1))
    ofOrders.foreach(_.onCommit(3))
    ofOrders.map(_.takeKeysSince(0, 3).fold("unknown")(shown(_, Nil))).mkString("/")
  }

  private def shown(keys: DepartingKeys, before: Seq[Array[Byte]] = Nil): String = keys.take().fold("too many")(shown(_, before))

  private def shown(keys: Map[String, Iterable[Array[Byte]]], before: Seq[Array[Byte]]): String =
    (before ++ keys.getOrElse("timers", Nil)).map(new String(_).toInt).distinct.sorted.mkString(" ")

  private def key(number: Int): Array[Byte] = number.toString.getBytes
}
