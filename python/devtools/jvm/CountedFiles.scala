package binshift.devtools

import java.io.{IOException, OutputStream}
import java.net.URI
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.atomic.AtomicLong
import java.util.concurrent.locks.LockSupport

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs._
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/**
 * Local files behind the requests of an object store: each call takes a time of its own, each stream has a bandwidth,
 * and all calls are counted (see [[CountedRequests]]). For `fs.counted.impl`, for paths such as `counted:///tmp/x`.
 *
 * A call of Hadoop's interface is one request here. A store may make more of it: S3A renames by a copy and a delete.
 */
class CountedFiles extends QuickRawFiles {
  override def getUri: URI = CountedFiles.Root
  override def getScheme: String = CountedFiles.Root.getScheme

  override def open(f: Path, bufferSize: Int): FSDataInputStream =
    CountedRequests.of("GET", f)(request => new FSDataInputStream(new PacedInput(super.open(f, bufferSize), request)))

  override def create(
      f: Path, overwrite: Boolean, bufferSize: Int, replication: Short, blockSize: Long,
      progress: Progressable): FSDataOutputStream = CountedRequests.of("PUT", f) { request =>
    CountedRequests.requireTaken(f)
    new FSDataOutputStream(
      new PacedOutput(super.create(f, overwrite, bufferSize, replication, blockSize, progress), request), null)
  }

  override def create(
      f: Path, permission: FsPermission, overwrite: Boolean, bufferSize: Int, replication: Short, blockSize: Long,
      progress: Progressable): FSDataOutputStream = create(f, overwrite, bufferSize, replication, blockSize, progress)

  override def rename(from: Path, to: Path): Boolean =
    try CountedRequests.of("RENAME", to)(_ => super.rename(from, to))
    finally CountedRequests.renamed(to)

  override def delete(f: Path, recursive: Boolean): Boolean =
    CountedRequests.of("DELETE", f)(_ => super.delete(f, recursive))

  override def listStatus(f: Path): Array[FileStatus] = CountedRequests.of("LIST", f)(_ => super.listStatus(f))

  override def mkdirs(f: Path): Boolean = CountedRequests.of("MKDIR", f)(_ => super.mkdirs(f))

  override def mkdirs(f: Path, permission: FsPermission): Boolean = mkdirs(f)

  override def getFileStatus(f: Path): FileStatus = CountedRequests.of("HEAD", f)(_ => super.getFileStatus(f))

  override def exists(f: Path): Boolean = CountedRequests.of("HEAD", f)(_ => super.exists(f))
}

private object CountedFiles {
  private val Root = URI.create("counted:///")
}

private class PacedInput(in: FSDataInputStream, request: Request) extends FSInputStream {
  override def read(): Int = in.read()

  override def read(bytes: Array[Byte], from: Int, length: Int): Int = {
    val n = in.read(bytes, from, length)
    request.pass(n)
    n
  }

  override def seek(position: Long): Unit = in.seek(position)
  override def getPos: Long = in.getPos
  override def seekToNewSource(position: Long): Boolean = in.seekToNewSource(position)
  override def close(): Unit = in.close()
}

private class PacedOutput(out: OutputStream, request: Request) extends OutputStream {
  override def write(byte: Int): Unit = out.write(byte)

  override def write(bytes: Array[Byte], from: Int, length: Int): Unit = {
    request.pass(length)
    out.write(bytes, from, length)
  }

  override def flush(): Unit = out.flush()
  override def close(): Unit = out.close()
}

/**
 * The requests to [[CountedFiles]] in this JVM, and who made them.
 *
 * A request belongs to the epoch after the newest one that had been committed when it was made. It is binshift's own unless the
 * innermost method of binshift on the stack only passed on a call to the method of Spark that it overrides.
 */
object CountedRequests {
  @volatile private var delayNanos = 0L
  @volatile private var bytesPerSecond = 0L
  @volatile private var epoch = 0L
  @volatile private var refused: Option[String] = None
  @volatile private var last = Long.MaxValue
  private val requests = new ConcurrentLinkedQueue[Request]()
  /** The request that this thread is in. */
  private val inside = new ThreadLocal[Request]

  /** Forgets what was counted. `bytesPerSecond` of each stream; 0 is as fast as it goes. */
  def begin(delayMs: Int, bytesPerSecond: Long): Unit = {
    delayNanos = delayMs * 1000000L
    this.bytesPerSecond = bytesPerSecond
    requests.clear()
    epoch = 0
  }

