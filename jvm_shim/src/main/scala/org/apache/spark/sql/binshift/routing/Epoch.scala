package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.Layout
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingHint, RoutingTable}

/**
 * The layout and the routing table of the epoch that is being planned, as the router gives them to the rule.
 *
 * @param arriving bins that have a new owner at this epoch; empty at the first epoch of a run, where it doesn't matter
 * @param isStepNext whether the next epoch has another table
 * @param onTheWay bins that got a new owner at this epoch or earlier, and may still come to it on demand
 */
private[binshift] final case class Epoch(
    layout: Layout, table: RoutingTable, arriving: Set[Int], onTheWay: Set[Int], hint: RoutingHint, shippingHint: String,
    isStepNext: Boolean)
