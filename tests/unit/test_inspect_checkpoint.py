"""What a checkpoint that is read says to those who ask for what it does not have."""

import json
import random
import re

import pytest
from click.testing import CliRunner
from pyarrow import fs

import binshift.inspect
from binshift import ConfigurationError, RoutingTable
from binshift.cli.main import cli
from checkpoints import FAMILIES, Writer
from unit.checkpoints import HandWritten

BINS = 5


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A join of 5 bins, at versions 1 to 3."""
    root = tmp_path_factory.mktemp("join")
    writer = Writer(root, random.Random(7), BINS, False, False, False)
    for _ in range(3):
        writer.epoch(2, [0, 0, 0, 1, 1])
    return root


@pytest.fixture
def opened(root):
    with binshift.inspect.open(root) as checkpoint:
        yield checkpoint


def test_what_fits_the_words_is_named_in_words_and_not_in_options_of_the_command_line(opened, root):
    with pytest.raises(ConfigurationError, match="several things fit; name one of: ") as refused:
        opened.source()
    with pytest.raises(ConfigurationError, match="nothing fits; name one of: ") as other:
        opened.source(family="nobody's")
    for error in (refused, other):
        for family in FAMILIES:
            assert f"operator 0, store default, family {family}" in str(error.value)
        assert "--" not in str(error.value)
    result = CliRunner().invoke(cli, ["state", "get", str(root)])
    assert (result.exit_code, str(refused.value) in result.stderr) == (3, True)


@pytest.mark.parametrize(
    ("ask", "condition", "parameters"),
    [
        ({}, "SOURCE_AMBIGUOUS", {"operator": None, "store": None, "family": None}),
        ({"family": "none"}, "SOURCE_NOT_FOUND", {"operator": None, "store": None, "family": "none"}),
        ({"family": "count", "version": 99}, "VERSION_NOT_FOUND", {"version": 99}),
        ({"family": "count", "partitions": [7]}, "INVALID_VALUE", {"name": "partitions", "value": 7}),
        ({"family": "count", "bins": [4, 5]}, "INVALID_VALUE", {"name": "bins", "value": (4, 5)}),
        *(
            ({"family": "count", "batch_rows": n}, "INVALID_VALUE", {"name": "batch_rows", "value": n})
            for n in (0, -1, True, 2.5, "4", None)
        ),
    ],
)
def test_what_is_not_there_has_a_condition_and_the_values_that_were_asked_for(
    opened, ask, condition, parameters
):
    with pytest.raises(ConfigurationError) as refused:
        opened.scan(**ask)
    assert (refused.value.condition, refused.value.parameters) == (condition, parameters)


@pytest.mark.parametrize(
    ("key", "name", "value"), [({}, "key", {}), ({"x": 1}, "key", "x"), ({"k": "text"}, "k", "text")]
)
def test_a_key_that_the_family_cannot_have_is_named(opened, key, name, value):
    with pytest.raises(ConfigurationError) as refused:
        opened.lookup(key, family="left-tsWithKey")
    assert refused.value.condition == "INVALID_VALUE"
    assert refused.value.parameters == {"name": name, "value": value}


def test_a_query_without_state_is_told_and_nothing_is_offered(tmp_path):
    stateless = HandWritten(tmp_path / "stateless", RoutingTable(2, (0, 1) * 4), committed=5)
    result = CliRunner().invoke(cli, ["state", "get", str(stateless.root)])
    assert result.exit_code == 3
    assert re.search(r"has no state[^:;]*$", result.stderr.splitlines()[0])


def test_an_open_checkpoint_says_which_one_it_is(opened, root):
    assert repr(opened) == f"<Checkpoint {root}>"


@pytest.mark.parametrize("name", ["layout.json", "routing/0"])
def test_a_file_of_a_later_format_is_refused_by_name(tmp_path, name):
    HandWritten(tmp_path, RoutingTable(2, (0, 1)), committed=0)
    file = tmp_path / "binshift" / name
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 2}))
    told = f"{file} has format 2; this binshift reads format 1; use the binshift version that wrote"
    with (
        pytest.raises(ConfigurationError, match=re.escape(told)) as refused,
        binshift.inspect.open(tmp_path) as checkpoint,
    ):
        checkpoint.routing()
    assert refused.value.condition == "UNKNOWN_FORMAT"
    assert refused.value.parameters == {"file": f"binshift/{name}", "format": 2}


def test_state_is_written_below_a_uri_with_parameters_and_no_secret_is_printed(root, tmp_path, monkeypatch):
    opened, family = [], next(iter(FAMILIES))

    def local(uri):
        opened.append(uri)
        return fs.LocalFileSystem(), str(tmp_path / "out")

    monkeypatch.setattr("binshift.inspect.tools.export.file_system_of", local)
    into = "s3://KEY:SECRET@bucket/out?region=eu-west-1"
    command = ["state", "export", str(root), "--family", family, "--output", into]
    results = [CliRunner().invoke(cli, [*command, *more]) for more in ([], ["--json"])]
    differ = ["state", "diff", f"{root}@2", f"{root}@3", "--family", family, "--output", into]
    results.append(CliRunner().invoke(cli, differ))
    for result in results:
        assert result.exit_code == 0, result.output
        assert "s3://***@bucket/out" in result.output
        assert not any(secret in result.output for secret in ("KEY", "SECRET"))
    name = f"0-{family}.parquet"
    written = f"s3://KEY:SECRET@bucket/out/{name}?region=eu-west-1"
    assert opened == [written, written, into]
