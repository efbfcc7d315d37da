package binshift.tests

import java.lang.management.ManagementFactory
import java.net.URI
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.{FileStatus, FSDataInputStream, Path, RawLocalFileSystem}

/**
 * Local files under the scheme `silent`, which stop answering. A request that binshift makes from a place in its code for the
 * first time hangs until the test releases it. The place is given by the outermost frames of binshift on the stack.
 *
 * Records for each place which locks the thread holds meanwhile.
 */
class TestSilentFiles extends RawLocalFileSystem {
  override def getScheme: String = "silent"
  override def getUri: URI = URI.create("silent:///")

  override def open(f: Path, bufferSize: Int): FSDataInputStream = {
    TestSilentFiles.ask()
    super.open(f, bufferSize)
  }

  override def listStatus(f: Path): Array[FileStatus] = {
    TestSilentFiles.ask()
    super.listStatus(f)
  }

  override def getFileStatus(f: Path): FileStatus = {
    TestSilentFiles.ask()
    super.getFileStatus(f)
  }
}

object TestSilentFiles {
  /** The number of outermost frames that tell from where binshift was called, and for what. */
  private val Frames = 4
  private val places = ConcurrentHashMap.newKeySet[String]()
  private val locks = ConcurrentHashMap.newKeySet[String]()
  @volatile private var hanging = Option.empty[String]
  private var isArmed = false

  /** From now on, each place hangs once. */
  def arm(): Unit = synchronized {
    places.clear()
    locks.clear()
    isArmed = true
  }

  /** The place where a request hangs; null if none does. */
  def place: String = hanging.orNull

  def goOn(): Unit = synchronized {
    hanging = None
    notifyAll()
  }

  def disarm(): Unit = synchronized {
    isArmed = false
    goOn()
  }

  /** The locks that were held during requests, as `class at frame`. */
  def held: java.util.List[String] = locks.asScala.toSeq.sorted.asJava

  private def ask(): Unit = {
    val frames = Thread.currentThread.getStackTrace.toSeq.drop(2)
    val ours = frames.filter(_.getClassName.contains(".binshift."))
    if (ours.nonEmpty) {
      val names = ours.map(f => s"${f.getClassName.split('.').last}.${f.getMethodName}").filterNot(_.contains("$anonfun"))
      val place = names.distinct.takeRight(Frames).mkString(" < ")
      synchronized {
        if (isArmed) {
          note(names.mkString(" < "))
          // One at a time: tasks that hang would take all cores, as they do with Spark's provider.
          if (hanging.isEmpty && places.add(place)) {
            hanging = Some(place)
            while (hanging.contains(place)) wait()
          }
        }
      }
    }
  }

  private def note(place: String): Unit = {
    val me = ManagementFactory.getThreadMXBean.getThreadInfo(Array(Thread.currentThread.getId), true, true).head
    val names = me.getLockedMonitors.toSeq.map(m => m.getClassName) ++ me.getLockedSynchronizers.toSeq.map(_.getClassName)
    names.distinct.filterNot(_.contains("TestSilentFiles")).foreach(name => locks.add(s"$name: $place"))
  }
}
