package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.{File, IOException}
import java.nio.file.{Files, Path}
import java.util.{Collections, Locale, WeakHashMap}
import java.util.concurrent.{CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicReference}

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.hadoop.fs.FileSystem
import org.apache.hadoop.util.{ShutdownHookManager => HadoopShutdownHookManager}
import org.rocksdb.{AbstractImmutableNativeReference, Env, Priority => Pool, RocksDB => NativeRocksDB}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, ProcessConf}
import org.apache.spark.util.{ShutdownHookManager, ThreadUtils, Utils}

/**
 * The databases that this process has open for writing, so that RocksDB compacts nothing when it ends.
 *
 * If a process ends while a database is compacting, it hangs for ever: the C library waits for RocksDB's threads, and a thread that
 * wants to log, through the logger that Spark gives each database, waits for the JVM, which lets no thread in any more. So a
 * shutdown hook cancels the background work of all databases, and then waits until the threads that compact are gone. It runs after Spark
 * has stopped its context or executor, when no epoch can be committed any more, and before Spark deletes temporary directories.
 *
 * The second half is for databases that nobody can find here, such as one of Spark's that is just being opened or closed: their work
 * isn't cancelled, but waited for.
 *
 * Databases are not closed, because Spark doesn't wait for its tasks when a process ends, and tasks may still use them. A database
 * whose work is cancelled can be read and written, but begins no flush or compaction any more, so a commit with a snapshot fails. A
 * task can't open it again, because its files stay locked. A database that is opened all the same is found within [[LookEveryMs]].
 * While the process runs, this class only notes each database.
 *
 * Spark's own stores are found in Spark's table of stores. Databases that are opened only to read have no background work.
 *
 * Relies on RocksDB: whoever sets `owningHandle_` of a native handle to false owns the handle, and frees it; several threads may call
 * `cancelAllBackgroundWork`, whose effect is permanent; a pool that shall have no threads loses each thread when its work is done, and
 * the C library doesn't wait for that thread any more; each database that is opened gives the pools a thread again. Relies on
 * Spark: the names `loadedProviders` and `rocksDB`; the order of its shutdown hooks.
 */
