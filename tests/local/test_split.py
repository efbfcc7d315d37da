"""New partitions that begin with all files of an old owner of their bins, without a row that is read."""

import pytest

from binshift import AllAtOnce
from harness import Fault
from local.migrations import SHIP, assert_never_migrated, begun, finish, shift
from local.settings import IDS

pytestmark = pytest.mark.usefixtures("nothing_left")
#: So that states of tests are large enough.
SPLIT = {SHIP + "minBytesToSplit": "1b"}


def split(run, epoch, partitions):
    """Grows to that many partitions at once, without copies."""
    migration = run.attach().rescale(partitions, strategy=AllAtOnce(), prepare=False)
    return finish(run, migration, epoch), migration.wait(0)


@pytest.mark.parametrize("conf", [{}, IDS], ids=["", "ids"])
@pytest.mark.parametrize("name", ["count", "dedup", "join-full"])
def test_new_partitions_begin_with_the_files_of_an_old_owner(stream, tmp_path, name, conf):
    query, run = begun(stream, name, **SPLIT, **conf)
    with Fault("split.begun", "count") as begins, Fault("checkpoint.read", "count") as reads:
        epoch, report = split(run, 2, 4)
        print("XX", begins.count, reads.count, report.bins_shipped, report.bins_from_checkpoint, epoch)
    assert report.bins_shipped == 32
    assert report.bins_from_checkpoint == 0
    epoch, _ = shift(run, epoch)
    run.stop()
    run.start()
    run.run(epoch)
    assert_never_migrated(run, query, epoch + 1, tmp_path, **conf)
