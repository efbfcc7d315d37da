"""Commands that look into checkpoints: differences, files, and the check of files and bins."""

import csv
import json
import shutil

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from pyarrow import fs

import binshift.inspect
from binshift import ConfigurationError
from binshift.cli.main import cli
from binshift.errors import StateFormatError
from binshift.inspect.lookup import bin_of_key
from binshift.inspect.storage.compression import decompressed
from binshift.inspect.tools.diff import Side, diff
from binshift.inspect.tools.fsck import Severity, fsck
from local.inspected import PARAMETERS, comparable
from local.settings import NEEDS_JOIN_4


def run(name, *arguments):
    return CliRunner().invoke(cli, [name, *map(str, arguments)])


@pytest.fixture
def copy(made, tmp_path):
    """A copy of a checkpoint, to be damaged."""

    def copied(name, with_checksums=True):
        target = tmp_path / "copy"
        shutil.copytree(made(name).checkpoint, target)
        if not with_checksums:
            for path in target.rglob("*.crc"):
                path.unlink()
        return target

    return copied


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
        assert mine._facts.settings(8).has_row_checksums
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
        (["state", "show", tmp_path], 3, "is no checkpoint"),
        (["state", "get", checkpoint, "--head", 3], 3, "name one of"),
        (["state", "show", checkpoint, "--version", 99], 3, "it has 1 to 8"),
        (["state", "get", checkpoint, "--family", "count", "--bin", 99], 3, "bins are 0 to 11"),
        (["state", "get", checkpoint, '{"nothing": 1}', "--family", "count"], 3, "have no nothing"),
        (["state", "get"], 2, "CHECKPOINT"),
        (["state", "diff", checkpoint], 2, "AFTER"),
        (["state", "export", checkpoint, "--family", "none", "--output", tmp_path], 3, "nothing of"),
        (["fsck", tmp_path], 3, "is no checkpoint"),
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


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_sound_checkpoint_is_found_sound(made, name):
    with binshift.inspect.open(made(name).checkpoint) as checkpoint:
        for version in checkpoint.versions[-3:]:
            # A query that is stopped may leave the checksum of a file that it was about to write.
            assert [f for f in fsck(checkpoint, version) if f.severity is Severity.DAMAGE] == []
    assert run("fsck", made(name).checkpoint).exit_code == 0


def newest(folder, pattern):
    return max(folder.glob(pattern), key=lambda p: int(p.name.split(".")[0].split("_")[0]))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def reroute(path):
    """The routing log as if a bin belonged to another partition."""
    entry = json.loads(path.read_text())
    entry["assignment"] = [(p + 1) % entry["partitions"] for p in entry["assignment"]]
    path.write_text(json.dumps(entry))


def duplicate(partition):
    """The files of another partition in the place of its own."""
    shutil.rmtree(partition)
    shutil.copytree(partition.with_name("2"), partition)


def spoil(path):
    path.write_text(path.read_text().replace('"assignment":[0', '"assignment":[99'))


