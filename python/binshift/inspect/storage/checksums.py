"""The checksums that Spark and Hadoop keep beside files.

```
 <name>.crc     Spark: JSON with the CRC-32C of the whole file and its size
 .<name>.crc    Hadoop, on local disks: "crc" and a zero byte, the size of a piece, and the CRC-32 of each piece
```
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Mapping

import google_crc32c

from binshift.control.damage import damaged, understood
from binshift.control.files import Files

__all__ = ["check_file", "checksum_names", "is_checksum_of", "is_unfinished"]

_PIECE = 1 << 22
#: Relies on Spark: a file is called `.<name>.<uuid>[.TID<task>].tmp` until it is whole, and then gets its name.
_UNFINISHED = re.compile(r"\.+.+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.TID\d+)?\.tmp(\.crc)?")


def is_checksum_of(name: str, there: Collection[str]) -> bool:
    """True if a file holds a checksum of one of the others."""
    if not name.endswith(".crc"):
        return False
    main = name.removesuffix(".crc")
    return main in there or (main.startswith(".") and main[1:] in there)


def checksum_names(name: str) -> tuple[str, str]:
    """The names that checksums of a file have."""
    return f"{name}.crc", f".{name}.crc"


def is_unfinished(name: str) -> bool:
    """True if a file was being written when its writer died, or is the checksum of such a file."""
    return _UNFINISHED.fullmatch(name) is not None


def check_file(files: Files, directory: str, name: str, there: Mapping[str, int]) -> str | None:
    """Compares a file with the checksums beside it, and returns what is wrong; None if nothing is.

    Raises
    ------
    StateFormatError
        If a checksum file is damaged.
    """
    if name.endswith(".crc") and is_checksum_of(name, there):
        return None
    path = f"{directory}/{name}"
    if f"{name}.crc" in there and (problem := _by_spark(files, path, there[name])):
        return problem
    return _by_hadoop(files, path, f"{directory}/.{name}.crc") if f".{name}.crc" in there else None


def _by_spark(files: Files, path: str, size: int) -> str | None:
    said = files.read_json(f"{path}.crc")
    with understood(f"{path}.crc"):
        algorithm, sum, bytes_ = said["algorithm"], int(said["value"]), int(said["mainFileSize"])
    if bytes_ != size:
        return f"has {size} bytes, and {bytes_} by its checksum file"
    if algorithm != "CRC32C":
        return None
    actual = 0
    with files.open(path) as stream:
        while data := stream.read(_PIECE):
            actual = google_crc32c.extend(actual, data)
    return None if actual == sum & 0xFFFFFFFF else "its checksum does not hold"


def _by_hadoop(files: Files, path: str, sums: str) -> str | None:
    said = files.read(sums)
    if said[:4] != b"crc\0" or len(said) % 4 or len(said) < 8:
        raise damaged(sums, "it is no checksum file")
    piece = int.from_bytes(said[4:8], "big")
    at = 8
    with files.open(path) as stream:
        while data := stream.read(piece):
            if said[at : at + 4] != zlib.crc32(data).to_bytes(4, "big"):
                return "the checksum of a part of it does not hold"
            at += 4
    return None if at == len(said) else "is shorter than its checksum file says"
