"""A driver shows its queries over HTTP: as metrics for Prometheus, and in a tab of Spark's UI."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

from binshift import Batched, Fluid
from harness import Fault, held_up_at, until
from local.migrations import finish
from local.queries import count_by_key
from unit.test_monitoring import GAUGES, relabelled

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "jvm_shim/src/main/resources/org/apache/spark/sql/binshift/ui/bins-tab.js"


def get(spark, path, **headers):
    return answer(spark, path, **headers)[0]


def answer(spark, path, **headers):
    """The answer of the UI, and its headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with urlopen(Request(spark.sparkContext.uiWebUrl + path, headers=named), timeout=30) as response:
        return response.read().decode(), response.headers


def test_the_driver_logs_a_line_for_each_step_that_tools_can_take_apart(stream):
    run = stream(count_by_key).start(name="logged")
    run.run(0)
    log = run.spark._jvm.org.apache.spark.sql.binshift.TestLog
    log.listen()
    try:
        migration = run.attach().rescale(3, strategy=Batched(8), prepare=False)
        finish(run, migration, 1)
        heard = [line for line in log.heard() if str(run.query.id) in line]
    finally:
        log.end()
    history = run.attach().history().to_pylist()
    assert len(history) == len(migration.plan.steps) == 3
    lines = [line for line in heard if line.startswith("INFO binshift step: ")]
    found = [dict(part.split("=") for part in line.split(": ", 1)[1].split()) for line in lines]
    assert found == [
        {"query": str(run.query.id), "epoch": str(row["epoch"]), "migration": migration.id,
         "step": f"{row['step']}/3", "bins": str(row["bins_moved"]), "partitions": "3"}
        for row in history
    ]  # fmt: skip


def metrics_of(spark, query):
    """Values by name, of the metrics of one query."""
    text = get(spark, "/metrics/prometheus/")
    found = re.findall(rf"_driver_binshift_{query}_(\w+)_(?:Value|Number)\{{[^}}]*\}} (\S+)", text)
    return {name: float(value) for name, value in found}


def test_metrics_and_the_tab_show_a_query_as_long_as_it_runs(stream):
    run = stream(count_by_key).start(name="counts <b>&amp;")
    run.run(0)
    controller = run.attach()
    migration = controller.rescale(4, strategy=Fluid(), prepare=False)
    feeding = []
    with ThreadPoolExecutor(1) as pool:
        with held_up_at("switch.done", lambda: feeding.append(pool.submit(run.run, 1, 2, 3))):
            page = get(run.spark, "/bins/")
            said = r"64 bins in 4 partitions, in force since epoch (\d); 1 of them own no bins yet"
            (epoch,) = map(int, re.findall(said, page))
            assert (
                f"<h5>Partitions in epoch {epoch - 1}, the last one committed; 4 from epoch {epoch} on</h5>"
                in page
            )
        feeding[0].result()
    # A query is looked at once a second at most, and the page has just been.
    done = migration.status.steps_done
    assert until(lambda: metrics_of(run.spark, "counts__b__amp_")["migration_stepsDone"] == done)
    metrics = metrics_of(run.spark, "counts__b__amp_")
    assert (metrics["bins"], metrics["partitions"]) == (64, 4)
    assert metrics["migration_running"] == 1
    assert metrics["migration_stepsTotal"] == len(migration.plan.steps)
    assert metrics["migration_stepsDone"] == migration.status.steps_done > 0
    assert metrics["migration_binsAwaited"] == 0
    assert metrics["skew"] >= 1
    assert until(lambda: metrics_of(run.spark, "counts__b__amp_")["binsAdopted"] == migration.status.steps_done)
    assert metrics_of(run.spark, "counts__b__amp_")["bytesAdopted"] > 0

    names = re.findall(r"^(\w+)\{", get(run.spark, "/metrics/prometheus/"), re.MULTILINE)
    assert {r[0] for n in names if (r := relabelled(n))} == {f"binshift_{gauge}" for gauge in GAUGES}

    page = get(run.spark, "/bins/")
    assert "<h4>counts &lt;b&gt;&amp;amp;</h4>" in page
    assert "64 bins in 4 partitions, in force since epoch" in page
    assert "<h5>Partitions in epoch 3, the last one committed</h5>" in page
    assert f"{migration.id} (fluid): {migration.status.steps_done} of {len(migration.plan.steps)} steps" in page
    loads = re.findall(r"<tr>\s*<td>(\d+)</td>\s*<td>driver</td>\s*<td>(\d+)</td>\s*<td>(\d+)</td>", page)
    stats = controller.stats().to_pylist()
    for p in range(4):
        mine = [r for r in stats if r["partition"] == p]
        assert (str(p), str(len(mine)), str(sum(r["keys"] for r in mine))) in loads

    run.stop()
    assert until(lambda: not metrics_of(run.spark, "counts__b__amp_"))
    assert "counts &lt;b" not in get(run.spark, "/bins/")


