package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import org.apache.spark.sql.execution.streaming.state.RocksDBFileMapping

/** Files of a store's checkpoint that this executor has already. Files that are missing here, or can't be used, are fetched. */
private[binshift] trait FilesHere {

  /** Called when the store is about to be loaded from the checkpoint; `None` if there are no files. May ask the checkpoint. */
  def begin(): Option[FilesHere.Loading]
}

private[binshift] object FilesHere {

  /** Used by the thread that loads the store, until it is closed. */
  trait Loading {
    /** Links files of snapshots up to `version`, which is being loaded, into `into`, as if Spark had fetched them. Returns them. */
    def link(into: File, mapping: RocksDBFileMapping, version: Long): Seq[File]

    /** A directory with the changelog of a version, in the same form and with the same name as in the checkpoint. */
    def changelog(version: Long, id: Option[String]): Option[File]

    /** Ends the load; `isOk` is false if it failed, perhaps because of these files. */
    def close(isOk: Boolean): Unit
  }
}
