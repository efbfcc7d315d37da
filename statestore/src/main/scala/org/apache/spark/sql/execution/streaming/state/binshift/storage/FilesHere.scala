package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import org.apache.spark.sql.execution.streaming.state.RocksDBFileMapping

/** Files of a store's checkpoint that this executor has already. Whatever is not here, or not usable, is fetched. */
private[binshift] trait FilesHere {

  /** What is here when the store is about to be loaded from the checkpoint; `None` if nothing is. May ask the checkpoint. */
  def begin(): Option[FilesHere.Loading]
}

private[binshift] object FilesHere {

  /** Used by the thread that loads the store, until it is closed. */
  trait Loading {
    /** Puts files of snapshots up to `version`, which is loaded, into `into`, as if Spark had fetched them; which. */
    def link(into: File, mapping: RocksDBFileMapping, version: Long): Seq[File]

    /** A directory with the changelog of a version, in the form and under the name that it has in the checkpoint. */
    def changelog(version: Long, id: Option[String]): Option[File]

    /** The load is over; `isOk` unless it failed, perhaps by what is here. */
    def close(isOk: Boolean): Unit
  }
}
