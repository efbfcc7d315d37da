package org.apache.spark.sql.binshift.query

import java.util.Locale

import org.apache.spark.sql.binshift.internals.JarVersion
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.apache.spark.unsafe.types.UTF8String

/**
 * Refuses settings that look like binshift's and are none: whoever misspells one would otherwise get the default, which for `bins`
 * stays for the checkpoint's life. It is refused like an impossible value, whichever way it came into the session, and also where
 * another version of binshift knows it, since this one would not do what is asked for.
 */
private[binshift] object KnownSettings {
  import BinshiftConf.Prefix

  private val Names = BinshiftConf.All.map(_.stripPrefix(Prefix)).toSeq.sorted

  /** Another first part of a name counts as so many letters: the same one with a slip of the pen comes before. */
  private val Elsewhere = 2

  /**
   * @param keys of all settings, also those of Spark and of others
   * @throws BinshiftException if some are unknown
   */
  def require(keys: Iterable[String]): Unit = {
    val unknown = keys.toSeq.sorted.flatMap(key => meant(key).map(key -> _))
    for ((first, nearest) <- unknown.headOption) {
      val said = unknown.map { case (key, name) =>
        s"$key is unknown to binshift ${JarVersion.version}, and the nearest is $name"
      }
      throw BinshiftException("UNKNOWN_SETTING", "name" -> first, "nearest" -> nearest).configuration(
        s"${said.mkString("; ")}; correct the name, or unset it; docs/settings.md lists all settings, and one that another version " +
          "of binshift has needs the jar of that version")
    }
  }

  /** The nearest setting, if a key is to be one of binshift's and is not. */
  private def meant(key: String): Option[String] =
    if (BinshiftConf.All(key) || key.startsWith(BinshiftConf.Internal)) None
    else if (key.startsWith(Prefix)) Some(Prefix + nearest(key.stripPrefix(Prefix)))
    else {
      // The name is right, and what stands before it is not.
      val words = key.split("(?i)binshift\\.", 2)
      Option.when(words.length == 2)(words(1)).flatMap(name => Names.find(_.equalsIgnoreCase(name))).map(Prefix + _)
    }

  /** By the whole name, or by what stands behind its last dot, for those who leave out or confuse its first part. */
  private def nearest(name: String): String = {
    def last(text: String) = text.substring(text.lastIndexOf('.') + 1)
    Names.minBy(known => math.min(distance(known, name), distance(last(known), last(name)) + Elsewhere))
  }

  private def distance(a: String, b: String): Int = {
    def folded(text: String) = UTF8String.fromString(text.toLowerCase(Locale.ROOT))
    folded(a).levenshteinDistance(folded(b))
  }
}
