"""Binshift without its extras: what works, and the errors for missing ones; each test has its own process."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from unit.checkpoints import TWO, HandWritten

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
#: A program that makes imports of the named modules fail, as if they weren't installed.
BLOCKED = """
import sys
import importlib.abc

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
SPARK = {"pyspark", "py4j"}
EXTRAS = SPARK | {"click", "rocksdict", "google_crc32c", "xxhash", "hdfs_native", "matplotlib"}


def run(program, *blocked, arguments=()):
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(blocked=set(blocked)) + program, *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_the_package_pulls_no_pyspark_and_what_all_pulls_is_in_the_other_extras():
    names = {d.split(">")[0] for d in PYPROJECT["dependencies"]}
    assert names == {"numpy", "pyarrow", "tqdm"}
    assert PYPROJECT["optional-dependencies"]["all"] == ["binshift[spark,cli,inspect,plot,connect,hdfs]"]


#: An expression of the API, libraries one of which the error has to name, and the extra that installs it.
NEEDS = [
    ("binshift.attach", ["pyspark"], "spark"),
    ("binshift.configure(None)", ["pyspark"], "spark"),
    ("binshift.jar_path()", ["pyspark"], "spark"),
    ("binshift.inspect", ["rocksdict", "google_crc32c", "xxhash"], "inspect"),
    ("binshift.MigrationReport.plot(report)", ["matplotlib"], "plot"),
]


def test_what_needs_a_library_says_which_extra_brings_it_and_the_rest_works():
    program = f"""
from types import SimpleNamespace
import binshift
table = binshift.RoutingTable(2, (0, 1) * 4)
assert len(binshift.Fluid().plan(table, table.balanced(4)).steps) == 4
assert {{"attach", "inspect", "configure"}} <= set(dir(binshift))
report = SimpleNamespace(epochs=(), timings=(), rollback=None, migration_id="m", strategy="fluid")
for expression, libraries, extra in {NEEDS}:
    try:
        eval(expression)
    except binshift.ConfigurationError as error:
        assert error.condition == "LIBRARY_MISSING", error
        assert error.library in libraries, error
        assert error.extra == extra and f"binshift[{{extra}}]" in str(error), error
    else:
        raise AssertionError(expression)
"""
    code, _, err = run(program, *EXTRAS)
    assert code == 0, err


def test_a_client_of_spark_connect_hears_which_extra_it_lacks():
    program = """
from pyspark.sql import SparkSession
import binshift
try:
    binshift.configure(SparkSession.builder.remote("sc://localhost"))
except binshift.ConfigurationError as error:
    assert (error.condition, error.library, error.extra) == ("LIBRARY_MISSING", "grpc", "connect"), error
    assert "pip install 'binshift[connect]'" in str(error), error
else:
    raise AssertionError("configured")
"""
    code, _, err = run(program, "grpc")
    assert code == 0, err


COMMAND = "from binshift.cli import start\nstart()"


def test_the_command_line_says_that_click_is_missing():
    code, out, err = run(COMMAND, *EXTRAS, arguments=["--help"])
    assert (code, out) == (3, "")
    assert "the command line needs click" in err
    assert "binshift[cli]" in err


def test_the_command_line_reads_a_checkpoint_without_spark_and_without_rocksdb(tmp_path):
    checkpoint = str(HandWritten(tmp_path / "checkpoint", TWO, committed=5).root)
    commands = [
        ["status", checkpoint],
        ["state", "read", checkpoint],
        ["fsck", "--help"],
        ["--help"],
        ["convert", checkpoint, "--to", "rocksdb"],
        ["jar", "--spark", "4.3.0"],
    ]
    program = f"""
import json
from click.testing import CliRunner
from binshift.cli.main import cli
results = [CliRunner().invoke(cli, arguments) for arguments in {commands}]
print(json.dumps([(r.exit_code, r.output) for r in results]))
"""
    code, out, err = run(program, *EXTRAS - {"click"})
    assert code == 0, err
    status, read, fsck, help, convert, jar = json.loads(out)
    assert status[0] == 0
    assert "5 committed" in status[1]
    assert read[0] == fsck[0] == convert[0] == 3
    assert "reading state needs" in read[1]
    assert "binshift[inspect]" in fsck[1]
    assert "binshift.convert needs p" in convert[1]
    assert "binshift[spark]" in convert[1]
    assert help[0] == 0
    assert help[1].count("Not here") == 4
    assert jar[0] == 0
    assert Path(jar[1].strip()).is_file()
