package binshift.tests

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager

/**
 * Spark's own file manager for checkpoints, except that the JVM dies at one instant: right before or
 * after one file becomes visible. BINSHIFT_HALT names it, as `before:<end of the path>` or `after:...`, or `delete:...` for the
 * instant before it goes; `*` in it stands for what is not known ahead. If BINSHIFT_MEANWHILE is a command of the shell, the JVM
 * waits for it instead of dying: that is what another driver does at this instant.
 */
class HaltingCheckpointFileManager(path: Path, conf: Configuration)
  extends FileContextBasedCheckpointFileManager(path, conf) {

  override def renameTempFile(source: Path, target: Path, overwrite: Boolean): Unit = {
    haltIf("before", target)
    super.renameTempFile(source, target, overwrite)
    haltIf("after", target)
  }

  override def delete(path: Path): Unit = {
    haltIf("delete", path)
    super.delete(path)
  }

  private def haltIf(when: String, target: Path): Unit =
    Option(System.getenv("BINSHIFT_HALT")).map(_.split(":", 2)).foreach { case Array(instant, end) =>
      // No shutdown hook and no finally block runs, as with SIGKILL.
      val pattern = ".*" + end.split("[*]", -1).map(java.util.regex.Pattern.quote).mkString(".*")
      if (instant == when && target.toString.matches(pattern)) Option(System.getenv("BINSHIFT_MEANWHILE")) match {
        case Some(command) => require(new ProcessBuilder("sh", "-c", command).start().waitFor() == 0, s"failed: $command")
        case None => Runtime.getRuntime.halt(137)
      }
    }
}
