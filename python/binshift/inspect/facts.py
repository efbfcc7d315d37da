"""Reads the facts of a checkpoint: its versions, settings, operators, bins and routing.

Version V of the state was committed by epoch V - 1, with the routing table that was in force then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from binshift.control.damage import understood
from binshift.control.directory import checked_layout, require_checkpoint
from binshift.control.files import Files, parse_json
from binshift.control.formats import require_format
from binshift.control.routing_entry import RoutingEntry
from binshift.control.routing_log import RoutingLog
from binshift.errors import ConfigurationError, StateFormatError
from binshift.inspect.checkpoint_ids import CheckpointIds
from binshift.inspect.decoding.schema import Operator, read_operator
from binshift.planning.routing import RoutingTable
from binshift.session import PROVIDER, STOCK_PROVIDER

__all__ = ["Facts", "Settings", "Switch"]

_PREFIX = "spark.sql.streaming.stateStore."
_PROVIDERS = (PROVIDER, STOCK_PROVIDER)
_HASH = "murmur3-42"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a batch that change how its state is stored.

    Parameters
    ----------
    partitions : int
    encoding : str
        "unsaferow" or "avro".
    has_row_checksums : bool
    delimiter : bytes
        The bytes between the values of a key; may be empty.
    """

    partitions: int
    encoding: str
    has_row_checksums: bool
    delimiter: bytes


@dataclass(frozen=True, slots=True)
class Switch:
    """The bins that one partition adopts and releases at one epoch.

    Parameters
    ----------
    arriving : dict
        Bins by the partition that owned them at the epoch before.
    leaving : tuple of int
    is_new : bool
        Whether the partition did not exist at the epoch before.
    """

    arriving: dict[int, list[int]]
    leaving: tuple[int, ...]
    is_new: bool


