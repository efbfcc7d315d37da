"""Reports, progress bars and pictures of migrations, from a history and progress that are written by hand."""

import io
import json
import re
import struct
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from binshift import (
    AllAtOnce,
    Batched,
    ConfigurationError,
    Fluid,
    Migration,
    MigrationPlan,
    MigrationReport,
    MigrationState,
    MigrationStatus,
    OnDemand,
    RoutingTable,
    epoch_table,
)
from binshift.control.history import history_table
from binshift.plot import overview, timeline
from binshift.progress import ProgressBar, has_viewer
from binshift.report import adopt_rate, report_of
from binshift.stats import BIN_STATS, bin_stats_of, hot_keys_of
from unit.progress import epoch, operator


def row(step, number, bins=16, partitions=4):
    return {"step": step, "epoch": number, "bins_moved": bins, "partitions": partitions}


def switched(number, moved, ms, duration_ms, prepared=16, rows=100):
    metrics = {"binshiftBinsAdopted": 16, "binshiftBinsPrepared": prepared, "binshiftRowsAdopted": rows}
    return epoch(
        number,
        duration_ms=duration_ms,
        operators=[operator(4, **metrics, binshiftBytesAdopted=moved, binshiftAdoptMs=ms)],
    )


EPOCHS = [epoch(1), switched(2, 3_000_000, 30, 700), epoch(3), switched(4, 1_000_000, 10, 650), epoch(5)]
ONE = RoutingTable(1, (0,) * 128)
BATCHED = Batched(16).plan(ONE, ONE.balanced(2))
FLUID = Fluid().plan(ONE, ONE.balanced(8))
REPORT = report_of("an-id", BATCHED, [row(1, 2), row(2, 4)], EPOCHS, steps=2, cancelled=False)


def test_bins_that_come_on_demand_count_in_the_epochs_after_their_step():
    plan = OnDemand().plan(ONE, ONE.balanced(2))

    def coming(number, awaited, moved):
        metrics = {"binshiftBinsAdopted": 16, "binshiftBinsAwaited": awaited, "binshiftBytesAdopted": moved}
        return epoch(number, duration_ms=100 * number, operators=[operator(2, **metrics)])

    epochs = [epoch(1), coming(2, 64, 0), coming(3, 32, 5), coming(4, 0, 7), coming(5, 0, 100)]
    report = report_of("an-id", plan, [row(1, 2, bins=64)], epochs, steps=1, cancelled=False)
    assert (report.bytes_adopted, report.timings[0].bytes, report.longest_epoch_s) == (12, 12, 0.4)
    # Bins that arrive this way are not timed.
    assert adopt_rate(epochs, prepared=False) is None


def test_a_report_has_the_timing_of_each_step_and_their_totals():
    assert [(t.step, t.epoch, t.bytes, t.duration_s, t.adopt_s) for t in REPORT.timings] == [
        (1, 2, 3_000_000, 0.7, 0.03),
        (2, 4, 1_000_000, 0.65, 0.01),
    ]
    assert (REPORT.bins_moved, REPORT.bytes_adopted, REPORT.adopt_s, REPORT.rows_adopted) == (
        32,
        4_000_000,
        0.04,
        200,
    )
    assert (REPORT.first_epoch, REPORT.last_epoch, REPORT.longest_epoch_s) == (2, 4, 0.7)
    assert (REPORT.bins_prepared, REPORT.bins_shipped) == (32, 0)


def test_the_measured_rate_is_bytes_by_time_of_all_steps():
    assert REPORT.bytes_per_s == adopt_rate(EPOCHS, prepared=True) == 100e6
    assert adopt_rate([epoch(1)], prepared=True) is None


def test_the_rates_of_prepared_and_of_other_steps_are_kept_apart():
    sent, mixed = switched(6, 1_000_000, 1_000, 1_700, prepared=0), switched(7, 1_000_000, 100, 800, prepared=8)
    files = switched(8, 9_000_000_000, 10, 700, prepared=0, rows=0)
    assert adopt_rate([*EPOCHS, sent, mixed, files], prepared=True) == 100e6
    assert adopt_rate([*EPOCHS, sent, mixed, files], prepared=False) == 1e6
    assert adopt_rate([*EPOCHS, mixed, files], prepared=False) is None


