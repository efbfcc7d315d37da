package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.Layout
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingHint, RoutingTable}

/**
 * What the router hands to the rule: the facts and the table of the epoch that is being planned.
 *
 * @param arriving bins that have a new owner at this epoch; none, for all it matters, at the first of a run
 * @param isStepNext whether the next epoch has another table
 * @param onTheWay bins that have had a new owner since an epoch before, or get one, and may come to it on demand
 */
private[binshift] final case class Epoch(
    layout: Layout, table: RoutingTable, arriving: Set[Int], onTheWay: Set[Int], hint: RoutingHint, shippingHint: String,
    isStepNext: Boolean)
