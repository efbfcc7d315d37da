package binshift.tests

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager

/**
 * Spark's own file manager for checkpoints, except that the JVM dies at one instant: right before or
 * after one file becomes visible. BINSHIFT_HALT names it, as `before:<end of the path>` or `after:...`;
 * `*` in it stands for what is not known ahead.
 */
class HaltingCheckpointFileManager(path: Path, conf: Configuration)
  extends FileContextBasedCheckpointFileManager(path, conf) {

  override def renameTempFile(source: Path, target: Path, overwrite: Boolean): Unit = {
    haltIf("before", target)
    super.renameTempFile(source, target, overwrite)
    haltIf("after", target)
  }

  private def haltIf(when: String, target: Path): Unit =
    Option(System.getenv("BINSHIFT_HALT")).map(_.split(":", 2)).foreach { case Array(instant, end) =>
      // No shutdown hook and no finally block runs, as with SIGKILL.
      val pattern = ".*" + end.split("[*]", -1).map(java.util.regex.Pattern.quote).mkString(".*")
      if (instant == when && target.toString.matches(pattern)) Runtime.getRuntime.halt(137)
    }
}