DAMAGES = {
    "changelog-gone": (lambda c: newest(c / "state/0/0", "*.changelog").unlink(), "is missing"),
    "changelog-cut": (lambda c: cut(newest(c / "state/0/0", "*.changelog")), "ends"),
    "changelog-flipped": (lambda c: flip(newest(c / "state/0/0", "*.changelog")), "damaged"),
    "snapshot-gone": (lambda c: [p.unlink() for p in (c / "state/0/2").glob("*.zip")], "is missing"),
    "snapshot-cut": (lambda c: cut(newest(c / "state/0/2", "*.zip")), "damaged"),
    "sst-gone": (lambda c: [p.unlink() for p in (c / "state/0/2/SSTs").glob("*.sst")], "is missing"),
    "sst-cut": (lambda c: [cut(p) for p in (c / "state/0/2/SSTs").glob("*.sst")], "instead of"),
    "sst-flipped": (lambda c: [flip(p) for p in (c / "state/0/2/SSTs").glob("*.sst")], "RocksDB"),
    "partition-gone": (lambda c: shutil.rmtree(c / "state/0/1"), "cannot be read"),
    "partition-twice": (lambda c: duplicate(c / "state/0/1"), "which belongs to partition 2"),
    "routing-gone": (lambda c: (c / "binshift/routing/0").unlink(), "no entry"),
    "routing-lost": (lambda c: newest(c / "binshift/routing", "[0-9]*").unlink(), "though epoch"),
    "routing-changed": (lambda c: reroute(newest(c / "binshift/routing", "[0-9]*")), "belongs to partition"),
    "routing-impossible": (lambda c: spoil(newest(c / "binshift/routing", "[0-9]*")), "damaged"),
    "commit-gone": (lambda c: (c / "commits/3").unlink(), "is missing"),
    "offsets-gone": (lambda c: (c / "offsets/7").unlink(), "is missing"),
    "metadata-gone": (lambda c: shutil.rmtree(c / "state/0/_metadata"), "is missing"),
    "schema-gone": (lambda c: shutil.rmtree(c / "state/0/_stateSchema"), "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_kind_of_damage_is_found_without_checksum_files(copy, damage):
    """By what the files hold, as on object stores, where Spark may keep no checksums."""
    checkpoint = copy("tws", with_checksums=False)
    inflict, message = DAMAGES[damage]
    inflict(checkpoint)
    done = run("fsck", checkpoint)
    assert done.exit_code == 9, done.output
    assert message in done.stdout
    assert "damaged:" in done.stdout.splitlines()[-1]


@NEEDS_JOIN_4
def test_a_key_that_spark_would_look_for_in_another_bin_is_found(copy):
    checkpoint = copy("join-4", with_checksums=False)
    with binshift.inspect.open(checkpoint) as opened:
        table = opened.routing()
        source = opened.source(family="left-keyWithTsToValues")
        rows = opened.scan(source).read_all().to_pylist()
        partition, bin = rows[0]["partition"], rows[0]["bin"]
        (place,) = opened._places(source, bins=[bin])
        with opened._database(source, place) as (database, _):
            prefix = database.prefix(source.family.name)
    other = next(b for b in table.bins_of(partition) if b != bin)
    path = newest(checkpoint / place.directory, "*.changelog")
    with path.open("rb") as stream:
        data = b"".join(decompressed(stream, path.name))
    assert data.count(prefix + bin.to_bytes(2, "big") + b"\0") > 0
    at = prefix + bin.to_bytes(2, "big") + b"\0"
    path.write_bytes(
        pa.compress(data.replace(at, prefix + other.to_bytes(2, "big") + b"\0"), "zstd", asbytes=True)
    )
    done = run("fsck", checkpoint)
    assert done.exit_code == 9, done.output
    (message, _) = done.stdout.splitlines()
    assert f"rows of family left-keyWithTsToValues are in bin {other}" in message
    assert message.endswith(f", of bin {bin}")


@pytest.mark.parametrize("pattern", ["*.changelog", "*.zip", "SSTs/*.sst"])
def test_a_turned_bit_is_found_by_the_checksum_files_beside_old_files_too(copy, pattern):
    checkpoint = copy("tws")
    victim = min((checkpoint / "state/0/1").glob(pattern))
    flip(victim)
    with binshift.inspect.open(checkpoint) as opened:
        found = [f for f in fsck(opened) if f.severity is Severity.DAMAGE]
    assert any(victim.name in f.where and "checksum" in f.what for f in found)


def test_damaged_state_is_refused_when_it_is_read(copy):
    checkpoint = copy("tws", with_checksums=False)
    DAMAGES["sst-flipped"][0](checkpoint)
    with binshift.inspect.open(checkpoint) as opened, pytest.raises(StateFormatError, match="damaged"):
        opened.scan(family="values", partitions=[2]).read_all()
    assert run("state", "get", checkpoint, "--family", "values", "--partition", 2).exit_code == 9


def test_orphans_are_listed_and_do_no_harm(copy):
    checkpoint = copy("tws")
    (checkpoint / "state/0/0/SSTs/000099-of-nobody.sst").write_bytes(b"x")
    (checkpoint / "state/0/0/left-over.tmp").write_bytes(b"x")
    # A writer that died has written neither the file nor its checksum.
    unfinished = ".9.changelog.76dcbc00-efe2-4275-8c08-f4e6e35527e8.tmp"
    (checkpoint / f"state/0/0/{unfinished}").touch()
    (checkpoint / f"state/0/0/.{unfinished}.crc").touch()
    (checkpoint / "state/0/17").mkdir()
    done = run("fsck", checkpoint, "--json")
    assert done.exit_code == 0
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert {f["severity"] for f in findings} == {"orphan"}
    assert {f["where"].rsplit("/", 1)[-1] for f in findings} == {
        "000099-of-nobody.sst",
        "left-over.tmp",
        unfinished,
        "17",
    }


def test_what_a_killed_writer_left_unfinished_is_no_damage(copy):
    checkpoint = copy("tws")
    names = {
        ".10_one.changelog.76dcbc00-efe2-4275-8c08-f4e6e35527e8.tmp",
        ".10_one.changelog.crc.dcd030f7-bfab-4959-a33e-f128607b1991.TID33.tmp",
    }
    for name in names:
        (checkpoint / "state/0/0" / name).touch()
        # Hadoop's checksums of a local file are another file, which may have been cut short, too.
        (checkpoint / "state/0/0" / f".{name}.crc").touch()
    (checkpoint / "offsets/.9.dcd030f7-bfab-4959-a33e-f128607b1991.tmp").write_bytes(b"v1")
    (checkpoint / "offsets/..9.dcd030f7-bfab-4959-a33e-f128607b1991.tmp.crc").write_bytes(b"crc\0\0\0")
    done = run("fsck", checkpoint, "--json")
    assert done.exit_code == 0
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert {f["where"].rsplit("/", 1)[-1] for f in findings} == names
    assert {f["severity"] for f in findings} == {"orphan"}


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
    # A struct that is null has no columns of which a user could name one.
    rows = [(r, h) for r, h in zip(keys.to_pylist(), homes, strict=True) if r["ns"] is not None]
    assert [bin_of_key(r, store, family, 997) for r, _ in rows] == [h for _, h in rows]
    odd = types.parse_struct(
        '{"type":"struct","fields":[{"name":"k","type":"decimal(38, 6)","nullable":true}]}'
    )
    column = pa.StructArray.from_arrays([pa.nulls(1, odd.arrow.field(0).type)], fields=list(odd.arrow))
    assert bins_of_keys(column, store, Family("default", key=odd, value=odd), 997) is None
