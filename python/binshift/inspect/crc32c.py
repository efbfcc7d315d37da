"""CRC-32C (Castagnoli) of many rows at once, and of large files, at numpy's speed."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["Crc32c", "crc32c", "crc32c_of_rows"]

_POLYNOMIAL = 0x82F63B78
#: Bytes of a lane: files are cut into lanes that are worked through side by side.
_LANE = 1024

Words = npt.NDArray[np.uint32]


def _table() -> Words:
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(_POLYNOMIAL), crc >> 1).astype(np.uint32)
    return crc


_TABLE = _table()


def crc32c_of_rows(
    data: npt.NDArray[np.uint8],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    seed: Words | None = None,
) -> Words:
    """The checksum of each range of `data`; with `seed`, of what the seed is the checksum of, and the range."""
    size = end - start
    order = np.argsort(-size, kind="stable")
    at = start[order]
    ascending = -size[order]
    crc = np.full(len(start), 0xFFFFFFFF, np.uint32) if seed is None else ~seed[order]
    for i in range(int(-ascending[0]) if len(order) else 0):
        # The rows that have a byte at this place are the first ones.
        n = int(np.searchsorted(ascending, -i, side="left"))
        crc[:n] = _TABLE[(crc[:n] ^ data[at[:n] + i]) & 0xFF] ^ (crc[:n] >> 8)
    out = np.empty_like(crc)
    out[order] = ~crc
    return out


def crc32c(data: bytes) -> int:
    """The checksum of bytes."""
    sum = Crc32c()
    sum.update(data)
    return sum.value


class Crc32c:
    """The checksum of a stream, piece by piece; pieces of a megabyte or more are fast."""

    def __init__(self) -> None:
        self._crc = 0xFFFFFFFF

    @property
    def value(self) -> int:
        """The checksum of what there was so far."""
        return self._crc ^ 0xFFFFFFFF

    def update(self, data: bytes) -> None:
        """Goes on with more bytes."""
        lanes = len(data) // _LANE
        if lanes > 1:
            block = np.frombuffer(data, np.uint8, lanes * _LANE).reshape(lanes, _LANE).T
            crc = np.zeros(lanes, np.uint32)
            crc[0] = self._crc
            for column in np.ascontiguousarray(block):
                crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> 8)
            self._crc = _joined(crc)
            data = data[lanes * _LANE :]
        for byte in data:
            self._crc = _LIST[(self._crc ^ byte) & 0xFF] ^ (self._crc >> 8)


_LIST: list[int] = _TABLE.tolist()


def _joined(crc: Words) -> int:
    """One state out of those of lanes that follow each other, pair by pair."""
    length = _LANE
    while len(crc) > 1:
        if len(crc) % 2:
            # A lane of zeros in front, whose state is zero, changes nothing.
            crc = np.concatenate([np.zeros(1, np.uint32), crc])
        tables = _zeros(length)
        left = crc[0::2]
        moved = tables[0][left & 0xFF]
        for i in (1, 2, 3):
            moved = moved ^ tables[i][(left >> (8 * i)) & 0xFF]
        crc = moved ^ crc[1::2]
        length *= 2
    return int(crc[0])


@lru_cache(maxsize=64)
def _zeros(length: int) -> Words:
    """What becomes of a state over `length` zero bytes, a table for each of its bytes."""
    if length == 1:
        basis = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)
        image = _TABLE[basis & 0xFF] ^ (basis >> 8)
    elif length % 2:
        raise ValueError("only powers of two are needed")
    else:
        half = _zeros(length // 2)
        basis = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)
        image = basis
        for _ in range(2):
            image = (
                half[0][image & 0xFF]
                ^ half[1][(image >> 8) & 0xFF]
                ^ half[2][(image >> 16) & 0xFF]
                ^ half[3][image >> 24]
            )
    tables = np.zeros((4, 256), np.uint32)
    values = np.arange(256)
    for i in range(4):
        for bit in range(8):
            tables[i] ^= np.where(values >> bit & 1, image[8 * i + bit], 0).astype(np.uint32)
    return tables
