"""The size of an exploration, and the guards of the protocol, each of which can be switched off by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import permutations

from model.state import Budget, PerBin, State, Table


class Guard(Enum):
    """The guards that keep state right. Each says what happens without it."""

    __hash__ = object.__hash__  # States are looked at a million times a minute.

    # Routing entries and logs
    CHAIN = "entries are found by listing `routing/`, and not along the chain that the logs name"
    NAMED_ENTRIES = "an epoch has one file for its entry, which whoever plans it overwrites"
    DURABLE_ENTRY = (
        "the next epoch's number of partitions is told to Spark before the file of its entry is durable"
    )
    NAME_IN_LOG = "the log of offsets names no entry, and a start goes by the newest that it finds"
    CLAIM_COUNTS = "only the log of offsets is asked for names, which may have been purged since"
    LATER_ENTRIES_STAY = "a run deletes the entries of later epochs, which it takes for lost ones"
    ONE_COMMIT = "a commit replaces the one that is there"
    ENTRIES_FOR_FILES = "pruning keeps no entry for the older files that retained versions are rebuilt from"
    CLAIM_DECIDES = "a start takes a step that was prepared for its epoch, though a run has begun it without"
    # Starts
    EXCLUSIVE_CLAIM = "a claim gets the next free number, whatever the start had seen before it looked"
    NUMBERS_STAY = "a start that is refused takes its claim back, so that the number is free again"
    COUNT_FIRST = "a start looks at the checkpoint before it looks which claim is the newest"
    SECOND_LOOK = "a start does not look at logs and claims again once it has claimed its place"
    OLDER_THAN_EPOCH = "in format 1, a start deletes also what others have made of its own epoch"
    SAME_FILE = (
        "in format 1, a start deletes what has the name of a listed file, though it is another file by now"
    )
    LOST_FILES_GO = "in format 1, a start leaves files of lost epochs where they are"
    IDS_OUTLIVE_STARTS = "in format 2, too, a start deletes files of later versions"
    # Loads
    COMMITTED_BASE = "a recovery begins with the newest snapshot, whatever its id"
    BASE_SINCE_ARRIVAL = "a recovery begins with a snapshot from before the bin came to its owner"
    SAME_VERSION = "a store that an executor still holds is taken whatever its version"
    COMMITTED_INSTANCE = (
        "in format 2, a store that an executor holds is taken by version alone, though it is of another attempt"
    )
    COPY_FOLLOWS = "a copy is taken at the switch, whichever version it has got to"
    SWEPT_BEFORE_RETURN = (
        "a bin comes back to a store that still has the rows with which it left, and they count again"
    )
    SWEPT_BEFORE_SNAPSHOT = "a snapshot has rows of bins that its store released, and they outlive the store"
    # Uploads
    CHECK_BEFORE_UPLOAD = "a snapshot is uploaded without a look whether its epoch was lost"
    UPLOAD_BY_RECORD = (
        "a snapshot counts as lost once a later run has claimed, not once its epoch was logged anew"
    )
    # Retention
    RETENTION = (
        "a cleanup keeps what its own partition's bins need, and nothing for the partitions that bins went to"
    )
    RETAIN_COMMITTED = "a cleanup takes a snapshot for a base whatever its id"
    RETAIN_ALL = "a cleanup keeps what the newest version needs, and not what older retained ones do"
    CLEAN_SAME_FILE = (
        "in format 1, a cleanup deletes what has the name of a listed file, though it is another file by now"
    )
    KEEP_UNCOMMITTED = "a cleanup deletes files of versions that are not committed yet"
    # Savepoints
    SAVEPOINT_OF_RETAINED = "a savepoint doesn't look whether its epoch is still retained once it keeps files"
    SAVEPOINT_KEEPS_ALL = "a savepoint keeps nothing until it is known which files it needs"
    SAVEPOINT_AFTER_DECISION = "a cleanup looks for savepoints before it decides what is useless, and not after"
    SAVEPOINT_STOPS_START = (
        "in format 1, a query that was wound back past a savepoint goes on, and makes its files anew"
    )
    # Migrations
    SNAPSHOT_ASKED = (
        "a step waits for sources that cannot be rebuilt, and nobody asks their stores for a snapshot"
    )
    SOURCES_CHECKED = "a step is taken though files are gone from which its sources would be rebuilt"
    OWN_PLAN = "a driver deletes the file of the plan that is there when its own has ended"
    ROLLBACK_FIRST = "the plan of a migration that is to be undone goes before that of its rollback is there"
    ROLLBACK_WAITS = "a run that repeats an epoch begins a rollback, though another run may have gone on"
    ROLLBACK_KNOWS_STEPS = "a rollback is begun though more steps were taken than whoever asked for it knew of"
    ROLLBACK_KNOWS_ENTRY = "a rollback is carried out wherever the table is the one that it begins with"
    PLAN_OUTLIVES_RUN = "a start does not look for the plan of the run before"


EACH_ITS_OWN = PerBin((0, 1))
SWAPPED = PerBin((1, 0))
ONE_START = Budget()


@dataclass(frozen=True, eq=False)
class Rules:
    """An exploration: a size, a checkpoint format, and the guards that are off."""

    first: Table = EACH_ITS_OWN
    plans: tuple[tuple[Table, ...], ...] = ((SWAPPED,),)
    partitions: int = 2
    epochs: int = 3
    format: int = 2
    real_time: bool = False
    retained: int = 1
    remembered: int = 20  # Claims that are kept.
    budget: Budget = ONE_START
    cleans: bool = True
    adopts_from_files: bool = False  # What a switch brings never comes from a store, as where copies fail.
    leaves_rows: bool = False  # Released bins leave their rows in the store, as in families read in order.
    stops: bool = False  # A query may be stopped between two epochs.
    winds_while_alive: bool = False
    winds_while_uploading: bool = False
    off: frozenset[Guard] = frozenset()
    drivers: int = 2  # At a time.
    since: State | None = None  # Where the exploration begins, if not with an empty checkpoint.
    bins: int = field(init=False, default=0)
    symmetries: tuple[tuple[int, ...], ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        def same(order: tuple[int, ...]) -> bool:
            def permuted(table: Table) -> Table:
                return PerBin(table[i] for i in order)

            return permuted(self.first) == self.first and {tuple(map(permuted, p)) for p in self.plans} == set(
                self.plans
            )

        object.__setattr__(self, "bins", len(self.first))
        object.__setattr__(self, "symmetries", tuple(filter(same, permutations(range(self.bins))))[1:])

    def has(self, guard: Guard) -> bool:
        return guard not in self.off
