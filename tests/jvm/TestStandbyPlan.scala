package org.apache.spark.sql.binshift.migration

import scala.util.Random

/** The places of standbys of a query with a thousand partitions. */
object TestStandbyPlan {
  private val Partitions = 1000
  private val Executors = 200

  /** Plans `count` standbys for each partition; returns `null`, or what is wrong. */
  def check(count: Int): String = {
    val hosts = (0 until Executors).map(e => s"$e" -> s"host${e / 4}").toMap
    val random = new Random(count)
    val primaries = (0 until Partitions).map(p => Set(s"${random.nextInt(Executors)}", s"${p % Executors}").take(1 + p % 2))
    val plan = StandbyPlan.of(primaries, Map.empty, hosts, count)
    val gone = "17"
    val left = StandbyPlan.of(primaries.map(_ - gone).map(on => if (on.isEmpty) Set("3") else on), plan, hosts - gone, count)
    val joined = StandbyPlan.of(primaries, plan, hosts + ("new" -> "another"), count)
    val came = joined.values.flatten.count(_ == "new")
    val moved = plan.count { case (p, on) => on.exists(e => e != gone && !left(p).contains(e)) }
    val wrong = plan.collectFirst {
      case (p, on) if on.size != count => s"partition $p has $on"
      case (p, on) if on.exists(primaries(p)) => s"partition $p runs on $on"
      case (p, on) if on.map(hosts).exists(primaries(p).map(hosts)) => s"partition $p is on a host with its standby"
      case (p, on) if on.map(hosts).distinct.size < count => s"partition $p has both standbys on one host"
    }
    val loads = plan.values.flatten.groupBy(identity).values.map(_.size)
    wrong.orElse(Option.when(loads.max - loads.min > 1)(s"executors have ${loads.min} to ${loads.max}"))
      .orElse(Option.when(again(primaries, plan, hosts, count) != plan)("the same again moves something"))
      .orElse(Option.when(moved > Partitions / 10)(s"$moved standbys moved because one executor is gone"))
      .orElse(Option.when(came < Partitions * count / Executors - 1)(s"one that joined gets $came"))
      .orElse(Option.when(joined.count { case (p, on) => on != plan(p) } > came)("others move because one has joined"))
      .orElse(Option.when(left.values.flatten.exists(_ == gone))("one is where nobody is")).orNull
  }

  /** A machine with two executors and one with a single executor; each standby has a place. */
  def ofFew(): java.util.Map[Int, String] = {
    val hosts = Map("a" -> "1", "b" -> "1", "c" -> "2")
    val plan = StandbyPlan.of(IndexedSeq(Set("a"), Set("b"), Set("c"), Set("a"), Set.empty), Map.empty, hosts, 1)
    val found = new java.util.HashMap[Int, String]
    plan.foreach { case (p, on) => found.put(p, on.mkString(",")) }
    found
  }

  private def again(
      primaries: IndexedSeq[Set[String]], plan: Map[Int, Seq[String]], hosts: Map[String, String], count: Int) =
    StandbyPlan.of(primaries, plan, hosts, count)
}
