package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.execution.streaming.state.{StateStoreIterator, UnsafeRowPair}

/**
 * A scan of a store that waits for all bins when it is read first, and not when it is asked for: Spark's deduplication asks for
 * one in each epoch, and reads it only if the event time is in its key.
 *
 * Nothing is open before the first read. So there is nothing to close of a scan that nobody reads, when its task ends, and the
 * store may be committed or given up above it. A scan that is read after that fails, since Spark's store refuses to open it.
 *
 * May be closed by another thread than the one that reads, also while that one waits.
 *
 * @param open    opens Spark's scan; fails if the store is not in use any more
 * @param waitAll returns when all bins are here
 */
private[binshift] final class WaitingScan(open: () => StateStoreIterator[UnsafeRowPair], waitAll: () => Unit)
  extends Iterator[UnsafeRowPair] {

  private var isClosed = false
  private var rows: StateStoreIterator[UnsafeRowPair] = _

  override def hasNext: Boolean = opened.hasNext

  override def next(): UnsafeRowPair = opened.next()

  def close(): Unit = synchronized {
    isClosed = true
    if (rows != null) rows.close()
  }

  private def opened: StateStoreIterator[UnsafeRowPair] = {
    if (rows == null) {
      // Bins are not brought into a store that was committed meanwhile, since another task may have it.
      unlessClosed { open().close() }
      waitAll()
      unlessClosed { rows = open() }
    }
    rows
  }

  private def unlessClosed(body: => Unit): Unit = synchronized {
    if (isClosed) throw new IllegalStateException("a scan was read that had been closed")
    body
  }
}
