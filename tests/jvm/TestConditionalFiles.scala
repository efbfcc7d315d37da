package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.IOException
import java.net.URI

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStreamBuilder, Path, RawLocalFileSystem}

/** Local files under the scheme `conditional`, where a conditional request fails as the test says. */
class TestConditionalFiles extends RawLocalFileSystem {
  override def getScheme: String = "conditional"
  override def getUri: URI = URI.create("conditional:///")

  override def hasPathCapability(path: Path, capability: String): Boolean =
    capability == "fs.option.create.conditional.overwrite" || super.hasPathCapability(path, capability)

  // It could not be opened, and whoever asks for it is told why.
  override def createFile(path: Path): FSDataOutputStreamBuilder[_, _] =
    throw TestConditionalFiles.status.fold(new IOException("no answer"))(new TestConditionalFiles.Answered(_))
}

object TestConditionalFiles {
  @volatile private var status = Option.empty[Int]

  /** An exception that tells the status of the store's answer in the way of S3A. */
  class Answered(val statusCode: Int) extends IOException(s"status $statusCode")

  /**
   * Creates a file in a store that doesn't answer, or answers with `status`.
   *
   * @param status 0 if it doesn't answer
   * @return whether the file was created
   */
  def created(dir: String, name: String, status: Int): Boolean = {
    this.status = Option(status).filter(_ > 0)
    val conf = new Configuration()
    conf.set("fs.conditional.impl", classOf[TestConditionalFiles].getName)
    new ControlDir(new Path(s"conditional:$dir"), conf).create(name, "text")
  }
}