  /** Fails all further writes of files whose names contain `part`, as if each took longer than the JVM lives. */
  def refuse(part: String): Unit = refused = Some(part)

  /** Kills this JVM as soon as `epoch` is committed. */
  def haltAt(epoch: Long): Unit = last = epoch

  /** A line per request: epoch, milliseconds since 1970, kind, path, thread, whether it is binshift's, bytes, caller. */
  def lines(): String = requests.asScala.map(_.line).mkString("\n")

  private[devtools] def of[T](kind: String, path: Path)(body: Request => T): T =
    if (inside.get != null) body(inside.get)
    else {
      val made = request(kind, path)
      requests.add(made)
      inside.set(made)
      try {
        if (delayNanos > 0) LockSupport.parkNanos(delayNanos)
        body(made)
      } finally inside.remove()
    }

  private[devtools] def pace(bytes: Int): Unit =
    if (bytesPerSecond > 0) LockSupport.parkNanos(bytes * 1000000000L / bytesPerSecond)

  private[devtools] def requireTaken(path: Path): Unit =
    if (refused.exists(path.getName.contains)) throw new IOException(s"$path is refused on purpose")

  private[devtools] def renamed(to: Path): Unit =
    if (to.getParent.getName == "commits") to.getName.toLongOption.foreach { committed =>
      epoch = committed + 1
      if (committed >= last) Runtime.getRuntime.halt(9)
    }

  private def request(kind: String, path: Path): Request = {
    val stack = StackWalker.getInstance().walk(frames =>
      frames.map(f => Frame(f.getClassName, f.getMethodName)).toList).asScala.toSeq
    val ours = stack.indexWhere(_.isBinshift)
    val isOurs = ours >= 0 && !(ours > 0 && stack(ours - 1).isOverridden)
    val callers = if (isOurs) stack.filter(_.isBinshift) else stack
    val caller = callers.find(_.isCaller).orElse(callers.headOption).getOrElse(Frame("unknown", ""))
    Request(epoch, System.currentTimeMillis(), kind, path.toUri.getPath, threadKind, isOurs, caller)
  }

  private def threadKind: String = {
    val name = Thread.currentThread.getName
    Threads.collectFirst { case (start, kind) if name.startsWith(start) => kind }.getOrElse("other")
  }

  private val Threads = Seq(
    "stream execution thread" -> "stream",
    "Executor task launch" -> "task",
    "state-store-maintenance" -> "maintenance",
    "binshift-" -> "background")
}

private case class Request(
    epoch: Long, atMs: Long, kind: String, path: String, thread: String, isOurs: Boolean, caller: Frame) {
  private val bytes = new AtomicLong

  /** Some more bytes of its stream, which take their time. */
  def pass(more: Int): Unit = if (more > 0) {
    bytes.addAndGet(more)
    CountedRequests.pace(more)
  }

  def line: String = Seq(epoch, atMs, kind, path, thread, isOurs, bytes, caller.name).mkString("\t")
}

private case class Frame(className: String, method: String) {
  def isBinshift: Boolean =
    className.startsWith("org.apache.spark.sql.binshift.") || className.startsWith(s"${Frame.State}binshift.")

  /** A method of Spark's that binshift's classes override and call. */
  def isOverridden: Boolean = className.startsWith(s"${Frame.State}RocksDB") && Frame.Overridden(method)

  def isCaller: Boolean = className.startsWith("org.apache.spark.") && !className.contains("CheckpointFileManager") &&
    !className.contains("RenameBased") && !className.contains("ControlDir") && !className.contains("ReplacedFile")

  /** Without the package, and without what the compiler appends. */
  def name: String = s"${className.split('.').last.takeWhile(_ != '$')}.${method.stripPrefix("$anonfun$").takeWhile(_ != '$')}"
}

private object Frame {
  private val State = "org.apache.spark.sql.execution.streaming.state."
  private val Overridden = Set("load", "loadFromSnapshot", "commit", "rollback", "close", "init", "getStore",
    "getReadStore", "upgradeReadStoreToWriteStore", "loadCheckpointFromDfs", "saveCheckpointToDfs", "deleteOldVersions",
    "getChangelogReader", "getChangeLogWriter", "getStateStoreChangeDataReader", "doMaintenance", "removeColFamilyIfExists")
}
