package org.apache.spark.sql.binshift.query

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.time.Instant
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec

import scala.util.Try

import org.json4s.{DefaultFormats, Formats, JValue}
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.ControlDir

/**
 * Accepts requests from those who know a secret, each of them once.
 *
 * {{{
 *   request   = {format, id, signed, signature}
 *   signed    = the text of a request that is not signed, with the id of the query and the time: query, issued_at
 *   signature = HMAC-SHA256 of "binshift request 1", a line feed, and the UTF-8 of that text; hexadecimal
 * }}}
 *
 * Served requests are recorded in `served.json`, so that a copy of a request does nothing: the ids of the latest ones, and the time up
 * to which all others count as served. The size of the file is bounded, and clocks only have to agree to within some minutes. A
 * request that waits for a stopped query may have any age, as long as no later one was served.
 *
 * Used by one thread at a time.
 *
 * @param query the id of the query. A request is for one query, and does nothing in another checkpoint.
 */
private[query] final class SignedRequests(dir: ControlDir, query: String, secret: Array[Byte]) {
  import SignedRequests._

  private implicit val formats: Formats = DefaultFormats

  private var latestSeen = Option.empty[ServedRequests]

  /** The request in an envelope. If it must not be served, throws the error for the answer. */
  def opened(id: String, envelope: JValue): JValue = {
    val text = (envelope \ Signed).extractOpt[String].getOrElse(
      throw BinshiftException("REQUEST_NOT_SIGNED", "request" -> id).configuration(s"request $id is refused: it is not " +
        "signed, and this query takes signed requests only; set BINSHIFT_REQUESTS_SECRET_FILE for the command line"))
    val request = if (isSigned(envelope, text)) Try(parse(text)).toOption else None
    val issuedAt = request.filter(r => (r \ "query").extractOpt[String].contains(query)).flatMap(issued).getOrElse(
      throw BinshiftException("REQUEST_SIGNATURE_WRONG", "request" -> id).configuration(s"request $id is refused: it is " +
        s"not signed with the secret of query $query, or was made for another query; give the command line the same secret"))
    if (issuedAt > System.currentTimeMillis() + WindowMs || latest.covers(id, issuedAt)) {
      throw BinshiftException("REQUEST_REPLAYED", "request" -> id).configuration(s"request $id is refused: it was served " +
        s"before, or its time, ${Instant.ofEpochMilli(issuedAt)}, is in the future or too long before that of other requests; ask " +
        "again, and if that does not help, set the clocks of both machines")
    }
    request.get
  }

  /**
   * Records a request as served; must be called before its file is deleted. Ignores requests for other queries, or under another name than
   * their own, because copies of old requests must not crowd out the records of real ones.
   */
  def done(id: String, envelope: JValue): Unit =
    for {
      text <- (envelope \ Signed).extractOpt[String]
      if isSigned(envelope, text)
      request <- Try(parse(text)).toOption
      if (request \ "query").extractOpt[String].contains(query) && (request \ "id").extractOpt[String].contains(id)
      issuedAt <- issued(request)
      if issuedAt <= System.currentTimeMillis() + WindowMs && !latest.covers(id, issuedAt)
    } {
      val next = latest.add(id, issuedAt)
      ServedRequests.write(dir, next)
      latestSeen = Some(next)
    }

  private def isSigned(envelope: JValue, text: String): Boolean =
    (envelope \ "signature").extractOpt[String].flatMap(hex).exists(MessageDigest.isEqual(_, signatureOf(text)))

  private def latest: ServedRequests = latestSeen.getOrElse {
    latestSeen = Some(ServedRequests.read(dir))
    latestSeen.get
  }

  private def issued(request: JValue): Option[Long] =
    (request \ "issued_at").extractOpt[String].flatMap(time => Try(Instant.parse(time).toEpochMilli).toOption)

  private def signatureOf(text: String): Array[Byte] = {
    val mac = Mac.getInstance(Algorithm)
    mac.init(new SecretKeySpec(secret, Algorithm))
    mac.update(Domain)
    mac.doFinal(text.getBytes(UTF_8))
  }

  private def hex(text: String): Option[Array[Byte]] = Try(java.util.HexFormat.of().parseHex(text)).toOption
}

private[query] object SignedRequests {
  val Signed = "signed"
  private val Algorithm = "HmacSHA256"
  private val Domain = "binshift request 1\n".getBytes(UTF_8)
  /** How far clocks may be apart. */
  private val WindowMs = ServedRequests.WindowMs
}
