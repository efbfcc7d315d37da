package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.util.concurrent.{ConcurrentLinkedQueue, CountDownLatch}
import java.util.concurrent.TimeUnit.SECONDS

import scala.jdk.CollectionConverters._

/** Results that are computed ahead, while all threads for that are busy. */
object TestAhead {

  /** The results of jobs 0 to 9 while the jobs of four other readers hang, and then those of the released jobs. */
  def besideOthersThatHang(): Seq[Seq[Int]] = {
    val goOn = new CountDownLatch(1)
    val begun = new CountDownLatch(8)
    val released = new ConcurrentLinkedQueue[Int]()
    val others = Seq.fill(4)(new Ahead[Int](Iterator.fill(4) { () =>
          begun.countDown()
          goOn.await()
          1
        }, r => { released.add(r); () }))
    require(begun.await(60, SECONDS), "not all threads are taken")
    val reader = new Ahead[Int]((0 until 10).iterator.map(i => () => i), _ => ())
    val read = Iterator.continually(()).takeWhile(_ => reader.hasNext).map(_ => reader.next()).toSeq
    others.foreach(_.close())
    goOn.countDown()
    val deadline = System.nanoTime() + 60000000000L
    // Jobs that had not begun produce nothing.
    while (released.size < 8 && System.nanoTime() < deadline) Thread.sleep(10)
    Seq(read, released.asScala.toSeq)
  }
}
