"""The benchmarks' evaluation of their runs."""

import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments import SIZES, experiments
from experiments.sections import SECTIONS
from openloop.experiment import Case, Experiment, paired, spread
from openloop.feed import AHEAD, Feed, Input
from openloop.pictures import _label, _styles
from openloop.report import Report
from openloop.resources import Others, taken
from openloop.results import Record, Results, final_states, read_tables, write_tables
from openloop.sections import Section, answered
from openloop.timeline import Epoch, files_by_offset, latencies
from realtime import between_boundaries, longest_gap
from suite import turns

ROOT = Path(__file__).parents[2]


def record(repeat, value, **case):
    return Record("M0", case, repeat, {"took": value})


def test_an_event_waits_until_the_epoch_that_took_its_file_is_committed():
    epochs = [Epoch(7, 100.0, 500, 2, 3, 0, 0, 0), Epoch(8, 102.0, 2000, 4, 5, 0, 0, 0)]
    offsets = {"a": 3, "b": 4, "c": 5, "later": 6}
    due = {"a": 99.0, "b": 100.2, "c": 101.2, "later": 103.0, "never": 104.0}
    assert latencies(epochs, offsets, due).to_pylist() == [
        {"file": "a", "scheduled": 99.0, "latency": 1.5},
        {"file": "b", "scheduled": 100.2, "latency": pytest.approx(3.8)},
        {"file": "c", "scheduled": 101.2, "latency": pytest.approx(2.8)},
    ]


def test_files_are_found_in_the_source_log_also_after_it_was_compacted(tmp_path):
    log = tmp_path / "sources" / "0"
    log.mkdir(parents=True)

    def entry(name, offset):
        return json.dumps({"path": f"file:///data/{name}", "timestamp": 1, "batchId": offset})

    (log / "1.compact").write_text("\n".join(["v1", entry("a%20b", 0), entry("c", 1)]))
    (log / "2").write_text("\n".join(["v1", entry("d", 2)]))
    (log / ".2.crc").write_bytes(b"\x00\xff")
    assert files_by_offset(tmp_path) == {"a b": 0, "c": 1, "d": 2}


def test_files_appear_in_order_and_not_before_they_are_due(tmp_path):
    source, watched = tmp_path / "source", tmp_path / "watched"
    watched.mkdir()
    for i in range(4):
        part = source / f"{i:05}"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"x": [i]}), part / "0.parquet")
    feed = Feed(Input(source, 1, 0.05), watched)
    feed.start()
    feed.join(10)
    assert feed.is_exhausted
    assert sorted(f.name for f in watched.iterdir()) == [f"{i:05}-0.parquet" for i in range(4)]
    due = list(feed.scheduled.values())
    assert [b - a for a, b in itertools.pairwise(due)] == pytest.approx([0.05] * 3, abs=1e-4)
    for name, at in feed.scheduled.items():
        assert (watched / name).stat().st_ctime >= at - 0.02  # the file system's clock ticks slowly
    assert (due[0] + AHEAD) % 0.05 == pytest.approx(0, abs=1e-4) or (due[0] + AHEAD) % 0.05 > 0.0499


def test_a_run_that_is_there_is_not_due_again(tmp_path):
    results = Results(tmp_path)
    results.add(record(0, 1.5, run="idle", rows=10))
    assert results.has("M0", {"rows": 10, "run": "idle"}, 0)
    assert not results.has("M0", {"rows": 10, "run": "idle"}, 1)
    assert not results.has("M0", {"rows": 11, "run": "idle"}, 0)
    assert [(r.case, r.values) for r in results.all()] == [({"run": "idle", "rows": 10}, {"took": 1.5})]


def test_ratios_are_of_the_same_repetition():
    records = [
        record(0, 4.0, run="a"),
        record(1, 9.0, run="a"),
        record(0, 2.0, run="b"),
        record(2, 1.0, run="b"),
    ]
    assert paired(records, lambda v: v["took"], {"run": "a"}, {"run": "b"}) == [2.0]


def test_a_figure_has_the_median_and_the_spread():
    assert str(spread("x", [3.5, 1.0, 2.25])) == "2.25 (1 to 3.50; 3 runs)"
    assert str(spread("x", [115.0])) == "115"