def test_the_tab_is_refreshed_by_a_script_of_the_ui_itself_that_asks_for_the_part_that_changes(stream):
    run = stream(count_by_key).start(name="refreshed")
    run.run(0)
    page = get(run.spark, "/bins/")
    (source,) = re.findall(r'<script src="([^"]*/bins/[^"]*)"', page)
    script, headers = answer(run.spark, source)
    assert headers["Content-Type"].startswith("text/javascript")
    assert script == SCRIPT.read_text()
    # Spark allows scripts that it serves itself, and what they ask it for.
    policy = headers["Content-Security-Policy"]
    assert policy is None or "script-src 'self'" in policy
    assert not re.findall(r"https?://", script)
    # A proxy says below which path the browser has it, and the script asks for its own page, wherever that is.
    behind = get(run.spark, "/bins/", X_Forwarded_Context="/gateway/ui")
    assert f'<script src="/gateway/ui{source}"' in behind
    assert 'location.pathname + "?part=queries"' in script

    part = get(run.spark, "/bins/?part=queries")
    assert part.removeprefix("<!DOCTYPE html>").strip().startswith('<div id="binshift-queries">')
    assert "navbar" in page
    assert "navbar" not in part
    assert "<h5>The longest of the last 1 epochs</h5>" in part
    migration = run.attach().rescale(4, strategy=Fluid(), prepare=False)
    run.run(1, 2, 3)
    done = f"{migration.status.steps_done} of {len(migration.plan.steps)} steps done"
    assert until(lambda: done in get(run.spark, "/bins/?part=queries"))
    assert until(lambda: "in 4 partitions, in force since epoch" in get(run.spark, "/bins/?part=queries"))
    part = get(run.spark, "/bins/?part=queries")
    row = r'<tr>\s*<td>(\d+)</td>\s*<td sorttable_customkey="(\d+)">[^<]*</td>\s*<td>(\d+)</td><td>(\d+)</td>'
    rows = re.findall(row, part)
    reported = {p["batchId"]: p for p in run.query.recentProgress if "addBatch" in p["durationMs"]}
    assert len(rows) == len(reported) == 4
    assert [int(ms) for _, ms, _, _ in rows] == sorted((int(ms) for _, ms, _, _ in rows), reverse=True)
    assert {(int(e), int(ms), int(n)) for e, ms, n, _ in rows} == {
        (e, p["durationMs"]["triggerExecution"], p["numInputRows"]) for e, p in reported.items()
    }
    moved = sum(step["bins_moved"] for step in run.attach().history().to_pylist())
    assert sum(int(bins) for *_, bins in rows) == moved > 0


def test_a_checkpoint_that_does_not_answer_keeps_the_ends_of_other_queries_from_nobody(stream):
    hangs = stream(count_by_key, "hangs").start(name="hangs")
    hangs.run(0)
    hangs.attach()
    with Fault("statistics.save", "count") as saves, Fault("statistics.save", "block"):
        hangs.stop()
        assert until(lambda: saves.count == 1)
        other = stream(count_by_key, "other").start(name="other")
        other.run(0)
        assert until(lambda: metrics_of(other.spark, "other"))
        other.stop()
        assert until(lambda: not metrics_of(other.spark, "other"))
    assert until((hangs.checkpoint / "binshift" / "statistics.json").exists)
    assert until((other.checkpoint / "binshift" / "statistics.json").exists)
