"""Any sequence of routing tables and changes is read at every version as a model says that the state was.

The model moves rows between dictionaries; it knows nothing of changelogs, snapshots and families' numbers.
"""

import random
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import binshift.inspect
from binshift.errors import StateFormatError
from binshift.inspect.tools.fsck import Severity, fsck
from checkpoints import FAMILIES, Writer, home

BINS = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("switches")


@st.composite
def journeys(draw):
    """A table for each epoch: usually the table of the epoch before, else a random one."""
    tables = []
    for _ in range(draw(st.integers(1, 12))):
        if tables and draw(st.booleans()):
            tables.append(tables[-1])
        else:
            partitions = draw(st.integers(1, 4))
            tables.append(
                (partitions, draw(st.lists(st.integers(0, partitions - 1), min_size=BINS, max_size=BINS)))
            )
    return tables


def expected(state, family):
    return sorted(
        (p, bin, k, time, value)
        for p, rows in state.items()
        for (name, bin, k, time), values in rows.items()
        if name == family
        for value in values
    )


def found(checkpoint, version, family, **kwargs):
    batches = list(checkpoint.scan(version=version, family=family, batch_rows=3, **kwargs))
    assert all(0 < b.num_rows <= 3 for b in batches)
    rows = [r for b in batches for r in b.to_pylist()]
    return sorted(
        (r["partition"], r["bin"], r["key"]["k"], r["key"].get("__event_time", 0), r["value"]["n"])
        for r in rows
    )


@settings(max_examples=12, deadline=None)
@given(journeys(), st.integers(0, 1 << 32), st.booleans(), st.booleans(), st.booleans())
def test_every_version_of_every_journey_is_read_as_it_was(folder, journey, seed, checksums, commas, ids):
    rng = random.Random(seed)
    root = folder / "checkpoint"
    shutil.rmtree(root, ignore_errors=True)
    writer = Writer(root, rng, BINS, checksums, commas, ids)
    for partitions, owners in journey:
        writer.epoch(partitions, owners)
    with binshift.inspect.open(root, scratch=folder) as checkpoint:
        order = list(enumerate(writer.versions, 1))
        rng.shuffle(order)
        for version, state in order:
            for family in FAMILIES:
                assert found(checkpoint, version, family) == expected(state, family)
            bin = rng.randrange(BINS)
            some = [r for r in expected(state, "left-tsWithKey") if r[1] == bin]
            assert found(checkpoint, version, "left-tsWithKey", bins=[bin]) == some
        assert [str(f) for f in fsck(checkpoint)] == []
    assert [p.name for p in folder.iterdir()] == ["checkpoint"]


@settings(max_examples=25, deadline=None)
@given(journeys(), st.integers(0, 1 << 32), st.booleans(), st.booleans())
def test_a_version_is_read_with_no_more_files_than_its_recovery_needs(folder, journey, seed, checksums, ids):
    root = folder / "cleaned"
    shutil.rmtree(root, ignore_errors=True)
    writer = Writer(root, random.Random(seed), BINS, checksums, False, ids)
    for partitions, owners in journey:
        writer.epoch(partitions, owners)
    delete_what_no_recovery_needs(root, journey)
    with binshift.inspect.open(root, scratch=folder) as checkpoint:
        for family in FAMILIES:
            assert found(checkpoint, len(journey), family) == expected(writer.versions[-1], family)
        assert [str(f) for f in fsck(checkpoint) if f.severity is Severity.DAMAGE] == []
    shutil.rmtree(root)


def delete_what_no_recovery_needs(root, journey):
    """Deletes like a cleanup: of each partition, what is older than the oldest file that is needed."""

    def version(file):
        return int(file.name.split("_")[0].split(".")[0])

    def owner(bin, version):
        return journey[version - 1][1][bin]

    def newest_snapshot(partition, at):
        zips = (root / f"state/0/{partition}").glob("*.zip")
        return max((v for f in zips if (v := version(f)) <= at), default=0)

    def need(partition, at):
        oldest[partition] = min(oldest.get(partition, at), newest_snapshot(partition, at) or at)

    def trace(bin, partition, at):
        base = newest_snapshot(partition, at)
        need(partition, at)
        while at > base and owner(bin, at) == partition:
            need(partition, at)
            at -= 1
        if at > 0 and owner(bin, at) != partition:
            trace(bin, owner(bin, at), at)

    oldest = {}
    last = len(journey)
    partitions, owners = journey[-1]
    for partition in range(partitions):
        need(partition, last)
    for bin, partition in enumerate(owners):
        trace(bin, partition, last)
    for folder in (root / "state/0").iterdir():
        if folder.name.isdigit():
            for file in folder.glob("[0-9]*"):
                if file.is_file() and version(file) < oldest.get(int(folder.name), last + 1):
                    file.unlink()


def test_a_version_whose_source_is_gone_is_refused(folder):
    root = folder / "gone"
    writer = Writer(root, random.Random(7), BINS, False, False, False)
    writer.epoch(2, [0, 0, 0, 1, 1])
    for _ in range(3):
        writer.epoch(2, [0, 0, 0, 1, 1])
    # The bins come to a partition that existed before, whose changelog doesn't mention them.
    writer.epoch(2, [0, 0, 1, 1, 1])
    shutil.rmtree(root / "state/0/0")
    for snapshot in (root / "state/0/1").glob("5*.zip"):
        snapshot.unlink()
    with binshift.inspect.open(root, scratch=folder) as checkpoint:
        with pytest.raises(StateFormatError, match="partition 0 cannot be read at version 4"):
            checkpoint.scan(version=5, family="count", partitions=[1]).read_all()
        assert any("partition 0" in str(f) for f in fsck(checkpoint))
    shutil.rmtree(root)


@pytest.mark.parametrize("checksums", [False, True])
def test_a_key_in_the_bin_of_another_one_is_found(folder, checksums):
    root = folder / "strange"
    writer = Writer(root, random.Random(11), BINS, checksums, False, False)
    owners = [0, 0, 0, 1, 1]
    for _ in range(4):
        writer.epoch(2, owners)
    # Both bins and their rows are at the owner.
    writer.keys[0], writer.keys[1] = writer.keys[1], writer.keys[0]
    for _ in range(6):
        writer.epoch(2, owners)
    wrong = {}
    for rows in writer.versions[-1].values():
        for (family, bin, k, _), values in rows.items():
            if home(k, BINS) != bin:
                wrong.setdefault((family, bin), []).extend([(k, home(k, BINS))] * len(values))
    assert {family for family, _ in wrong} == set(FAMILIES)
    with binshift.inspect.open(root, scratch=folder) as checkpoint:
        found = [str(f) for f in fsck(checkpoint)]
        assert len(found) == len(wrong)
        for (family, bin), rows in wrong.items():
            what = f"{len(rows)} rows of family {family} are in bin {bin}, but their keys are of other bins"
            (message,) = (f for f in found if what in f)
            assert any(f'"k": {k}' in message and message.endswith(f"of bin {h}") for k, h in rows)
        assert list(fsck(checkpoint, 4)) == []
    shutil.rmtree(root)
