package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowsByBin

/**
 * Files of one step's bins from one source.
 *
 * @param base    rows of the base version; no two of the files overlap
 * @param changes what changed since; later files win over earlier ones
 * @param rows    how many rows they add to each bin
 * @param version version of the source that the files are equal to
 */
private[binshift] final case class TakenCopy(
    base: Seq[File], changes: Seq[File], rows: RowsByBin, version: Long)
