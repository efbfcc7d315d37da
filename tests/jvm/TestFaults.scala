package org.apache.spark.sql.execution.streaming.state.binshift

import java.nio.file.{Files, Path, Paths, StandardOpenOption}
import java.util.concurrent.{ConcurrentHashMap, ThreadLocalRandom}

import org.apache.spark.{MapOutputTrackerMaster, SparkEnv}
import org.apache.spark.shuffle.FetchFailedException

/**
 * Faults that a test lays in wait as files, `<point>.<action>`, in the directory that
 * `spark.binshift.tests.faults` names. The first to come by takes the file away, so that a fault
 * happens once, in whatever JVM; a file that ends in `.always` stays. `stop` is SIGSTOP to the JVM. At a turnstile, one goes on for
 * each `<point>.pass`. At a point that is `slow`, each stays for up to half a second. A file `<point>.count` has a byte for each that
 * came by. Of the rows at a point, of which there are many, only one in ten milliseconds looks. The name of a point with `.` and a partition
 * stands for what that partition does there.
 */
final class TestFaults extends Faults {
  private val dir = Paths.get(SparkEnv.get.conf.get("spark.binshift.tests.faults"))

  override def at(point: String, partition: Int): Unit = {
    at(point)
    if (partition != Faults.AnyPartition) at(s"$point.$partition")
  }

  private def at(point: String): Unit = {
    if (Files.exists(file(point, "count"))) Files.write(file(point, "count"), Array[Byte](0), StandardOpenOption.APPEND)
    if (isArmed(point, "kill")) Runtime.getRuntime.halt(9)
    if (isArmed(point, "stop")) new ProcessBuilder("kill", "-STOP", ProcessHandle.current.pid.toString).start().waitFor()
    if (isArmed(point, "interrupt")) {
      Thread.currentThread.interrupt()
      throw new java.io.IOException(s"$point is interrupted on purpose")
    }
    if (isArmed(point, "throw")) throw new java.io.IOException(s"$point fails on purpose")
    if (isArmed(point, "die")) throw new LinkageError(s"$point ends its thread on purpose")
    if (isArmed(point, "lose")) throw lostInput()
    if (Files.exists(file(point, "slow"))) Thread.sleep(ThreadLocalRandom.current.nextInt(500))
    while (Files.exists(file(point, "block"))) Thread.sleep(10)
    while (Files.exists(file(point, "turnstile")) && !Files.deleteIfExists(file(point, "pass"))) Thread.sleep(10)
  }

  override def change(point: String, bytes: Array[Byte]): Array[Byte] =
    if (point.endsWith(".row") && !mayLook(point)) bytes
    else if (isArmed(point, "damage")) bytes.updated(bytes.length / 2, (bytes(bytes.length / 2) + 1).toByte)
    else if (isArmed(point, "cut")) bytes.take(bytes.length / 2)
    else bytes

  /** Behaves as if the input that a task of the newest shuffle reads were gone; in local mode. */
  private def lostInput(): Exception = {
    val shuffles = SparkEnv.get.mapOutputTracker.asInstanceOf[MapOutputTrackerMaster].shuffleStatuses.keys
    new FetchFailedException(null, shuffles.max, -1L, -1, 0, "lost on purpose")
  }

  private val lookedAt = new ConcurrentHashMap[String, Long]

  private def mayLook(point: String): Boolean = {
    val now = System.nanoTime()
    val isDue = now - lookedAt.getOrDefault(point, 0L) > 10000000L
    if (isDue) lookedAt.put(point, now)
    isDue
  }

  private def isArmed(point: String, action: String): Boolean =
    Files.exists(file(point, s"$action.always")) || Files.deleteIfExists(file(point, action))

  private def file(point: String, action: String): Path = dir.resolve(s"$point.$action")
}