def test_a_report_prints_a_line_for_each_step():
    first, head, *lines = str(REPORT).splitlines()
    assert first == (
        "MigrationReport: batched(16), finished: 32 bins (4.0 MB) in 2 steps, epochs 2 to 4; "
        "longest epoch 700 ms"
    )
    assert " ".join(head.split()) == "step epoch partitions bins bytes epoch took adopting took"
    assert " ".join(lines[0].split()) == "1 2 4 16 3.0 MB 700 ms 30 ms"
    assert "<td>3.0 MB</td>" in REPORT._repr_html_()


def test_what_spark_no_longer_remembers_is_unknown_and_not_zero():
    report = report_of("an-id", FLUID, [row(1, 2), row(2, 90)], [epoch(90)], steps=2, cancelled=True)
    assert (report.timings[0].duration_s, report.timings[0].bytes) == (None, None)
    assert "cancelled" in str(report)
    assert str(report).splitlines()[2].split()[-3:] == ["?", "?", "?"]
    # The forgotten step may have had more, so the report says "at least".
    assert (report.bytes_adopted, report.longest_epoch_s) == (0, 0.5)
    assert "2 bins (at least 0 B) in 2 steps" in str(report)
    assert "longest epoch at least 500 ms" in str(report)


def test_a_report_of_steps_that_spark_no_longer_remembers_has_no_totals():
    report = report_of("an-id", FLUID, [row(1, 2), row(2, 3)], [epoch(90)], steps=2, cancelled=False)
    bins = (report.bins_prepared, report.bins_shipped, report.bins_from_checkpoint, report.bins_recopied)
    assert bins == (None, None, None, None)
    assert (report.rows_adopted, report.bytes_adopted, report.adopt_s, report.longest_epoch_s) == (None,) * 4
    assert report.bytes_per_s is None
    first = str(report).splitlines()[0]
    assert first == "MigrationReport: fluid, finished: 2 bins (?) in 2 steps, epochs 2 to 3; longest epoch ?"
    none = report_of("an-id", FLUID, [], [epoch(90)], steps=0, cancelled=True)
    assert (none.bytes_adopted, none.longest_epoch_s) == (0, 0)


def test_a_report_of_many_steps_prints_the_first_and_the_last():
    report = report_of("an-id", FLUID, [row(i, i) for i in range(1, 101)], [], steps=100, cancelled=False)
    lines = str(report).splitlines()
    assert len(lines) < 30
    assert [line.split()[0] for line in (lines[2], lines[-1])] == ["1", "100"]


def test_a_migration_without_a_step_says_so():
    report = report_of("an-id", FLUID, [], EPOCHS, steps=0, cancelled=False)
    assert str(report) == "MigrationReport: fluid, finished without a step"
    assert repr(report) == f"<{report}>"


def test_steps_that_the_routing_log_has_forgotten_count_all_the_same():
    rows = [row(i, 1000 + i, bins=1) for i in range(100, 113)]
    report = report_of("an-id", FLUID, rows, [], steps=112, cancelled=False)
    assert (report.steps, report.bins_moved) == (112, 112)
    assert (report.first_epoch, report.last_epoch) == (None, 1112)
    first, _, gap, oldest, *_ = str(report).splitlines()
    assert "112 bins (?) in 112 steps, epochs ? to 1112" in first
    assert (gap.split()[0], oldest.split()[0]) == ("...", "100")


class Driver:
    """Answers a migration's requests for its report, and counts the reads of the routing log."""

    poll_s = 0.0

    def __init__(self, steps: int, history: list[dict[str, Any]]) -> None:
        self.steps, self.entries, self.reads = steps, history, 0

    def progress(self, migration: str) -> str:
        return json.dumps({"state": "finished", "steps_done": self.steps, "committed_epoch": 9})

    def history(self, migration: str | None = None) -> str:
        self.reads += 1
        return json.dumps(self.entries)

    def recent_progress(self) -> list[dict[str, Any]]:
        return []

    def is_active(self) -> bool:
        return False


