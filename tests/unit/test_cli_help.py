"""The help and exit codes of all commands, and the commands that need no checkpoint."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import binshift
from binshift.cli import running
from binshift.cli.exits import EXIT_CODES
from binshift.cli.main import cli
from unit.checkpoints import Answering, alone, cluster


def test_jar_prints_the_path_that_spark_submit_takes():
    result = CliRunner().invoke(cli, ["jar"])
    assert (result.exit_code, result.stdout) == (0, f"{binshift.jar_path()}\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("plan",), 2),
        (("plan", "--partitions", 9), 4),
        (("rescale", 0), 4),
        (("rescale", 4, "--strategy", "slow"), 4),
        (("rescale", 4, "--strategy", "batched:0"), 4),
        (("plan", "--partitions", 4, "--gap", -1), 4),
        (("plan", "--partitions", 4, "--submit", "--start-epoch", -1), 4),
        (("rebalance", "--max-moves", -1), 4),
        (("drain", "9"), 4),
        (("rescale", 4, "--deadline", "soon"), 4),
        (("rescale", 4, "--on-timeout", "rollback"), 4),
        (("rebalance", "--by", "bins", "--guard-longest-epoch", 0), 4),
        (("rescale", 4, "--deadline", 5, "--on-timeout", "explode"), 2),
        (("plan", "--partitions", 4, "--deadline", 5), 2),
    ],
)
def test_wrong_arguments_have_their_exit_codes_and_no_message_names_an_argument_of_python(
    run, checkpoint, arguments, code
):
    with Answering(checkpoint, lambda r: cluster(r) if r["kind"] != "placement" else alone(1)):
        result = run(*arguments, code=code)
    assert not re.search(r"[a-z_]=", result.stderr), result.stderr


STATE: Any = cli.commands["state"]


COMMANDS: list[tuple[str, ...]] = [(name,) for name in cli.commands]


COMMANDS += [("state", name) for name in STATE.commands]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_a_summary_an_example_and_exit_codes(command):
    summary, _, rest = CliRunner().invoke(cli, [*command, "--help"]).output.partition("Options:")
    example = rest.partition("Example:")[2]
    assert re.search(f"binshift {' '.join(command)}\\b", example)
    assert "Exit codes: 0 done" in example
    group = CliRunner().invoke(cli, [*command[:-1], "--help"]).output
    (line,) = [x for x in group.splitlines() if x.split()[:1] == [command[-1]]]
    assert not line.endswith("...")
    assert line.split(None, 1)[1] in " ".join(summary.split())


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("status", "012356"),
        ("plan", "01234567"),
        ("history", "0123"),
        ("rescale", "01234567"),
        ("rebalance", "01234567"),
        ("drain", "01234567"),
        ("cancel", "012356"),
    ],
)
def test_a_command_names_the_exit_codes_that_it_can_give(command, codes):
    out = " ".join(CliRunner().invoke(cli, [command, "--help"]).output.split()).partition("Exit codes: ")[2]
    assert "".join(re.findall(r"(?:^|, )(\d) ", out)) == codes


def test_the_help_names_the_exit_code_of_each_family():
    out = " ".join(CliRunner().invoke(cli, ["--help"]).output.split())
    for kind, code in EXIT_CODES.items():
        assert f"{code} {kind.__name__}" in out


def test_the_demo_is_that_of_the_source_tree_and_its_exit_code_is_kept(monkeypatch, tmp_path):
    (tmp_path / "examples").mkdir()
    script = tmp_path / "examples/flights"
    script.write_text("import sys; sys.exit(3 + (sys.argv[1:] == ['--cluster']))")
    monkeypatch.setattr(binshift, "__file__", str(tmp_path / "binshift/__init__.py"))
    assert CliRunner().invoke(cli, ["demo", "--cluster"]).exit_code == 4
    script.unlink()
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 3
    assert "make setup" in result.stderr


def test_the_benchmarks_that_are_offered_are_there():
    for script in running._BENCHMARKS.values():
        assert (Path(binshift.__file__).parents[1] / script).is_file()


def test_how_a_plan_is_carried_out_is_not_said_in_vain(run):
    for option in (("--start-epoch", 9), ("--no-prepare",), ("--place-on", "1"), ("--wait", 5)):
        assert "--submit" in run("plan", "--partitions", 4, *option, code=2).stderr
