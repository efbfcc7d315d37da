package org.apache.spark.sql.binshift.query

import java.util.Locale

import org.apache.spark.sql.binshift.internals.JarVersion
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.apache.spark.unsafe.types.UTF8String

/**
 * Refuses settings that look like binshift's but are unknown. A misspelt setting would otherwise mean the default, which for `bins` stays
 * for the checkpoint's life. It is refused like an impossible value, however it came into the session, and even if another version of
 * binshift knows it, because this version wouldn't do what the user asks for.
 */
private[binshift] object KnownSettings {
  import BinshiftConf.Prefix

  private val Names = BinshiftConf.All.map(_.stripPrefix(Prefix)).toSeq.sorted

  /** A different first part of a name counts as this many letters, so that a typo in the right one is nearer. */
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
        s"${said.mkString("; ")}; correct the name, or remove the setting; docs/settings.md lists all settings, and a setting of another " +
          "version of binshift needs the jar of that version")
    }
  }

  /** The nearest setting, if a key seems to be meant for binshift but is unknown. */
  private def meant(key: String): Option[String] =
    if (BinshiftConf.All(key) || key.startsWith(BinshiftConf.Internal)) None
    else if (key.startsWith(Prefix)) Some(Prefix + nearest(key.stripPrefix(Prefix)))
    else {
      // The name is right, but the part before it isn't.
      val words = key.split("(?i)binshift\\.", 2)
      Option.when(words.length == 2)(words(1)).flatMap(name => Names.find(_.equalsIgnoreCase(name))).map(Prefix + _)
    }

  /** The nearest setting by the whole name, or by the part after the last dot, in case the first part is missing or wrong. */
  private def nearest(name: String): String = {
    def last(text: String) = text.substring(text.lastIndexOf('.') + 1)
    Names.minBy(known => math.min(distance(known, name), distance(last(known), last(name)) + Elsewhere))
  }

  private def distance(a: String, b: String): Int = {
    def folded(text: String) = UTF8String.fromString(text.toLowerCase(Locale.ROOT))
    folded(a).levenshteinDistance(folded(b))
  }
}
