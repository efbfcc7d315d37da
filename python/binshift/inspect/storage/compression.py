"""Decompresses Spark's streams: LZ4 blocks of lz4-java, Snappy blocks of snappy-java, and zstd.

The first bytes show the codec, so that no setting of the query has to be known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
import xxhash

from binshift.control.damage import damaged
from binshift.errors import BinshiftError, StateFormatError

__all__ = ["ByteStream", "decompressed"]

_LZ4 = b"LZ4Block"
_SNAPPY = b"\x82SNAPPY\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"
_LZF = b"ZV"

#: lz4-java's upper bound for a block, in bytes. A larger size means damage, and isn't allocated.
_MAX_BLOCK = 1 << 25
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20
#: The seed for the checksums of blocks, which have 28 bits.
_LZ4_SEED = 0x9747B28C


class ByteStream(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; fewer than `size` only at the end."""

    def close(self) -> None:
        """Closes the stream."""


def decompressed(stream: ByteStream, name: str) -> Iterator[bytes]:
    """The content of a compressed stream, piece by piece.

    Raises
    ------
    StateFormatError
        If the stream is damaged, ends early, or has another codec (lzf).
    """
    head = stream.read(8)
    if head == _LZ4:
        return _lz4(stream, name)
    if head == _SNAPPY:
        return _snappy(stream, name)
    if head[:4] == _ZSTD:
        return _zstd(stream, head, name)
    if head[:2] == _LZF:
        raise StateFormatError(f"{name} is compressed with lzf, which is not supported; read it with Spark")
    raise damaged(name, f"it begins with {head.hex(' ') or 'nothing'}, which is no codec of Spark's")


def _exactly(stream: ByteStream, size: int, name: str) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise damaged(name, "it ends in the middle of a block")
    return data


def _lz4(stream: ByteStream, name: str) -> Iterator[bytes]:
    """Each block: magic, token, sizes (little-endian) compressed and plain, checksum; the last one is empty."""
    codec = pa.Codec("lz4_raw")
    while True:
        token, size, plain, sum = struct.unpack("<BiiI", _exactly(stream, 13, name))
        if not (0 <= size <= _MAX_BLOCK * 2 and 0 <= plain <= _MAX_BLOCK):
            raise damaged(name, f"a block claims to have {size} bytes for {plain}")
        if plain == 0:
            return
        block = _exactly(stream, size, name)
        if token & 0xF0 == _LZ4_COMPRESSED:
            block = _block(codec, block, plain, name)
        elif token & 0xF0 != _LZ4_RAW or size != plain:
            raise damaged(name, f"a block is of an unknown method ({token:#x})")
        if xxhash.xxh32_intdigest(block, _LZ4_SEED) & 0xFFFFFFF != sum:
            raise damaged(name, "the checksum of a block does not hold")
        yield block
        if _exactly(stream, 8, name) != _LZ4:
            raise damaged(name, "a block does not begin where the one before it ends")


def _snappy(stream: ByteStream, name: str) -> Iterator[bytes]:
    """Two version numbers; then for each block its size (big-endian) and the block."""
    codec = pa.Codec("snappy")
    _exactly(stream, 8, name)
    while head := stream.read(4):
        if len(head) < 4:
            raise damaged(name, "it ends in the middle of a block")
        size = int.from_bytes(head, "big")
        if size > _MAX_BLOCK:
            raise damaged(name, f"a block claims to have {size} bytes")
        block = _exactly(stream, size, name)
        plain, shift = 0, 0
        for byte in block[:5]:
            plain |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if plain > _MAX_BLOCK:
            raise damaged(name, f"a block claims to have {plain} bytes when plain")
        yield _block(codec, block, plain, name)


def _block(codec: pa.Codec, block: bytes, plain: int, name: str) -> bytes:
    try:
        data: bytes = codec.decompress(block, plain, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise damaged(name, str(error)) from error
    if len(data) != plain:
        raise damaged(name, f"a block of {plain} bytes has {len(data)}")
    return data


class _Rejoined:
    """A stream to whose front the bytes that were read are put back, with the methods that pyarrow needs."""

    closed = False

    def __init__(self, head: bytes, stream: ByteStream) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int = -1) -> bytes:
        if self._head:
            data, self._head = self._head, b""
            return data
        return self._stream.read(size)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self._stream.close()


def _zstd(stream: ByteStream, head: bytes, name: str) -> Iterator[bytes]:
    source = pa.CompressedInputStream(pa.PythonFile(_Rejoined(head, stream), mode="r"), "zstd")
    while True:
        try:
            data = source.read(1 << 16)
        except BinshiftError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise damaged(name, str(error)) from error
        if not data:
            return
        yield data
