"""The state of the protocol: files in the checkpoint, and the memory of drivers and executors.

Everything is an immutable tuple of small values, so that a state can be hashed. Version v of state is what
epoch v - 1 left.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class PerBin(tuple[Any, ...]):
    """A value for each bin. Symmetry over bins permutes these tuples, and nothing else in a state."""

    __slots__ = ()


Table = PerBin  # The owner of each bin.
Content = tuple[
    int, ...
]  # The rows of a bin: for each epoch so far, which record of the offset log they were made from.
Id = (
    tuple[int, int] | None
)  # Of an attempt, (run, attempt): part of file names in checkpoint format 2, `None` in format 1.


class Name(NamedTuple):
    """How a routing entry is called: its file, `previous` of the next entry, and the key in the offset log."""

    epoch: int
    run: int
    table: Table


class Entry(NamedTuple):
    """`routing/<epoch>-<checksum>`: the table that is in force from an epoch on, if the chain leads to it."""

    name: Name
    previous: Name | None
    step: tuple[int, int] | None  # Of which migration, and which of its steps.


class Plan(NamedTuple):
    """The file of a migration that a driver has accepted: a table for each of its steps."""

    migration: int
    tables: tuple[Table, ...]
    source: Table | None = None  # The table before the first step, where migrations are undone.
    # It takes no further step, and is to be undone: the steps that it had taken when somebody asked for that.
    stopped_after: int | None = None
    begins_at: Name | None = None  # Of a rollback: the entry that it begins with.

    @property
    def undoes(self) -> int | None:
        """The migration that it is the rollback of."""
        return -1 - self.migration if self.migration < 0 else None


class Offset(NamedTuple):
    """`offsets/<epoch>`. Once the logs were wound back, the epoch is logged anew, as another `record`."""

    record: int
    run: int | None  # Of any but the first epoch of a run, as with `entry`.
    entry: Name | None
    partitions: int


class Claim(NamedTuple):
    """`runs/<number>`: a run's place among the runs, and the entry in force at the run's first epoch."""

    number: int
    run: int
    epoch: int
    record: int
    entry: Name
    goes_on_from: int  # The newest version that the run has in common with those before it.


class Changelog(NamedTuple):
    """A task's changes. When they were written, the log of offsets had the record `under` for the epoch."""

    partition: int
    version: int
    id: Id
    record: int
    bins: PerBin
    under: int | None


class Snapshot(NamedTuple):
    """All that a partition held at a version: the content of each bin that it owned then."""

    partition: int
    version: int
    id: Id
    content: PerBin
    under: int | None
    left: PerBin | None = None  # As in an `Instance`. Only without its guard.


class Upload(NamedTuple):
    """A snapshot on its way from an executor, which outlives its driver: checked, written, checked again."""

    phase: str
    run: int
    record: int
    snapshot: Snapshot


class Cleanup(NamedTuple):
    """Files that somebody has listed, found to be of no use, and is about to delete."""

    of: str
    files: frozenset[Changelog | Snapshot | Entry]
    phase: str = "ready"  # To delete; "listed" before it has looked for savepoints.


class Savepoint(NamedTuple):
    """What another process keeps of a version: everything, until it has found out which files are needed."""

    phase: str
    version: int
    files: frozenset[Changelog | Snapshot] = frozenset()


class Instance(NamedTuple):
    """An open store: what an executor of a run holds of a partition."""

    version: int
    id: Id
    content: PerBin
    left: PerBin | None = None  # The bins that it released, and whose rows nobody has swept yet.


class Driver(NamedTuple):
    """A run, alive or frozen: nothing tells the two apart, as any driver may do its next step at any time."""

    run: int
    phase: str
    epoch: int
    record: int | None = None  # What the log of offsets has for the epoch, as the run knows it.
    entry: Name | None = None  # In force at `epoch`.
    next_entry: Name | None = None  # Durable for the epoch after it.
    claimed: int = 0  # The number of the run's claim; before it claims, that of the newest claim it saw.
    goes_on_from: int = 0  # As its claim has it.
    lost: frozenset[Changelog | Snapshot] = frozenset()  # What it listed of epochs that the logs have lost.
    ids: tuple[Id, ...] | None = None  # With which the version that the epoch reads was committed.
    done: tuple[
        tuple[int, Id], ...
    ] = ()  # Partitions whose task of this epoch has ended, and the attempt that counts.
    stores: tuple[Instance | None, ...] = ()
    staged: PerBin | None = None  # Copies at the next owners: a version and a content for each bin.
    plan: Plan | None = None  # The migration that it carries out.
    asks: bool = False  # The stores for a snapshot, with this epoch.
    has_written: bool = False  # Anything but its claim.
    is_again: bool = False  # It repeats an epoch that was logged before it started.
    was_behind: bool = False  # When it claimed its place, which it cannot know.


class Budget(NamedTuple):
    """How often things may still happen that no rule of the protocol bounds."""

    starts: int = 2
    others: int = 0  # Starts while another driver lives.
    plans: int = 1
    cancels: int = 0
    rollbacks: int = 0
    crashes: int = 0
    losses: int = 0  # Of all executors of a run at once.
    attempts: int = 0  # Of tasks, beyond one.
    snapshots: int = 0
    copies: int = 0
    winds: int = 0
    deletions: int = 0  # Of files, by hand.
    savepoints: int = 0


class Checkpoint(NamedTuple):
    """All files, and what somebody who watched them would remember."""

    offsets: tuple[Offset, ...]
    commits: tuple[tuple[Id, ...], ...]
    claims: tuple[Claim, ...]
    entries: frozenset[Entry]
    changelogs: frozenset[Changelog]
    snapshots: frozenset[Snapshot]
    plans: tuple[Plan, ...]
    winds: int  # How often the logs were wound back by hand.
    oldest: int  # The oldest version that is retained. Winding back the logs brings none back.
    is_harmed: bool = (
        False  # Somebody has deleted files by hand, and it was not found yet that all is there again.
    )
    promised: Table | None = None  # To which the rollback of a migration leads, once somebody asked for it.
    savepoints: frozenset[Savepoint] = frozenset()
    finished: frozenset[int] = frozenset()  # Migrations that have ended with their last step.


class State(NamedTuple):
    files: Checkpoint
    uploads: frozenset[Upload]
    cleanups: frozenset[Cleanup]
    drivers: tuple[Driver, ...]
    runs: int  # That have ever started.
    accepted: int  # Plans that have ever been accepted.
    left: Budget
