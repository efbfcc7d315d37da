package org.apache.spark.sql.binshift

import scala.collection.immutable.ArraySeq

import org.json4s._
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.sql.binshift.migration.PlacementSnapshot
import org.apache.spark.sql.binshift.planning.{BalancedTable, PartitionPlaces, Strategy}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable

/** The JVM's plans for the cases of tests/golden_plans.py, in the same form. */
object TestPlanning {
  private implicit val formats: Formats = DefaultFormats

  def planned(cases: String): String = answers(cases) { c =>
    try {
      val source =
        RoutingTable((c \ "partitions").extract[Int], ArraySeq.unsafeWrapArray((c \ "assignment").extract[Array[Int]]))
      val strategy = (c \ "strategy").extractOpt[String].fold(Strategy.default(source))(Strategy.parse)
      strategy.plan(source, BalancedTable.of(source, (c \ "to").extract[Int]), (c \ "gap").extract[Int]).toJson(0)
    } catch {
      case e: BinshiftException => ("condition" -> e.condition) ~ ("name" -> (e.json \ "name"))
    }
  }

  def placed(cases: String): String = answers(cases) { c =>
    val places = PartitionPlaces(PlacementSnapshot((c \ "executors").extract[Seq[String]],
        (c \ "partitions").extract[Seq[Seq[String]]], (c \ "decommissioned").extract[Seq[String]],
        (c \ "leaving").extract[Seq[String]], Nil))
    val rejoined = places.rejoined
    val placeOn = (c \ "place_on").extract[Seq[String]]
    val drained: JValue =
      try json(places.drained((c \ "drained").extract[String], placeOn))
      catch { case e: BinshiftException => JString(e.condition) }
    ("idle" -> rejoined.idle) ~ ("with_idle" -> rejoined.partitionsWithIdle(64)) ~
      ("spread" -> json(rejoined.spread((c \ "loads").extract[Seq[Int]], placeOn.filter(places.now.executors.contains)))) ~
      ("drained" -> drained)
  }

  private def json(places: Map[Int, String]): JValue =
    JObject(places.toList.sortBy(_._1).map { case (p, executor) => JField(p.toString, JString(executor)) })

  private def answers(cases: String)(of: JValue => JValue): String =
    compact(render(JArray(parse(cases).children.map(of))))
}