def test_experiments_that_look_at_the_runs_of_another_one_have_figures_and_a_headline(tmp_path):
    def figures(records):
        return [spread("took", [r.values["took"] for r in records]), spread("runs", [len(records)])]

    own = Experiment("M0", "own runs", {"the paper claims": "1"}, [], figures)
    looking = Experiment("B0", "runs of M0", {"our aim": "2"}, [], figures, headline="runs", runs_of="M0")
    silent = Experiment("throughput", "no runs", {}, [], figures)
    file = tmp_path / "BENCHMARKS.md"
    Report([own, looking, silent], [record(0, 4.0, run="a"), record(1, 9.0, run="a")], "quick").publish(
        file, tmp_path / "docs"
    )
    text = file.read_text()
    assert "| [M0: own runs](#m0-own-runs) | took: **6.50 (4 to 9; 2 runs)** |" in text
    assert "| [B0: runs of M0](#b0-runs-of-m0) | runs: **2** |" in text
    assert "| our aim |\n| --- |\n| 2 |" in text
    assert "no runs" not in text


def test_what_is_written_by_hand_around_the_report_is_kept(tmp_path):
    one = Experiment(
        "M0", "own runs", {"the paper claims": "1"}, [], lambda records: [spread("took: all", [len(records)])]
    )
    asked = Section("How long?", ("M0",), ("It took {took: all}.", "Not {known}."), "{took: all} s", "bars")
    file = tmp_path / "BENCHMARKS.md"
    file.write_text("# By hand\n")
    for value in (1.0, 2.0):
        report = Report([one], [record(0, value, run="a")], "quick", [asked])
        report.publish(file, tmp_path / "docs")
        file.write_text(file.read_text().removesuffix("\n## More\n") + "\n## More\n")
    text = file.read_text()
    assert text.startswith("# By hand\n")
    assert text.endswith("\n## More\n")
    assert text.count("## How long?") == 1
    assert "| [How long?](#how-long) | 1 s |" in text
    assert "It took 1.\n\n![How long?](docs/M0-bars.png)" in text
    assert "Not" not in text


def test_each_sentence_of_the_published_report_has_its_figures():
    report = Report(experiments(SIZES["full"]), read_tables(ROOT / "docs/benchmarks"), "full", SECTIONS)
    found = {e.id: figures for e, figures in report._sections}
    assert sorted(id for s in SECTIONS for id in s.experiments) == sorted(found)
    for section in SECTIONS:
        figures = {n: f for id in section.experiments for f in found[id] for n in (f.what, f"{id}: {f.what}")}
        said = [answered([sentence], figures) for sentence in (*section.answer, section.short)]
        assert all(said), section.title


def test_each_section_of_the_published_report_names_an_experiment_to_run():
    known = {name for e in experiments(SIZES["full"]) if e.cases for name in (e.id, e.group)}
    named = re.findall(r"^Run it: `make bench ONLY=(\S+)`\.$", (ROOT / "BENCHMARKS.md").read_text(), re.M)
    assert len(named) == len(SECTIONS)
    assert set(named) <= known


def test_no_two_runs_of_a_picture_look_alike():
    runs = [r for r in read_tables(ROOT / "docs/benchmarks") if r.experiment == "rescale"]
    labels = sorted({_label(r) for r in runs})
    styles = _styles(labels)
    assert len(labels) == 11
    assert len({tuple(s.values()) for s in styles.values()}) == len(labels)


def test_each_repetition_begins_with_another_case():
    cases = [Case({"n": n}, None) for n in range(4)]
    one = Experiment("M0", "", {}, cases, lambda records: [], repeats=4)
    order = [[c.name["n"] for e, c, r in turns([one], None) if r == repeat] for repeat in range(4)]
    assert order == [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]]


@pytest.mark.parametrize("size", SIZES)
def test_runs_of_a_size_have_names_of_their_own(size, tmp_path):
    names = [Record(e.id, c.name, r, {}).key for e, c, r in turns(experiments(SIZES[size]), None)]
    assert len(set(names)) == len(names)


def test_the_fewest_bins_move_from_25_to_30_partitions(tmp_path):
    (one,) = (e for e in experiments(SIZES["quick"]) if e.id == "fewest-moves")
    moved = one.cases[0].do(bench=SimpleNamespace(), repeat=0)
    # Ranges need 115 moves, as Meces says; at least, each of the five new partitions needs four bins.
    assert moved.values == {"contiguous": 115, "minimal": 20}
    results = Results(tmp_path / "results")
    results.add(moved)
    Report(experiments(SIZES["quick"]), results.all(), "quick").write(tmp_path / "report")
    assert json.loads((tmp_path / "report" / "report.json").read_text())["experiments"].keys() == {
        "fewest-moves"
    }
    again = Report(experiments(SIZES["quick"]), read_tables(tmp_path / "report"), "quick")
    again.publish(tmp_path / "BENCHMARKS.md", tmp_path / "docs")
    text = (tmp_path / "BENCHMARKS.md").read_text()
    assert "|  | bins moved |" in text
    assert "| contiguous | 115 |" in text
    assert "| the Meces paper claims |\n| --- |\n| 15, and 115 with contiguous ranges |" in text
    assert "Run it: `make bench ONLY=fewest-moves`." in text


