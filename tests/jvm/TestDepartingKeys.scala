package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{DepartingKeys, KeyBudget}

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

  private def shown(keys: DepartingKeys, before: Seq[Array[Byte]] = Nil): String = keys.take().fold("too many")(since =>
    (before ++ since.getOrElse("timers", Nil)).map(new String(_).toInt).distinct.sorted.mkString(" "))

  private def key(number: Int): Array[Byte] = number.toString.getBytes
}
