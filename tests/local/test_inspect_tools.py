"""Commands that inspect checkpoints: show, get, stats, differences, and files."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet
import pyspark
import pytest
from pyarrow import fs

import binshift.inspect
from binshift import ConfigurationError
from binshift.inspect.lookup import bin_of_key
from binshift.inspect.tools.diff import Side, diff
from local.inspected import comparable, run


def read(checkpoint, version, family):
    """All values of each key of a version."""
    out = {}
    for row in checkpoint.scan(version=version, family=family).read_all().to_pylist():
        out.setdefault(repr(row["key"]), []).append(row["value"])
    return out


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("tws", "count"),
        ("tws", "values"),
        ("tws", "minutes"),
        ("tws", "$eventTimers_timestampToKey"),
        ("session-stock", None),
    ],
)
def test_a_difference_of_versions_is_that_of_their_rows(made, name, family):
    with binshift.inspect.open(made(name).checkpoint) as checkpoint:
        first, last = checkpoint.versions[1], checkpoint.versions[-1]
        before, after = read(checkpoint, first, family), read(checkpoint, last, family)
        sides = [Side(checkpoint, checkpoint.source(family=family, version=v)) for v in (first, last)]
        is_list = sides[0].source.family.is_multi_valued
        found = {}
        for row in diff(*sides).read_all().to_pylist():
            values = [v if is_list or v is None else [v] for v in (row["before"], row["after"])]
            assert found.setdefault(repr(row["key"]), (row["change"], *values)) == (row["change"], *values)
    expected = {k: ("removed", v, None) for k, v in before.items() if k not in after}
    expected |= {k: ("added", None, v) for k, v in after.items() if k not in before}
    expected |= {k: ("changed", v, after[k]) for k, v in before.items() if k in after and after[k] != v}
    assert expected
    assert found == expected


def test_two_checkpoints_of_the_same_input_do_not_differ_though_one_has_bins(made, stream, tmp_path):
    from harness import STOCK
    from local.settings import IDS, new

    stock = new(stream, "tws-jvm", STOCK, IDS).start()
    stock.run(*range(8))
    stock.stop()
    with (
        binshift.inspect.open(made("tws").checkpoint) as mine,
        binshift.inspect.open(stock.checkpoint) as other,
    ):
        assert mine._facts.settings(8).has_row_checksums != pyspark.__version__.startswith("4.1.")
        for family in ("count", "values", "minutes", "$eventTimers_keyToTimestamp"):
            sides = [Side(c, c.source(family=family)) for c in (mine, other)]
            assert diff(*sides).read_all().num_rows == 0
            older = Side(other, other.source(family=family, version=7))
            assert diff(sides[0], older).read_all().num_rows > 0
        with pytest.raises(ConfigurationError, match="other columns"):
            diff(Side(mine, mine.source(family="count")), Side(other, other.source(family="minutes")))
    done = run("state", "diff", made("tws").checkpoint, stock.checkpoint, "--family", "count", "--json")
    assert (done.exit_code, done.stdout) == (0, "")


def test_exported_files_hold_what_was_read(made, tmp_path):
    checkpoint = made("types").checkpoint
    done = run("state", "export", checkpoint, "--output", tmp_path / "out", "--json")
    (file,) = (tmp_path / "out").iterdir()
    with binshift.inspect.open(checkpoint) as opened:
        rows = opened.scan().read_all()
    assert json.loads(done.stdout) == {"path": str(file), "rows": rows.num_rows}
    stored = pyarrow.parquet.read_table(file)
    assert comparable([tuple(r.values()) for r in stored.to_pylist()]) == comparable(
        [tuple(r.values()) for r in rows.to_pylist()]
    )
    both = run("state", "diff", checkpoint, checkpoint, "--output", tmp_path / "no", "--json")
    assert (both.exit_code, (tmp_path / "no").exists()) == (2, False)
    for format in ("json", "csv"):
        out = tmp_path / format
        done = run("state", "export", checkpoint, "--bin", 1, "--format", format, "--output", out)
        assert done.exit_code == 0
        (path,) = out.iterdir()
        some = [r for r in rows.to_pylist() if r["bin"] == 1]
        if format == "json":
            read = [json.loads(line) for line in path.read_text().splitlines()]
            assert [(r["key"]["k"], r["key"]["st"]) for r in read] == [
                (r["key"]["k"], r["key"]["st"]) for r in some
            ]
            assert [r["key"]["d38"] for r in read] == [f"{r['key']['d38']:f}" for r in some]
        else:
            with path.open(newline="") as file:
                read = list(csv.DictReader(file))
            assert [(r["key.k"], int(r["key.i16"])) for r in read] == [
                (r["key"]["k"], r["key"]["i16"]) for r in some
            ]
            assert [json.loads(r["key.st"]) for r in read] == [r["key"]["st"] for r in some]


def test_the_command_shows_keys_bins_and_counts(made):
    checkpoint = made("tws").checkpoint
    overview = run("state", "show", checkpoint)
    assert overview.exit_code == 0
    assert "12 bins in 3 partitions" in overview.stdout
    assert "$eventTimers_keyToTimestamp" in overview.stdout
    found = run("state", "get", checkpoint, "key7", "--family", "count", "--json")
    (row,) = [json.loads(line) for line in found.stdout.splitlines()]
    assert row["key"] == {"value": "key7"}
    head = run("state", "get", checkpoint, "--family", "values", "--bin", row["bin"], "--head", "2", "--json")
    assert [json.loads(line)["bin"] for line in head.stdout.splitlines()] == [row["bin"]] * 2
    counted = run("state", "stats", checkpoint, "--json")
    counts = [json.loads(line) for line in counted.stdout.splitlines()]
    with binshift.inspect.open(checkpoint) as opened:
        assert (
            sum(c["keys"] for c in counts if c["family"] == "minutes")
            == opened.scan(family="minutes").read_all().num_rows
        )
    history = json.loads(run("history", checkpoint, "--json").stdout)
    assert [h["partitions"] for h in history] == [4, 1, 3]
    changed = run("state", "diff", f"{checkpoint}@7", f"{checkpoint}@8", "--family", "count", "--json")
    assert {json.loads(line)["change"] for line in changed.stdout.splitlines()} <= {
        "added",
        "changed",
        "removed",
    }


def test_wrong_arguments_have_messages_and_exit_codes(made, tmp_path):
    checkpoint = made("tws").checkpoint
    for arguments, code, message in [
        (["state", "show", tmp_path], 3, "is not the checkpoint"),
        (["state", "get", checkpoint, "--head", 3], 3, "name one of"),
        (["state", "show", checkpoint, "--version", 99], 3, "it has 1 to 8"),
        (["state", "get", checkpoint, "--family", "count", "--bin", 99], 3, "bins are 0 to 11"),
        (
            ["state", "get", checkpoint, '{"nothing": 1}', "--family", "count"],
            3,
            "column nothing of a key of count is impossible",
        ),
        (["state", "get"], 2, "CHECKPOINT"),
        (["state", "diff", checkpoint], 2, "AFTER"),
        (["state", "export", checkpoint, "--family", "none", "--output", tmp_path], 3, "nothing of"),
        (["fsck", tmp_path], 3, "is not the checkpoint"),
    ]:
        done = run(*arguments)
        assert (done.exit_code, message in done.stderr) == (code, True), (arguments, done.output)
    assert "Example" in run("fsck", "--help").stdout


def test_checkpoints_are_read_from_any_file_system_of_pyarrow(made):
    root = made("tws").checkpoint
    subtree = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())
    with (
        binshift.inspect.open(root) as local,
        binshift.inspect.open(f"file://{root}") as by_uri,
        binshift.inspect.open("", filesystem=subtree) as elsewhere,
    ):
        expected = local.scan(family="values").read_all()
        assert by_uri.scan(family="values").read_all() == expected
        assert elsewhere.scan(family="values").read_all() == expected
    with pytest.raises(ConfigurationError, match="cannot open"):
        binshift.inspect.open("gopher://somewhere")


def test_bins_are_those_of_spark_s_own_hash(spark):
    from binshift.inspect.decoding import types
    from binshift.inspect.decoding.binning import bins_of_keys
    from binshift.inspect.decoding.schema import Family, Store
    from local.inspected import KEYS

    columns = [n for n in KEYS if n not in ("st", "sarr", "d38", "ym", "dts")]
    data = [(f"key{i}", i, "2026-01-01 00:00:07") for i in range(40)]
    df = spark.createDataFrame(data, "k string, v long, t string").selectExpr(
        "k", "t", *[f"{KEYS[n]} as {n}" for n in columns], "cast(t as timestamp) as ts", "-0.0d as z"
    )
    more = ("repeat(concat(k, 'ä€'), i32 % 4) as s", "if(b, named_struct('x', i8, 'y', n), null) as ns")
    columns = [*columns, "ts", "z", "s", "ns"]
    df = df.selectExpr("*", *more)
    hashed = df.selectExpr(*columns, f"pmod(hash({', '.join(columns)}), 997) as home")
    kind = types.parse_struct(hashed.select(columns).schema.json())
    family = Family("default", key=kind, value=kind)
    store = Store("default", families=(family,), has_families=False)
    table = hashed.toArrow().combine_chunks()
    homes = table["home"].to_pylist()
    assert len(set(homes)) > 30
    keys = pa.StructArray.from_arrays(
        [table[f.name].combine_chunks().cast(f.type) for f in kind.arrow], fields=list(kind.arrow)
    )
    assert bins_of_keys(keys, store, family, 997).tolist() == homes
    assert bins_of_keys(keys.slice(7, 9), store, family, 997).tolist() == homes[7:16]
    # A struct that is null has no columns that a user could name.
    rows = [(r, h) for r, h in zip(keys.to_pylist(), homes, strict=True) if r["ns"] is not None]
    assert [bin_of_key(r, store, family, 997) for r, _ in rows] == [h for _, h in rows]
    odd = types.parse_struct(
        '{"type":"struct","fields":[{"name":"k","type":"decimal(38, 6)","nullable":true}]}'
    )
    column = pa.StructArray.from_arrays([pa.nulls(1, odd.arrow.field(0).type)], fields=list(odd.arrow))
    assert bins_of_keys(column, store, Family("default", key=odd, value=odd), 997) is None