def waited(driver: Driver, plan: MigrationPlan) -> MigrationReport:
    query: Any = SimpleNamespace(_link=driver)
    return Migration(query, "an-id", plan).wait()


def test_a_migration_counts_its_steps_by_what_the_driver_says():
    step = {"migration_id": "an-id", "index": 3, "steps": 4, "strategy": "batched(16)", "moves": 16}
    entry = {"epoch": 9, "partitions": 2, "written_at": "2026-01-01T00:00:00Z", "step": step}
    report = waited(Driver(4, [entry]), BATCHED)
    assert (report.steps, report.bins_moved, report.first_epoch, report.last_epoch) == (4, 64, None, 9)


def test_nobody_reads_the_routing_log_for_a_migration_without_a_step():
    driver = Driver(0, [])
    assert "finished without a step" in str(waited(driver, AllAtOnce().plan(ONE, ONE)))
    assert driver.reads == 0


def status(done, total, state=MigrationState.RUNNING):
    return MigrationStatus(
        state,
        steps_done=done,
        steps_total=total,
        next_epoch=None,
        committed_epoch=done,
        message=f"{state}: {done} of {total} steps done",
    )


def test_a_bar_counts_bins_and_bytes_of_the_steps_that_were_committed():
    source = RoutingTable(1, (0,) * 64)
    plan = Batched(16).plan(source, source.balanced(4))
    out = io.StringIO()
    with ProgressBar(plan, file=out) as bar:
        bar.update(status(0, 3, MigrationState.PREPARING), epoch(1))
        bar.update(status(1, 3), switched(2, 3_000_000, 30, 700))
        bar.finish(REPORT)
    frames = out.getvalue().split("\r")
    assert any("preparing" in f and "0/48" in f and "step 0/3" in f for f in frames)
    assert any("16/48" in f and "3.0 MB" in f and "bin/s" in f for f in frames)
    assert "32/48" in frames[-1] or "32/48" in frames[-2]


def test_a_bar_that_nobody_looks_at_writes_nothing(capsys):
    source = RoutingTable(1, (0, 0))
    with ProgressBar(AllAtOnce().plan(source, source.balanced(2)), is_shown=False) as bar:
        bar.update(status(1, 1), None)
    assert capsys.readouterr() == ("", "")


def test_somebody_looks_in_a_terminal_and_in_a_notebook_only(monkeypatch):
    def shell(*made):
        return SimpleNamespace(get_ipython=lambda: made[0] if made else None)

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for module, looks in ((None, False), (shell(), False), (shell(object()), False)):
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert has_viewer() is looks
    monkeypatch.setitem(sys.modules, "IPython", shell(SimpleNamespace(kernel=1)))
    assert has_viewer()
    monkeypatch.delitem(sys.modules, "IPython")
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    assert has_viewer()


def packed(epoch: int, owners: list[int], keys: list[int]) -> bytes:
    """The statistics of one operator whose partitions are all in the driver, as the JVM packs them."""
    n = max(owners) + 1
    places = {"executors": ["driver"] * n, "standbys": [None] * n, "standby_lags": [None] * n}
    operator = {"id": 0, "name": "<count>", "sized": True, **places}
    header = json.dumps({"epoch": epoch, "bins": len(owners), "operators": [operator]}).encode()
    numbers = [*keys, *[0] * (3 * len(owners))]
    form = f"<I{len(header)}s{len(owners)}i{len(numbers)}q"
    return struct.pack(form, len(header), header, *owners, *numbers)


