"""The size of an exploration, and the guards of the protocol, each of which can be switched off by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import permutations

from model.state import Budget, PerBin, Table


class Guard(Enum):
    """What keeps state right. A guard that is off must end in a violation; what its absence means is said here."""

    CHAIN = "entries are found by listing `routing/`, and not along the chain that the logs name"
    NAMED_ENTRIES = "an epoch has one file for its entry, whoever writes it"
    DURABLE_ENTRY = "the epoch is logged with an entry before its file is durable"
    EXCLUSIVE_CLAIM = "a claim is appended to what is there, instead of created where nothing may be"
    COUNT_FIRST = "a start looks at the checkpoint before it looks at which claim is the newest"
    NEWEST_CLAIM_STAYS = "a start does not look whether its claim is the newest, though its number may be one that was removed because it was old"
    SECOND_LOOK = "a start does not look at the logs again once it has claimed its place"
    CLAIM_BEFORE_DELETE = "a start deletes lost files without looking whether a newer run has claimed"
    OLDER_THAN_EPOCH = "a start deletes also files of the version that its epoch makes which are younger than the epoch's log"
    SAME_FILE = "a start deletes what has the name of a listed file, though it is another file by now"
    LOST_FILES_GO = "in format 1, a start leaves files of lost epochs where they are"
    IDS_OUTLIVE_STARTS = "in format 2, too, a start deletes files of later versions"
    LATER_ENTRIES_STAY = "a run deletes the entries of later epochs, which it takes for its own or for lost ones"
    CLAIM_NAMES_ENTRY = "the first epoch of a run goes by the newest entry that is there, and not by what claims and logs name"
    COMMITTED_BASE = "a recovery begins with the newest snapshot, whatever its id"
    BASE_SINCE_ARRIVAL = "a recovery begins with a snapshot from before the bin came to its owner"
    SAME_INSTANCE = "a store that an executor still holds is taken, whatever its version"
    CHECK_BEFORE_UPLOAD = "a snapshot is uploaded without a look whether its epoch was lost"
    CHECK_AFTER_UPLOAD = "an upload is not followed by another look whether its epoch was lost"
    UPLOAD_BY_RECORD = "a snapshot counts as lost once a later run makes its version again, though from the same record of the log"
    RETENTION = "a cleanup keeps what its own partition needs, and nothing for the partitions that bins went to"
    RETAIN_COMMITTED = "a cleanup takes a snapshot for a base whatever its id"
    RETAIN_ALL = "a cleanup keeps what the newest version needs, and not what older retained ones do"
    CLEAN_SAME_FILE = "a cleanup deletes what has the name of a listed file, though it is another file by now"
    KEEP_UNCOMMITTED = "a cleanup deletes files of versions that are not committed yet"


@dataclass(frozen=True)
class Rules:
    """What is explored: a size, a checkpoint format, and the guards that are off."""

    bins: int = 2
    partitions: int = 2
    first: Table = PerBin((0, 1))
    epochs: int = 3
    format: int = 2
    retained: int = 1
    remembered: int = 20  # Claims that are kept.
    budget: Budget = Budget(starts=2, others=1, steps=1, crashes=1, losses=1, attempts=0, snapshots=1, winds=0)
    winds_while_alive: bool = False
    winds_while_uploading: bool = False
    off: frozenset[Guard] = frozenset()
    tables: tuple[Table, ...] = ()
    symmetries: tuple[tuple[int, ...], ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        same = [p for p in permutations(range(self.bins)) if tuple(self.first[i] for i in p) == tuple(self.first)]
        object.__setattr__(self, "symmetries", tuple(same[1:]))
        if not self.tables:
            object.__setattr__(self, "tables", (self.first, PerBin(1 - p for p in self.first)))

    def has(self, guard: Guard) -> bool:
        return guard not in self.off
