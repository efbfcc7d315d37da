package org.apache.spark.sql.binshift.ui

import java.util.Date

import scala.util.control.NonFatal
import scala.xml.Node

import jakarta.servlet.http.HttpServletRequest

import org.apache.spark.sql.binshift.migration.StandbyView
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.provider.BinMetrics
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry
import org.apache.spark.sql.streaming.StreamingQueryProgress
import org.apache.spark.ui.{UIUtils, WebUIPage}
import org.apache.spark.util.Utils

/**
 * The one page of [[BinsTab]]. Text is escaped by Scala's XML.
 *
 * Its script asks for the part that changes every two seconds. So a request costs neither a task nor a request to a checkpoint;
 * see [[Latest]].
 */
private[binshift] final class BinsPage(tab: BinsTab) extends WebUIPage("") {
  import BinsPage._

  override def render(request: HttpServletRequest): Seq[Node] = {
    val queries = Telemetry.all.filter(_.query.sparkSession.sparkContext.ui.exists(_ eq tab.parentUi))
    val content =
      if (queries.isEmpty) <p>No query with binshift's provider is running.</p> else queries.flatMap(section)
    val part = <div id="binshift-queries">{content}</div>
    if (request.getParameter("part") != null) part
    else {
      val script = UIUtils.prependBaseUri(request, BinsTab.ScriptPath)
      UIUtils.headerSparkPage(request, "Bins",
        <p id="binshift-updated" class="text-muted"></p> ++ part ++ <script src={script} defer="defer"></script>, tab)
    }
  }

  private def section(shown: ShownQuery): Seq[Node] = {
    val query = shown.query
    try {
      val view = shown.view.get()
      <h4>{Option(query.name).getOrElse(query.id.toString)}</h4> ++ routing(query, view) ++ migration(view) ++
        <h5>{partitionsTitle(view)}</h5> ++ partitions(view) ++ longest(query) ++ history(shown.history.get().steps)
    } catch {
      // The query may be ending.
      case NonFatal(e) => <h4>{query.id}</h4><p>{s"cannot be shown: ${e.getMessage}"}</p>
    }
  }

  private def routing(query: MicroBatchExecution, view: QueryView): Seq[Node] =
    <ul class="list-unstyled">
      <li><strong>Query: </strong>{query.id}</li>
      <li><strong>Epoch: </strong>{view.epoch.fold("none")(_.toString)}</li>
      <li><strong>Routing table: </strong>{
      view.entry.fold("none") { e =>
        s"${e.table.bins} bins in ${e.table.partitions} partitions, in force since epoch ${e.epoch}" +
          (if (view.empty > 0) s"; ${view.empty} of them own no bins yet" else "")
      }
    }</li>
      <li><strong>Skew: </strong>{f"${view.skew}%.2f"}
        (the most reads and writes of a partition in the last epoch, by their mean)</li>
      {executors(view)}
      {audits(view)}
    </ul>

  private def executors(view: QueryView): Seq[Node] =
    (if (view.misplaced == 0 && view.evacuated == 0) Nil
     else
       <li><strong>Whole partitions: </strong>{
         s"${view.misplaced} on their way to another executor, ${view.evacuated} have left decommissioned executors"
       }</li>) ++
      (if (view.standbys.isEmpty) Nil
       else
         <li><strong>Standbys: </strong>{
           s"${view.standbysReady} of ${view.standbys.values.map(_.size).sum} ready, ${view.standbyLag} versions behind at " +
             s"most; ${view.takenOver} partitions have gone to theirs"
         }</li>)

  private def audits(view: QueryView): Seq[Node] = view.audit.toSeq.flatMap { a =>
    val reasons = a.dropped.toSeq.sorted.map { case (reason, bins) => s"; $bins: $reason" }
    <li><strong>Audited bins of the newest steps: </strong>{a.text + reasons.mkString}</li>
  }

  private def migration(view: QueryView): Seq[Node] = view.migration.toSeq.flatMap { m =>
    <h5>Migration</h5> ++
      <p>{
        s"${m.id} (${m.strategy}): ${m.done} of ${m.total} steps done" +
          m.waits.fold("")(waits => s"; the next step $waits")
      }</p> ++
      <div class="progress" style="max-width: 40em">
        <div class="progress-bar" style={s"width: ${100 * m.done / math.max(m.total, 1)}%"}></div>
      </div>
  }

  /** The rows of the table belong to the last committed epoch, while the table above shows the epoch that runs. */
  private def partitionsTitle(view: QueryView): String = view.loadsOf.fold("Partitions") { epoch =>
    s"Partitions in epoch $epoch, the last one committed" +
      view.entry.filter(_.epoch > epoch).fold("")(e => s"; ${e.table.partitions} from epoch ${e.epoch} on")
  }

  private def partitions(view: QueryView): Seq[Node] = {
    val busiest = math.max(1L, view.loads.map(l => l.reads + l.writes).maxOption.getOrElse(1L))
    def standbys(partition: Int): Seq[Node] =
      if (view.standbys.isEmpty) Nil else <td>{view.standbys.getOrElse(partition, Nil).map(standby).mkString(", ")}</td>
    def row(l: PartitionLoad): Seq[Node] =
      <tr>
        <td>{l.partition}</td><td>{l.executors.mkString(", ")}</td>
        {standbys(l.partition)}<td>{l.bins}</td>
        <td>{l.keys.fold("")(_.toString)}</td>
        <td sorttable_customkey={l.bytes.fold("")(_.toString)}>{l.bytes.fold("")(Utils.bytesToString)}</td>
        <td>{l.reads}</td><td>{l.writes}</td>
        <td sorttable_customkey={(l.reads + l.writes).toString}>
          <div class="progress">
            <div class="progress-bar" style={s"width: ${100 * (l.reads + l.writes) / busiest}%"}></div>
          </div>
        </td>
      </tr>
    val columns = PartitionColumns.filter(c => c != StandbyColumn || view.standbys.nonEmpty)
    UIUtils.listingTable(columns, row, view.loads, fixedWidth = true)
  }

  private def standby(s: StandbyView): String = s"${s.executor} (${s.lag.fold("not yet")(n => s"$n behind")})"

  /**
   * The longest of the epochs that Spark remembers.
   *
   * Relies on Spark: only the report of an epoch that was run says how long its `addBatch` took.
   */
  private def longest(query: MicroBatchExecution): Seq[Node] = {
    val epochs = query.recentProgress.toSeq.filter(_.durationMs.containsKey("addBatch"))
    def duration(p: StreamingQueryProgress): Long = p.durationMs.get("triggerExecution")
    val shown = epochs.sortBy(-duration(_)).take(EpochsShown)
    def row(p: StreamingQueryProgress): Seq[Node] =
      <tr>
        <td>{p.batchId}</td>
        <td sorttable_customkey={duration(p).toString}>{UIUtils.formatDuration(duration(p))}</td>
        <td>{p.numInputRows}</td><td>{Telemetry.total(p, BinMetrics.AdoptedName)}</td>
        <td sorttable_customkey={duration(p).toString}>
          <div class="progress">
            <div class="progress-bar" style={s"width: ${100 * duration(p) / math.max(1L, duration(shown.head))}%"}></div>
          </div>
        </td>
      </tr>
    if (shown.isEmpty) Nil
    else
      <h5>{s"The longest of the last ${epochs.size} epochs"}</h5> ++
        UIUtils.listingTable(EpochColumns, row, shown, fixedWidth = true)
  }

  private def history(steps: Seq[RoutingEntry]): Seq[Node] = {
    def row(e: RoutingEntry): Seq[Node] = e.step.toSeq.flatMap { s =>
      <tr>
        <td>{e.epoch}</td><td>{e.table.partitions}</td><td>{s.moves}</td><td>{s.index + 1} of {s.steps}</td>
        <td>{s.strategy}</td><td>{s.migration}</td><td>{UIUtils.formatDate(new Date(e.writtenAtMs))}</td>
      </tr>
    }
    if (steps.isEmpty) Nil
    else <h5>{s"History (the last ${StepHistory.Shown} steps)"}</h5> ++ UIUtils.listingTable(HistoryColumns, row, steps)
  }
}

private object BinsPage {
  private val EpochsShown = 5
  private val StandbyColumn = "Standby"
  private val PartitionColumns =
    Seq("Partition", "Executor", StandbyColumn, "Bins", "Keys", "Bytes", "Reads", "Writes", "Load in the last epoch")
  private val EpochColumns = Seq("Epoch", "Duration", "Input rows", "Bins adopted", "Share of the longest")
  private val HistoryColumns =
    Seq("Epoch", "Partitions", "Bins moved", "Step", "Strategy", "Migration", "Written at")
}
