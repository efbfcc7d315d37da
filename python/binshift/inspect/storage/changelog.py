"""Changelog files of Spark's RocksDB state store, formats 1 to 4.

```
format 1, 3:  { key size, key, value size, value | key size, key, -1 }  -1
format 2, 4:  { kind, key size, key, value size, value | kind, key size, key, -1 }  end
```

Sizes are four bytes, big-endian. Formats 2 to 4 begin with "v2" to "v4". In formats 3 and 4, the lineage
follows: the versions and checkpoint ids since the last snapshot.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from binshift.control.damage import damaged
from binshift.errors import StateFormatError
from binshift.inspect.storage.compression import ByteStream, decompressed

__all__ = ["Changelog", "Lineage", "Record", "RecordKind"]

#: The JVM's arrays can't be larger, so a larger key or value means damage.
_MAX_SIZE = (1 << 31) - 1
_INT = struct.Struct(">i").unpack_from


class RecordKind(IntEnum):
    """The kinds of records, with the bytes that stand for them."""

    END = 0x00
    PUT = 0x01
    DELETE = 0x10
    MERGE = 0x11
    DELETE_RANGE = 0x20


#: Kind, key and value. A deletion has an empty value; the deletion of a range has the end of the range.
Record = tuple[RecordKind, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Lineage:
    """A version of a store, and the checkpoint id in the names of its files."""

    version: int
    id: str


class Changelog:
    """A changelog, which can be read once, from front to back. Needs memory for the largest record.

    Parameters
    ----------
    stream : binary file
        The file in the checkpoint.
    name : str
        Its name, for errors.

    Raises
    ------
    StateFormatError
        If the file is damaged or has an unknown format. Reading its records may raise this as well.
    """

    def __init__(self, stream: ByteStream, name: str) -> None:
        self._name = name
        self._pieces = decompressed(stream, name)
        self._buffer = b""
        self._at = 0
        self.format = self._read_format()
        self.lineage = self._read_lineage() if self.format >= 3 else ()

    def records(self) -> Iterator[Record]:
        """The records in order, without the end marker."""
        typed = self.format in (2, 4)
        while True:
            yield from self._buffered(typed)
            record = self._typed_record() if typed else self._plain_record()
            if record is None:
                break
            yield record
        # Reading on also shows whether the file is complete.
        if self._at < len(self._buffer) or next(self._pieces, None) is not None:
            raise self._damaged("it goes on after its end")

    def _buffered(self, typed: bool) -> Iterator[Record]:
        """The records that are completely in the buffer, up to one that is not a put or a merge."""
        buffer, at, end = self._buffer, self._at, len(self._buffer)
        kind, head = RecordKind.PUT, 1 if typed else 0
        while at + head + 8 <= end:
            if typed:
                if buffer[at] not in (RecordKind.PUT, RecordKind.MERGE):
                    break
                kind = RecordKind.PUT if buffer[at] == RecordKind.PUT else RecordKind.MERGE
            start = at + head + 4
            middle = start + _INT(buffer, start - 4)[0]
            if not start <= middle <= end - 4:
                break
            stop = middle + 4 + _INT(buffer, middle)[0]
            if not middle + 4 <= stop <= end:
                break
            self._at = at = stop
            yield kind, buffer[start:middle], buffer[middle + 4 : stop]

    def _plain_record(self) -> Record | None:
        if (size := self._int()) == -1:
            return None
        key = self._take(size)
        value_size = self._int()
        if value_size < 0:
            return RecordKind.DELETE, key, b""
        return RecordKind.PUT, key, self._take(value_size)

    def _typed_record(self) -> Record | None:
        number = self._take(1)[0]
        if number == RecordKind.END:
            return None
        if number not in RecordKind._value2member_map_:
            raise self._damaged(f"a record is of the unknown kind {number:#x}")
        key = self._take(self._int())
        if number != RecordKind.DELETE:
            return RecordKind(number), key, self._take(self._int())
        if (size := self._int()) != -1:
            raise self._damaged(f"a deletion has a value of {size} bytes")
        return RecordKind.DELETE, key, b""

    def _read_format(self) -> int:
        """Finds out the format. Format 1 begins with the size of a key, which is less than "v" and a digit."""
        head = self._peek(4)
        if head[:3] != b"\x00\x02v" or not head[3:].isdigit():
            return 1
        if head[3:] not in (b"2", b"3", b"4"):
            raise self._damaged(f"its format is {head[2:]!r}, and 1 to 4 are known")
        self._take(4)
        return int(head[3:])

    def _read_lineage(self) -> tuple[Lineage, ...]:
        text = self._take(int.from_bytes(self._take(2), "big"))
        try:
            items = [Lineage(int(i["version"]), str(i["checkpointUniqueId"])) for i in json.loads(text)]
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"its lineage cannot be read ({error})") from error
        return tuple(sorted(items, key=lambda i: i.version))

    def _int(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def _peek(self, size: int) -> bytes:
        self._fill(size)
        return self._buffer[self._at : self._at + size]

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_SIZE:
            raise self._damaged(f"a key or value has {size} bytes")
        end = self._at + size
        if end > len(self._buffer):
            self._fill(size)
            end = self._at + size
            if end > len(self._buffer):
                raise self._damaged("it ends in the middle of a record")
        data = self._buffer[self._at : end]
        self._at = end
        return data

    def _fill(self, size: int) -> None:
        """Reads until the buffer has `size` bytes, or all that there are."""
        parts = [self._buffer[self._at :]]
        have = len(parts[0])
        while have < size and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            have += len(piece)
        self._buffer, self._at = b"".join(parts), 0

    def _damaged(self, reason: str) -> StateFormatError:
        return damaged(self._name, reason)