def test_what_is_known_of_bins_keys_steps_and_epochs_is_html_in_a_notebook(monkeypatch):
    renderers: dict[type, Callable[[pa.Table], str | None]] = {}
    formatter = SimpleNamespace(lookup_by_type=renderers.__getitem__, for_type=renderers.__setitem__)
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": formatter}))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    key = {
        "operator": 0,
        "name": "count",
        "bin": 3,
        "partition": 1,
        "key": "<a>",
        "operations": 7,
        "missing": 0,
    }
    hot = hot_keys_of(json.dumps({"epoch": 5, "keys": [key] * 30}), 30)
    html = renderers[pa.Table](hot)
    assert "Hottest keys of epoch 5" in html
    assert html.count("<td>&lt;a&gt;</td>") == 20
    assert "30 rows, of which these are the first 20" in html
    assert hot.schema.metadata[b"epoch"] == b"5"
    assert "Steps that took effect" in renderers[pa.Table](history_table([]))
    assert "Epochs" in renderers[pa.Table](epoch_table([]))
    bins = renderers[pa.Table](bin_stats_of(packed(3, [0, 1], keys=[7, 8])))
    assert "Bins as of epoch 3" in bins
    assert all(f"<th>{name}</th>" in bins for name in BIN_STATS.names)
    cells = [re.findall("<td>(.*?)</td>", row) for row in bins.split("<tr>")[2:]]
    assert cells == [
        ["0", "&lt;count&gt;", str(b), str(b), "driver", "", "", keys, "0", "0", "0"]
        for b, keys in enumerate(["7", "8"])
    ]
    # Other tables of pyarrow are shown as before, and an existing renderer is kept.
    assert renderers[pa.Table](pa.table({"a": [1]})) is None
    renderers[pa.Table] = mine = repr
    history_table([])
    assert renderers[pa.Table] is mine


def test_tables_and_plans_show_themselves_in_a_notebook():
    table = RoutingTable(2, (0, 0, 1))
    assert str(table) == "RoutingTable: 3 bins in 2 partitions of 1 to 2 bins, from epoch 0 on"
    assert "<td>66.7%</td>" in table._repr_html_()
    html = Fluid().plan(RoutingTable(1, (0,) * 64), RoutingTable(2, (0,) * 32 + (1,) * 32))._repr_html_()
    assert "1 → 2 partitions, fluid" in html
    assert "32 of 64 bins move in 32 steps" in html
    assert html.count("<tr>") == 1 + 20 + 1


def test_a_timeline_has_a_point_for_each_epoch_and_a_mark_for_each_step(tmp_path):
    figure: Any = REPORT.plot()
    above, below = figure.axes
    assert above.lines[0].get_ydata().tolist() == [0.5, 0.7, 0.5, 0.65, 0.5]
    marked = [line.get_xdata()[0] for line in above.lines[2:]]
    assert marked == [2, 4]
    assert below.lines[0].get_ydata().tolist() == [2, 4, 2, 4, 2]
    figure.savefig(tmp_path / "timeline.svg")
    assert "Migration, batched(16)" in (tmp_path / "timeline.svg").read_text()
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_timeline_has_the_steps_that_were_undone_as_well():
    undoing = report_of("an-id-rollback", BATCHED, [row(1, 4)], EPOCHS, steps=1, cancelled=False)
    report = report_of(
        "an-id", BATCHED, [row(1, 2)], EPOCHS, steps=1, cancelled=False, undone="why", rollback=undoing
    )
    figure: Any = report.plot()
    assert [line.get_xdata()[0] for line in figure.axes[0].lines[2:]] == [2, 4]


def test_the_heat_map_has_a_row_for_each_partition_with_its_heaviest_bins_first():
    figure = overview(RoutingTable(3, (0, 0, 1, 0)), [0.1, 0.5, 0.4, 0.0], "share of rows", EPOCHS, {2: 1})
    grid = figure.axes[0].images[0].get_array()
    assert grid.tolist() == [[0.5, 0.1, 0.0], [0.4, None, None], [None, None, None]]
    assert overview(RoutingTable(1, (0,)), None, "", [], {}).axes[0].images[0].get_array().tolist() == [[1.0]]


def test_a_picture_without_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigurationError, match=r"binshift\[plot\]"):
        timeline(EPOCHS, {}, "no picture")
