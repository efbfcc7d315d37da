package binshift.devtools

import java.net.URI

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.permission.FsPermission

/**
 * The local file system without permissions and symbolic links. Where Hadoop's native library is missing, as in pyspark,
 * Hadoop starts a `chmod` for each file that it makes and a `readlink` for each that it renames, and a small epoch
 * spends most of its time on that.
 */
class QuickRawFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit = ()
  override def getFileLinkStatus(path: Path): FileStatus = getFileStatus(path)
}

/** For `fs.file.impl`. */
class QuickLocalFiles extends LocalFileSystem(new QuickRawFiles)

private class QuickRawFs(uri: URI, conf: Configuration)
  extends DelegateToFileSystem(uri, new QuickRawFiles, conf, "file", false) {
  override def getUriDefaultPort: Int = -1
  override def isValidName(name: String): Boolean = true
}

/** For `fs.AbstractFileSystem.file.impl`; the parameters are those that Hadoop gives. */
class QuickLocalFs(uri: URI, conf: Configuration) extends ChecksumFs(new QuickRawFs(uri, conf))