def test_final_states_are_compared_among_the_runs_of_one_input():
    def ended(repeat, workload, digest):
        return Record(
            "rescale", {"run": "idle"}, repeat, {"workload": workload, "digest": digest, "others": 0.01}
        )

    records = [ended(0, "a", "1f"), ended(1, "a", "1f"), ended(2, "b", "2e"), ended(3, "a", ""), record(0, 1.0)]
    assert final_states(records) == {
        "a": {"1f": ["rescale_run=idle_0", "rescale_run=idle_1"]},
        "b": {"2e": ["rescale_run=idle_2"]},
    }
    assert "The final state of 2 runs of a is the same." in str(Report([], records, "quick"))
    assert "runs of b is DIFFERENT" in str(Report([], [*records, ended(4, "b", "2f")], "quick"))


def test_runs_are_the_same_after_they_were_kept_as_tables(tmp_path):
    waits, epochs = [{"at": 0.5, "latency": 1.0}], [{"at": 0.1, "took_ms": 5, "rows": 2, "adopted": 0}]
    records = [Record("rescale", {"run": "idle"}, 0, {"ratio": 1.1, "bins": [1, 2, 3]}, epochs, waits)]
    records += [Record("throughput", {"bins": 16, "load": "q3"}, 1, {"rows_per_second": 7.0})]
    write_tables(records, tmp_path)
    assert read_tables(tmp_path) == records


def test_a_run_that_other_processes_disturbed_does_not_count_and_is_done_again(tmp_path):
    def idle(repeat, others, ratio):
        values = {"workload": "q1", "latency_ratio": ratio, "others": others}
        return Record("noise", {"query": "q1", "run": "idle"}, repeat, values)

    calm, disturbed = idle(0, 0.01, 1.5), idle(1, 0.2, 9.0)
    results = Results(tmp_path)
    for one in (calm, disturbed):
        results.add(one)
    assert [results.has("noise", calm.case, n) for n in (0, 1, 2)] == [True, False, False]
    text = str(Report(experiments(SIZES["full"]), results.all(), "full"))
    assert "9.0" not in text
    assert "1 runs, where it was more than 5%, do not count." in text
    results.add(idle(1, 0.02, 1.6))
    assert results.has("noise", calm.case, 1)


def test_processes_that_end_take_nothing_back_of_what_the_own_ones_took():
    assert taken({1: 10.0, 2: 60.0}, {1: 10.5, 3: 0.25}) == 0.75
    assert taken({1: 10.0}, {1: 9.0}) == 0.0


def test_what_processes_take_that_the_benchmark_did_not_start_is_others():
    began, others = time.monotonic(), Others()
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    # The parent ends at once, so the process has no parent here. The output ends when its last holder ends.
    detached = ["setsid", "--fork", sys.executable, "-c", burn]
    assert subprocess.run(detached, stdout=subprocess.PIPE, check=True).stdout == b""
    assert others.share() * (time.monotonic() - began) * psutil.cpu_count() > 0.4


def test_a_boundary_between_batches_does_not_count_among_the_records_of_a_batch():
    second = 1_000_000_000
    # A record every tenth of a second, each 20 ms late; none for a second and a half from the tenth second on.
    steady = [(n * second // 10, 20_000_000) for n in [*range(100), *range(115, 200)]]
    waited = [(115 * second // 10 + n, (15 - n) * second // 10) for n in range(15)]
    outputs = sorted([*steady, *waited])
    assert longest_gap([at for at, _ in outputs]) == 1600
    assert max(late for _, late in outputs) == 1.5 * second
    between = between_boundaries(outputs, 1)
    assert set(between) == {20.0}
    assert len(between) < len(steady)


def test_figures_of_real_time_mode_pair_the_providers_of_a_repetition():
    experiment = next(e for e in experiments(SIZES["full"]) if e.id == "real-time")
    records = [
        Record("real-time", case.name, repeat, values)
        for repeat in range(2)
        for case in experiment.cases
        for values in [{"p50_ms": 30.0 + repeat if case.name["provider"] == "binshift" else 30.0,
                        "p99_ms": 1.0, "p99_between_ms": 1.0, "boundary_ms": 400.0}
                       | ({"change_ms": 600.0} if case.name["operator"] == "distinct" else {})]
    ]  # fmt: skip
    found = {f.what: f for f in experiment.figures(records)}
    assert found["median latency ÷ stock, steady: count"].high == 31 / 30
    assert found["longest gap of a change ÷ of a boundary: distinct, live"].value == 1.5
    assert not any("boundary: count" in what for what in found)