class Facts:
    """Reads the facts of a checkpoint, each on first use.

    Parameters
    ----------
    files : Files
        The checkpoint's directory.

    Raises
    ------
    ConfigurationError
        If the directory is no checkpoint, or a newer binshift wrote it.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        # Caches per instance, so that they are freed with it.
        self.conf = lru_cache(maxsize=64)(self._read_conf)
        self._routing = RoutingLog(files, self._read_entry)
        self.ids = CheckpointIds(files)
        require_checkpoint(files)
        self._control = (
            files.read_json("binshift/layout.json") if files.exists("binshift/layout.json") else None
        )
        if self._control is not None:
            with understood("binshift/layout.json"):
                require_format(self._control, "binshift/layout.json", files.name)
        if self._control and self._control.get("hash") != _HASH:
            raise ConfigurationError(
                f"{files.name}/binshift/layout.json has hash {self._control.get('hash')}; this binshift reads "
                f"{_HASH}; use the binshift version that wrote the checkpoint",
                condition="UNKNOWN_FORMAT",
                file="binshift/layout.json",
                format=self._control.get("format"),
            )
        if self._control is not None:
            with understood("binshift/layout.json"):
                checked_layout(self._control)

    @property
    def is_binned(self) -> bool:
        """True if binshift wrote the checkpoint, or took it over."""
        return self._control is not None

    @property
    def bins(self) -> int | None:
        """Number of bins; None in a checkpoint of Spark's own provider."""
        return int(self._control["bins"]) if self._control else None

    @property
    def first_binned_epoch(self) -> int:
        """The epoch from which on the state has bins: that of the takeover, if Spark's provider began."""
        return int((self._control or {}).get("taken_over_at") or 0)

    def keys_change(self, operator: int) -> bool:
        """True if keys of an operator changed on their way to its state, so that some are in other bins."""
        return self.files.exists(f"binshift/changed_keys/{operator}")

    def is_binned_at(self, epoch: int) -> bool:
        """True if the state that an epoch committed has bins."""
        if not self.is_binned or epoch < self.first_binned_epoch:
            return False
        # Spark's provider may have continued after a takeover was prepared but not begun.
        is_logged = self.first_binned_epoch > 0 and epoch in self._logged
        return not is_logged or self._provider(epoch) == PROVIDER

    @cached_property
    def _logged(self) -> tuple[int, ...]:
        """The batches whose offsets the checkpoint still has, ascending."""
        return tuple(self.files.numbers("offsets"))

    def _provider(self, epoch: int) -> str:
        return self.conf(epoch).get(_PREFIX + "providerClass", STOCK_PROVIDER)

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """The versions whose commits the checkpoint still has, ascending."""
        return tuple(b + 1 for b in self.files.numbers("commits"))

    def require_version(self, version: int | None) -> int:
        """Checks a version, and returns it; without one, returns the newest.

        Raises
        ------
        ConfigurationError
            If there is no such version.
        """
        if not self.versions:
            raise ConfigurationError(
                f"{self.files.name} has no committed batch yet; let the query run one",
                condition="NO_EPOCH_COMMITTED",
                checkpoint=self.files.name,
            )
        if version is None:
            return self.versions[-1]
        if version not in self.versions:
            raise ConfigurationError(
                f"version {version} is not in {self.files.name}; it has {self.versions[0]} to "
                f"{self.versions[-1]} (version V is what batch V - 1 committed)",
                condition="VERSION_NOT_FOUND",
                version=version,
            )
        return version

    def operators(self, version: int) -> tuple[Operator, ...]:
        """The stateful operators, as they were at a version.

        Raises
        ------
        ConfigurationError
            If another provider than RocksDB's or binshift's wrote the state.
        """
        provider = self._provider(version - 1)
        if provider not in _PROVIDERS:
            raise ConfigurationError(
                f"the state of {self.files.name} is that of {provider}; only that of RocksDB "
                f"({', '.join(_PROVIDERS)}) can be read",
                condition="PROVIDER_NOT_READABLE",
                provider=provider,
            )
        ids = [int(n) for n in self.files.directories("state") if n.isdigit()]
        return tuple(self._operator(i, version - 1) for i in sorted(ids))

    def _operator(self, id: int, batch: int) -> Operator:
        operator = read_operator(self.files, id, batch)
        for entry in self._control["operators"] if self._control and self.is_binned_at(batch) else []:
            if entry["id"] == id:
                return operator.with_storage(str(entry["storage"]))
        # Relies on Spark: an operator that needs all rows in one place has one partition, whatever the setting.
        keys = operator.stores[0].families[0].key.fields if operator.stores else ()
        is_single = operator.name == "globalLimit" or (operator.name == "stateStoreSave" and not keys)
        return operator.with_storage("single") if is_single else operator

    def _read_conf(self, batch: int) -> dict[str, str]:
        """The settings that Spark logged with a batch's offsets."""
        path = f"offsets/{batch}"
        lines = self.files.read(path).split(b"\n", 2)
        metadata = parse_json(lines[1], path) if len(lines) > 1 else {}
        with understood(path):
            return {str(k): str(v) for k, v in metadata.get("conf", {}).items()}

    def settings(self, version: int) -> Settings:
        """The settings of the batch that committed a version."""
        conf = self.conf(version - 1)
        # Spark's defaults for checkpoints from before a setting existed.
        merge = conf.get(_PREFIX + "rocksdb.mergeOperatorVersion", "1")
        with understood(f"offsets/{version - 1}"):
            return Settings(
                int(conf.get("spark.sql.shuffle.partitions", "200")),
                conf.get(_PREFIX + "encodingFormat", "unsaferow"),
                conf.get(_PREFIX + "rowChecksum.enabled", "false") == "true",
                b"," if merge == "1" else b"",
            )

    def partitions(self, operator: Operator, version: int) -> range:
        """The partitions of a version."""
        if operator.is_binned:
            return range(self.table(version - 1).partitions)
        return range(1) if operator.storage == "single" else range(self.settings(version).partitions)

    @property
    def routing_files(self) -> list[str]:
        """The files of entries in the routing log; some may never have been in force."""
        return self._routing.listed

    def routing_entry(self, file: str) -> RoutingEntry:
        """An entry of the routing log, by its file.

        Raises
        ------
        StateFormatError
            If it is missing or damaged.
        ConfigurationError
            If it has another format.
        """
        entry = self._routing.entry(file)
        if entry is None:
            raise StateFormatError(
                f"binshift/routing/{file} is missing from {self.files.name}; restore it from a copy"
            )
        return entry

    def routing_back_from(self, epoch: int) -> Iterator[RoutingEntry]:
        """The entries from the one in force at an epoch back to the oldest."""
        return self._routing.back_from(epoch, self.first_binned_epoch)

    def _read_entry(self, path: str) -> RoutingEntry | None:
        name, file = f"binshift/{path}", path.rpartition("/")[2]
        text = self.files.find(name)
        if text is None:
            return None
        with understood(name):
            data = parse_json(text, f"{self.files.name}/{name}")
            require_format(data, name, self.files.name)
            return RoutingEntry.of(file, text, data)

    def routing_problems(self) -> Iterator[tuple[str, str]]:
        """Entries that are missing from the routing log, and the reason why they should exist.

        An entry names the one before it, and Spark's log of offsets the one in force at most epochs.
        """
        named = {
            n.file: n.at for e in self._logged if e >= self.first_binned_epoch and (n := self._routing.named(e))
        }
        for file, at in named.items():
            if self._routing.entry(file) is None:
                yield file, f"is missing, though epoch {at} was run with it"
        for entry in self.routing_back_from(max(self._logged, default=0)):
            before = entry.previous
            if before is not None and self._routing.before(entry) is None and self._routing.is_lost(before):
                yield before, f"is missing, though the entry of epoch {entry.epoch} follows it"

    def table(self, epoch: int) -> RoutingTable:
        """The table that was in force at an epoch.

        Raises
        ------
        StateFormatError
            If the routing log does not have it, or it is impossible.
        """
        return self._entry(epoch).table

    def _entry(self, epoch: int) -> RoutingEntry:
        entry = self._routing.at(epoch, self.first_binned_epoch)
        if entry is not None:
            return self._of_these_bins(entry)
        if (named := self._routing.named(epoch)) is not None and self._routing.entry(named.file) is None:
            raise StateFormatError(
                f"epoch {epoch} was run with the routing table {named.file.replace('-', ':')}, which is not in "
                f"binshift/routing of {self.files.name}; restore it from a copy"
            )
        raise StateFormatError(
            f"the routing log of {self.files.name} has no entry for epoch {epoch}; restore "
            "binshift/routing from a copy of the checkpoint"
        )

    def _of_these_bins(self, entry: RoutingEntry) -> RoutingEntry:
        if entry.table.bins != self.bins:
            raise StateFormatError(
                f"binshift/routing/{entry.file} has {entry.table.bins} bins and the checkpoint {self.bins}; "
                "restore it"
            )
        return entry

    def switch(self, epoch: int, partition: int) -> Switch | None:
        """The bins that a partition adopts and releases at an epoch; None if the table doesn't change there."""
        entry = self._entry(epoch)
        if entry.epoch != epoch or entry.previous is None:
            return None
        now, previous = entry.table, self._routing.before(entry)
        if previous is None:
            raise StateFormatError(
                f"the routing log of {self.files.name} has no entry {entry.previous}, which that of epoch "
                f"{epoch} follows; restore binshift/routing from a copy of the checkpoint"
            )
        before = self._of_these_bins(previous).table
        arriving: dict[int, list[int]] = {}
        leaving = []
        for bin, (old, new) in enumerate(zip(before.assignment, now.assignment, strict=True)):
            if old != new == partition:
                arriving.setdefault(old, []).append(bin)
            elif new != old == partition:
                leaving.append(bin)
        is_new = partition >= before.partitions
        return Switch(arriving, tuple(leaving), is_new) if arriving or leaving or is_new else None