private[binshift] object OpenDatabases extends Logging {
  /** Spark's hooks run in descending order of priority. */
  private val Priority =
    (ShutdownHookManager.SPARK_CONTEXT_SHUTDOWN_PRIORITY + ShutdownHookManager.TEMP_DIR_SHUTDOWN_PRIORITY) / 2
  /** Hadoop runs all of Spark's hooks as one, with a priority of 30 more than its own, and with a timeout. So they may not be over yet. */
  private val PriorityAfterSpark = FileSystem.SHUTDOWN_HOOK_PRIORITY + 20
  private val PatienceMs = 5000L
  private val LookEveryMs = 10L
  /** Those that compact. Somebody else's shutdown hook may need the others, to close a database. */
  private val Pools = Seq(Pool.LOW, Pool.BOTTOM)
  /** Linux tells the names of a process's threads. Elsewhere, RocksDB's threads are told to go, and not waited for. */
  private val Threads = Path.of("/proc/self/task")

  /** Stores, whose native databases change, or native databases. Weak: one that is dropped without being closed leaks its memory anyway. */
  private val noted = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap[AnyRef, java.lang.Boolean]()))
  private var isHooked = false
  private val ending = new AtomicReference[CountDownLatch]()

  private val owning = field(classOf[AbstractImmutableNativeReference], "owningHandle_")
  private val loaded = field(StateStore.getClass, "loadedProviders")

  /** Called by the constructor of a store, before it opens anything. */
  def add(store: RocksDB): Unit = note(store)

  /** Called with each database that doesn't belong to a store. */
  def add(database: NativeRocksDB): Unit = note(database)

  /** Cancels all background work for good, and waits a short time for its end. Called when the process ends. */
  def end(): Unit = {
    val done = new CountDownLatch(1)
    if (ending.compareAndSet(null, done)) {
      CompactionPace.lift()
      val threads = ThreadUtils.newDaemonCachedThreadPool("binshift-ending", 2)
      val cancelled = new CountDownLatch(1)
      threads.execute(() => cancelForEver(cancelled))
      threads.execute { () =>
        cancelled.await()
        endThreadsForEver(done)
      }
    }
    if (!ending.get.await(PatienceMs, TimeUnit.MILLISECONDS)) {
      logWarning(s"RocksDB's background work has not ended within $PatienceMs ms, so this process may hang; " +
        "if it does, kill it: everything that it has committed is in the checkpoint")
    }
  }

  /**
   * Makes a temporary directory, which goes with the process. Fails if the process is ending: Spark may have deleted its temporary
   * directories by then, so that a new one would stay.
   */
  def temporaryDir(name: String): File = {
    requireGoingOn()
    Utils.createExecutorLocalTempDir(ProcessConf(), name)
  }

  private def requireGoingOn(): Unit =
    if (ending.get != null) throw new IllegalStateException("this process is ending and opens no database any more")

  private def note(database: AnyRef): Unit = {
    requireGoingOn()
    hook()
    noted.add(database)
  }

  /** Registers the hooks. Fails while the hooks of the process run. */
  private def hook(): Unit = synchronized {
    if (!isHooked) {
      ShutdownHookManager.addShutdownHook(Priority)(() => end())
      HadoopShutdownHookManager.get().addShutdownHook(() => end(), PriorityAfterSpark)
      isHooked = true
    }
  }

  /** @param done for the databases that are open now */
  private def cancelForEver(done: CountDownLatch): Unit = {
    // Signals all of them before it waits for any, because they share RocksDB's threads.
    def cancel(databases: Seq[NativeRocksDB]): Seq[NativeRocksDB] =
      databases.filter(keep).map { db =>
        db.cancelAllBackgroundWork(false)
        db
      }
    try while (true) {
        (cancel(ours) ++ cancel(sparks)).foreach(_.cancelAllBackgroundWork(true))
        done.countDown()
        Thread.sleep(LookEveryMs)
      }
    catch {
      case NonFatal(e) =>
        logWarning("RocksDB's background work could not be cancelled, so this process may hang; if it does, kill it", e)
    } finally done.countDown()
  }

  /** Without these threads, no compaction begins any more. What is already under way ends first. */
  private def endThreadsForEver(done: CountDownLatch): Unit =
    try while (true) {
        Pools.foreach(Env.getDefault.setBackgroundThreads(0, _))
        if (!hasThreads) done.countDown()
        Thread.sleep(LookEveryMs)
      }
    finally done.countDown()

  private def hasThreads: Boolean = Files.isDirectory(Threads) && {
    val threads = Files.list(Threads)
    try threads.anyMatch(isOfPool(_))
    finally threads.close()
  }

  private def isOfPool(thread: Path): Boolean =
    try {
      val name = Files.readString(thread.resolve("comm")).trim
      Pools.exists(pool => name == s"rocksdb:${pool.name.toLowerCase(Locale.ROOT)}")
    } catch { case _: IOException => false } // It is gone.

  /** Returns whether the database was open. From now on it stays open until the process is gone, because `close` has no effect any more. */
  private def keep(db: NativeRocksDB): Boolean = owning.get(db).asInstanceOf[AtomicBoolean].compareAndSet(true, false)

  private def ours: Seq[NativeRocksDB] = noted.synchronized(noted.asScala.toSeq).collect {
    case store: RocksDB => RocksDBFields.native(store)
    case native: NativeRocksDB => native
  }.filter(_ != null)

  private def sparks: Seq[NativeRocksDB] = {
    val providers = loaded.get(StateStore).asInstanceOf[mutable.HashMap[StateStoreProviderId, StateStoreProvider]]
    providers.synchronized(providers.values.toSeq).collect { case p: RocksDBStateStoreProvider => p.rocksDB }
      .flatMap(store => Option(RocksDBFields.native(store)))
  }

  private def field(of: Class[_], name: String): java.lang.reflect.Field =
    try {
      val found = of.getDeclaredField(name)
      found.setAccessible(true)
      found
    } catch {
      case e: ReflectiveOperationException => throw BinshiftException.unsupportedVersion(
          s"${of.getName} has no field $name (${e.getMessage}); use the binshift made for your Spark")
    }
}
