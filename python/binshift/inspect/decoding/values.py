"""Takes stored values apart: row checksums, and the list of values of a key.

```
 with row checksums   | checksum | size | value |  delimiter  | checksum | size | value | …
 a list               | size | row | delimiter | size | row | …
```

Checksums and sizes are four bytes, little-endian. The delimiter is empty, or a comma in older checkpoints.
A checksum is the CRC-32C of the stored key, with its family's number and its bin, and the value.
"""

from __future__ import annotations

import google_crc32c

from binshift.control.damage import damaged

__all__ = ["row_values", "split_list", "verified"]


def row_values(value: bytes, delimiter: bytes) -> list[bytes]:
    """The values in a stored value with row checksums. The checksums are removed, but not verified."""
    return [value[start:end] for _, start, end in _summed(value, delimiter)]


def verified(keys: list[bytes], values: list[bytes], delimiter: bytes) -> list[bytes]:
    """Verifies the checksums of stored values, and returns the values without them.

    Parameters
    ----------
    keys : list of bytes
        The keys in their stored form.

    Raises
    ------
    StateFormatError
        If a checksum is wrong.
    """
    out = []
    for key, value in zip(keys, values, strict=True):
        parts = _summed(value, delimiter)
        seed = google_crc32c.value(key)
        for said, start, end in parts:
            if google_crc32c.extend(seed, value[start:end]) != said:
                raise damaged(f"the row with the stored key {key.hex()}", "its row checksum does not hold")
        out.append(delimiter.join(value[start:end] for _, start, end in parts))
    return out


def split_list(value: bytes, delimiter: bytes) -> list[bytes]:
    """The rows of a list.

    Raises
    ------
    StateFormatError
        If the sizes in it don't add up.
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
