"""The check of a checkpoint: its files are whole, and each bin is at its owner and nowhere else."""

import json
import shutil
import zipfile

import pyarrow as pa
import pyarrow.parquet
import pytest

import binshift.inspect
from binshift.errors import StateFormatError
from binshift.inspect.storage.compression import decompressed
from binshift.inspect.tools.fsck import Severity, fsck
from harness import entries
from local.inspected import PARAMETERS, Case, make, run
from local.processors import remembering, summing
from local.settings import NEEDS_JOIN_4, NO_CHANGELOG


@pytest.fixture
def copy(made, tmp_path):
    """A copy of a checkpoint, for a test to damage."""

    def copied(name, with_checksums=True):
        target = tmp_path / "copy"
        shutil.copytree(made(name).checkpoint, target)
        if not with_checksums:
            remove_checksums(target)
        return target

    return copied


@pytest.fixture
def snapshots_only(spark, tmp_path):
    """A checkpoint of two partitions without checksums, in which each version is a snapshot.

    No bin moves, so that no partition needs an old snapshot, or one of another partition.
    """
    run = make(spark, tmp_path, Case("tws-jvm", conf=NO_CHANGELOG, epochs=4, journey=()))
    remove_checksums(run.checkpoint)
    return run.checkpoint


@pytest.mark.long
@pytest.mark.parametrize("name", PARAMETERS)
def test_a_sound_checkpoint_is_found_sound(made, name):
    with binshift.inspect.open(made(name).checkpoint) as checkpoint:
        for version in checkpoint.versions[-3:]:
            # A query that is stopped may leave the checksum of a file that it was about to write.
            assert [f for f in fsck(checkpoint, version) if f.severity is Severity.DAMAGE] == []
    assert run("fsck", made(name).checkpoint).exit_code == 0


def test_variables_that_the_query_has_no_more_are_no_damage(stream):
    query = stream(remembering, conf=NO_CHANGELOG).start()
    query.run(0, 1)
    query.stop()
    query.build = summing
    query.start()
    query.run(2)
    query.stop()
    with binshift.inspect.open(query.checkpoint) as checkpoint:
        assert [f for f in fsck(checkpoint) if f.severity is Severity.DAMAGE] == []
    assert max(query.outputs) == 2


def remove_checksums(checkpoint):
    for path in checkpoint.rglob("*.crc"):
        path.unlink()


def newest(folder, pattern):
    return max(folder.glob(pattern), key=lambda p: int(p.name.split(".")[0].split("_")[0]))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def reroute(path):
    """Changes the routing log as if a bin belonged to another partition."""
    entry = json.loads(path.read_text())
    entry["assignment"] = [(p + 1) % entry["partitions"] for p in entry["assignment"]]
    path.write_text(json.dumps(entry))


def duplicate(partition):
    """Replaces a partition's files by those of another one."""
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
    "routing-gone": (lambda c: entries(c)[0].unlink(), "is not in binshift/routing"),
    "routing-lost": (lambda c: max(entries(c).items())[1].unlink(), "though epoch"),
    "routing-changed": (lambda c: reroute(max(entries(c).items())[1]), "was changed"),
    "routing-impossible": (lambda c: spoil(max(entries(c).items())[1]), "damaged"),
    "commit-gone": (lambda c: (c / "commits/3").unlink(), "is missing"),
    "offsets-gone": (lambda c: (c / "offsets/7").unlink(), "is missing"),
    "metadata-gone": (lambda c: shutil.rmtree(c / "state/0/_metadata"), "is missing"),
    "schema-gone": (lambda c: shutil.rmtree(c / "state/0/_stateSchema"), "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_kind_of_damage_is_found_without_checksum_files(copy, damage):
    """From the content of the files alone, as on object stores, where Spark may keep no checksums."""
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
    # Otherwise a snapshot of the same version would be read instead.
    path.with_suffix(".zip").unlink(missing_ok=True)
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


def test_damaged_state_is_refused_when_it_is_read(snapshots_only):
    checkpoint = snapshots_only
    for file in (checkpoint / "state/0/1/SSTs").glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[: len(data) // 2 : 16] = bytes(b ^ 0x10 for b in data[: len(data) // 2 : 16])
        file.write_bytes(data)
    with binshift.inspect.open(checkpoint) as opened, pytest.raises(StateFormatError, match="damaged"):
        opened.scan(family="values", partitions=[1]).read_all()
    assert run("state", "get", checkpoint, "--family", "values", "--partition", 1).exit_code == 9


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


def test_a_purge_that_was_stopped_is_no_damage(snapshots_only):
    """Spark first deletes the files of versions that it no longer keeps, and then the versions."""
    checkpoint = snapshots_only
    partition = checkpoint / "state/0/1"
    versions = sorted(int(p.stem.split("_")[0]) for p in partition.glob("*.zip"))
    old = versions[0] + 1
    assert old < versions[-1]
    # As the oldest, with a file more, which is gone.
    with zipfile.ZipFile(partition / f"{versions[0]}.zip") as whole:
        contents = {name: whole.read(name) for name in whole.namelist()}
    gone = b'"sstFiles":[{"localFileName":"9.sst","dfsSstFileName":"9-gone.sst","sizeBytes":9},'
    contents["metadata"] = contents["metadata"].replace(b'"sstFiles":[', gone)
    with zipfile.ZipFile(partition / f"{old}.zip", "w") as lacking:
        for name, content in contents.items():
            lacking.writestr(name, content)
    done = run("fsck", checkpoint)
    assert (done.exit_code, f"damage: state/0/1/{old}.zip" in done.stdout) == (9, True), done.output
    for log in ("commits", "offsets"):
        for batch in range(old - 1):
            (checkpoint / log / str(batch)).unlink()
    done = run("fsck", checkpoint)
    assert (done.exit_code, f"orphan: state/0/1/{old}.zip" in done.stdout) == (0, True), done.output


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
