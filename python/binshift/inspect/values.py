"""A stored value taken apart: row checksums, and the values of a key that has a list of them.

```
 with row checksums   | checksum | size | value |  delimiter  | checksum | size | value | …
 a list               | size | row | delimiter | size | row | …
```

Checksums and sizes are four bytes, little-endian. The delimiter is empty, or a comma in older checkpoints.
A checksum is the CRC-32C of the stored key, with its family's number and its bin, and the value.
"""

from __future__ import annotations

import numpy as np

from binshift.damage import damaged
from binshift.inspect.crc32c import crc32c_of_rows

__all__ = ["row_values", "split_list", "verified"]


def row_values(value: bytes, delimiter: bytes) -> list[bytes]:
    """The values in a stored value with row checksums, which are left out and not verified."""
    return [value[start:end] for _, start, end in _summed(value, delimiter)]


def verified(keys: list[bytes], values: list[bytes], delimiter: bytes) -> list[bytes]:
    """Stored values without their checksums, which must hold.

    Parameters
    ----------
    keys : list of bytes
        As they are stored.

    Raises
    ------
    StateFormatError
        If a checksum does not hold.
    """
    parts = [_summed(v, delimiter) for v in values]
    data = np.frombuffer(b"".join([*keys, *values]) + bytes(1), np.uint8)
    key_end = np.cumsum([len(k) for k in keys], dtype=np.int64)
    seeds = crc32c_of_rows(data, key_end - np.array([len(k) for k in keys], np.int64), key_end)
    first = int(key_end[-1]) if keys else 0
    at = first + np.cumsum([0, *(len(v) for v in values)], dtype=np.int64)[:-1]
    counts = [len(p) for p in parts]
    bases = np.repeat(at, counts)
    flat = np.array([p for row in parts for p in row], np.int64).reshape(-1, 3)
    actual = crc32c_of_rows(data, bases + flat[:, 1], bases + flat[:, 2], np.repeat(seeds, counts))
    wrong = np.flatnonzero(actual != flat[:, 0])
    if len(wrong):
        key = keys[int(np.repeat(np.arange(len(keys)), counts)[wrong[0]])]
        raise damaged(f"the row with the stored key {key.hex()}", "its row checksum does not hold")
    return [
        delimiter.join(value[start:end] for _, start, end in row)
        for value, row in zip(values, parts, strict=True)
    ]


def split_list(value: bytes, delimiter: bytes) -> list[bytes]:
    """The rows of a list.

    Raises
    ------
    StateFormatError
        If the sizes in it do not add up.
    """
    out = []
    at = 0
    while at < len(value):
        size = int.from_bytes(value[at : at + 4], "little", signed=True)
        end = at + 4 + size
        if size < 0 or end > len(value):
            raise damaged("a list of values", "it is shorter than it says")
        out.append(value[at + 4 : end])
        at = _after_delimiter(value, end, delimiter)
    return out


def _summed(value: bytes, delimiter: bytes) -> list[tuple[int, int, int]]:
    """Checksum, start and end of each value."""
    out: list[tuple[int, int, int]] = []
    at = 0
    while at < len(value) or not out:
        size = int.from_bytes(value[at + 4 : at + 8], "little", signed=True)
        end = at + 8 + size
        if size < 0 or at + 8 > len(value) or end > len(value):
            raise damaged("a value with a row checksum", "it is shorter than it says")
        out.append((int.from_bytes(value[at : at + 4], "little"), at + 8, end))
        at = _after_delimiter(value, end, delimiter)
    return out


def _after_delimiter(value: bytes, end: int, delimiter: bytes) -> int:
    if end == len(value):
        return end
    after = end + len(delimiter)
    if value[end:after] != delimiter or after == len(value):
        raise damaged("a list of values", f"its values are not separated by {delimiter!r}")
    return after
