"""Commands on a running query and on a stopped one."""

import json
import threading

import pytest
from click.testing import CliRunner

from binshift import Bounded, Fluid
from binshift.cli.main import cli
from binshift.control.directory import open_directory
from binshift.control.liveness import has_ended, query_runs
from binshift.control.mailbox import Mailbox
from binshift.session import PROVIDER, PROVIDER_KEY
from harness import StreamRun, until
from local.queries import count_by_key


class Live:
    """A query that gets data while a command waits for its answer."""

    def __init__(self, run: StreamRun) -> None:
        self.run = run
        self.epoch = 0

    def feed(self) -> None:
        self.run.run(self.epoch)
        self.epoch += 1

    def command(self, name, *arguments):
        results = []
        line = [name, str(self.run.checkpoint), *map(str, arguments)]
        thread = threading.Thread(target=lambda: results.append(CliRunner().invoke(cli, line)))
        thread.start()
        while thread.is_alive():
            self.feed()
        assert results[0].exit_code == 0, results[0].output
        return results[0]


@pytest.fixture
def live(stream):
    made = Live(stream(count_by_key).start())
    made.feed()
    return made


def test_the_command_line_rescales_and_rebalances_a_running_query_and_leaves_plans_for_a_stopped_one(live):
    status = json.loads(live.command("status", "--json", "--live", 60).stdout)
    assert status["live"]["routing"]["partitions"] == 2
    arguments = ("--wait", 120, "--json", "--no-prepare", "--strategy", "optimized:8")
    done = json.loads(live.command("rescale", 4, *arguments).stdout)
    assert (done["state"], done["steps_done"]) == ("finished", 2)
    controller = live.run.attach()
    assert controller.routing().partitions == 4
    undone = live.command("rollback", "--wait", 120)
    assert undone.stdout == f"migration {done['migration_id']} is rolled back\n"
    assert controller.routing().partitions == 2
    limits = ("--deadline", "1 h", "--on-timeout", "rollback", "--guard-longest-epoch", 600)
    again = json.loads(live.command("rescale", 4, *arguments, *limits).stdout)
    assert (again["state"], controller.routing().partitions) == ("finished", 4)
    balanced = live.command("rebalance", "--by", "bytes", "--max-moves", 3, "--wait", 120, "--no-prepare")
    assert "LoadTarget: 4 -> 4 partitions" in balanced.stderr
    history = json.loads(live.command("history", "--json").stdout)
    mine = controller.history().to_pylist()
    assert [(h["epoch"], h["step"]) for h in history] == [(h["epoch"], h["step"]) for h in mine]
    # Plans and skew are computed from the statistics.
    assert controller.skew("rows").by == "rows"
    bounded = controller.plan(6, strategy=Bounded(Fluid(), max_bytes_per_step=1))
    assert bounded.bytes_to_move == sum(bounded.bin_bytes[m.bin] for m in bounded.moves) > 0
    directory = open_directory(str(live.run.checkpoint))
    assert not has_ended(directory)
    assert query_runs(directory, 60)
    live.run.stop()
    assert until(lambda: has_ended(directory))
    left = CliRunner().invoke(cli, ["rescale", str(live.run.checkpoint), "2", "--no-prepare"])
    assert left.exit_code == 0, left.output
    live.run.start()
    live.feed()
    controller = live.run.attach()
    assert until(lambda: live.feed() or controller.routing().partitions == 2)
    expected = {r.k: r["count"] for r in live.run.batch().groupBy("k").count().collect()}
    assert {key[0]: value[0] for key, value in live.run.state()} == expected


def test_the_doctor_asks_a_running_query_for_its_settings_and_tells_no_others(stream):
    live = Live(stream(count_by_key, conf={"spark.hadoop.fs.s3a.secret.key": "hush"}).start())
    live.feed()
    live.feed()
    out = live.command("doctor", "--json", "--wait", 60).stdout
    found = {c["about"]: c["verdict"] for c in map(json.loads, out.splitlines())}
    fine = ("file system", "checkpoint", "changelogs", "query", "executors")
    assert found == dict.fromkeys(fine, "fine")
    told = Mailbox(open_directory(str(live.run.checkpoint))).ask("settings", 60)
    assert told["partitions"] == live.run.attach().routing().partitions
    assert told["settings"][PROVIDER_KEY] == PROVIDER
    assert "hush" not in json.dumps(told)
