package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.execution.streaming.state.{StateStoreIterator, UnsafeRowPair}

/**
 * A scan of a store that waits for all bins when it is first read, and not when it is opened. Spark's deduplication opens a scan in each
 * epoch, but reads it only if the event time is in its key.
 *
 * Nothing is open before the first read. So a scan that nobody reads doesn't have to be closed when its task ends, and the store may
 * be committed or aborted before. If the scan is read after that, it fails, because Spark's store refuses to open it.
 *
 * May be closed by another thread than the one that reads, even while that one waits.
 *
 * @param open    opens Spark's scan; fails if the store is no longer in use
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
      // Bins must not be brought into a store that was committed meanwhile, because another task may use it.
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
