"""Changelogs, streams, checksums and lists, built byte by byte, are read back, or refused if damaged."""

import io
import json
import struct

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from binshift.errors import StateFormatError
from binshift.inspect.decoding.binning import murmur3
from binshift.inspect.decoding.schema import _JavaReader
from binshift.inspect.decoding.values import row_values, split_list, verified
from binshift.inspect.storage.changelog import Changelog, Lineage, RecordKind
from binshift.inspect.storage.compression import decompressed
from checkpoints import crc32c as slow_crc32c


def lz4(data, size=50):
    """The frames of lz4-java's LZ4BlockOutputStream; a file can have plain and compressed blocks."""
    out = b""
    for i in range(0, len(data), size):
        block = data[i : i + size]
        packed = pa.compress(block, "lz4_raw", asbytes=True)
        method, stored = (0x20, packed) if len(packed) < len(block) else (0x10, block)
        sum = xxhash.xxh32_intdigest(block, 0x9747B28C) & 0xFFFFFFF
        out += b"LZ4Block" + struct.pack("<BiiI", method | 6, len(stored), len(block), sum) + stored
    return out + b"LZ4Block" + struct.pack("<BiiI", 0x10 | 6, 0, 0, 0)


def snappy(data, size=50):
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for i in range(0, len(data), size):
        packed = pa.compress(data[i : i + size], "snappy", asbytes=True)
        out += struct.pack(">i", len(packed)) + packed
    return out


def zstd(data):
    return pa.compress(data, "zstd", asbytes=True)


CODECS = {"lz4": lz4, "snappy": snappy, "zstd": zstd}


def utf(text):
    return struct.pack(">H", len(text)) + text.encode()


def changelog(format, records, lineage):
    """The bytes of a changelog before compression."""
    out = b"" if format == 1 else utf(f"v{format}")
    if format >= 3:
        out += utf(json.dumps([{"version": v, "checkpointUniqueId": i} for v, i in lineage]))
    typed = format in (2, 4)
    for kind, key, value in records:
        out += bytes([kind]) if typed else b""
        out += struct.pack(">i", len(key)) + key
        out += struct.pack(">i", -1) if kind == RecordKind.DELETE else struct.pack(">i", len(value)) + value
    return out + (b"\0" if typed else struct.pack(">i", -1))


def records_of(format):
    kinds = [RecordKind.PUT, RecordKind.DELETE]
    if format in (2, 4):
        kinds += [RecordKind.MERGE, RecordKind.DELETE_RANGE]
    large = st.binary(max_size=30) | st.binary(min_size=90, max_size=200)
    record = st.tuples(st.sampled_from(kinds), large, large)
    return st.lists(record.map(lambda r: (r[0], r[1], b"") if r[0] == RecordKind.DELETE else r), max_size=8)


def opened(data):
    return Changelog(io.BytesIO(data), "some.changelog")


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.sampled_from(sorted(CODECS)), st.data())
def test_changelogs_of_all_formats_and_codecs_are_read_back(format, codec, data):
    records = data.draw(records_of(format))
    lineage = [(v, f"id{v}") for v in range(data.draw(st.integers(0, 3)))]
    log = opened(CODECS[codec](changelog(format, records, lineage)))
    assert log.format == format
    assert list(log.records()) == records
    assert log.lineage == (tuple(Lineage(*item) for item in lineage) if format >= 3 else ())


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.sampled_from(sorted(CODECS)), st.data())
def test_damaged_changelogs_are_refused_and_break_nothing(format, codec, data):
    whole = bytearray(CODECS[codec](changelog(format, data.draw(records_of(format)), [(1, "a")])))
    for _ in range(data.draw(st.integers(0, 2))):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    del whole[data.draw(st.integers(0, len(whole))) :]
    try:
        list(opened(bytes(whole)).records())
    except StateFormatError as error:
        message = str(error)
        assert "some.changelog" in message or "schema" in message


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_changelog_that_ends_early_is_refused(codec):
    plain = changelog(2, [(RecordKind.PUT, b"key", b"value")] * 9, [])
    with pytest.raises(StateFormatError, match="ends in the middle"):
        list(opened(CODECS[codec](plain[:-1])).records())


def test_an_unknown_codec_and_an_unknown_format_are_named():
    with pytest.raises(StateFormatError, match="lzf"):
        opened(b"ZV" + bytes(20))
    with pytest.raises(StateFormatError, match="no codec of Spark's"):
        opened(b"something")
    with pytest.raises(StateFormatError, match="format"):
        opened(lz4(utf("v7") + b"\0"))


def test_a_key_of_format_1_that_looks_like_the_name_of_a_format_is_a_key():
    # The size of the key has the bytes 00 02 76 00, which also are a string of two bytes that begins with "v".
    key = bytes(0x276_00)
    assert list(opened(zstd(changelog(1, [(RecordKind.PUT, key, b"v")], []))).records()) == [
        (RecordKind.PUT, key, b"v")
    ]


def test_pieces_of_a_stream_are_those_of_its_blocks():
    pieces = list(decompressed(io.BytesIO(lz4(bytes(175))), "x"))
    assert [len(p) for p in pieces] == [50, 50, 50, 25]


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_the_checksum_of_sparks_files_and_rows_is_that_of_the_definition(key, value):
    assert google_crc32c.value(b"123456789") == 0xE3069283
    assert google_crc32c.extend(google_crc32c.value(key), value) == slow_crc32c(key + value)
    # The implementation in Python takes hours where this one takes minutes.
    assert google_crc32c.implementation == "c"


def summed(key, value):
    return struct.pack("<Ii", slow_crc32c(key + value), len(value)) + value


LISTS = st.lists(st.binary(max_size=20), min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=9), LISTS), max_size=5), st.sampled_from([b"", b","]))
def test_values_with_row_checksums_are_taken_apart(rows, delimiter):
    stored = [delimiter.join(summed(key, v) for v in values) for key, values in rows]
    plain = verified([key for key, _ in rows], stored, delimiter)
    assert plain == [delimiter.join(values) for _, values in rows]
    assert [row_values(s, delimiter) for s in stored] == [values for _, values in rows]


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=9), st.binary(min_size=1, max_size=20), st.data())
def test_a_row_of_which_a_bit_is_turned_is_refused(key, value, data):
    stored = bytearray(summed(key, value))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(StateFormatError, match="damaged"):
        verified([key], [bytes(stored)], b"")


@settings(deadline=None)
@given(LISTS, st.sampled_from([b"", b","]))
def test_lists_are_split(items, delimiter):
    stored = delimiter.join(struct.pack("<i", len(i)) + i for i in items)
    assert split_list(stored, delimiter) == items
    with pytest.raises(StateFormatError):
        split_list(stored + b"\x01", delimiter)


def test_java_s_own_utf8_is_read():
    # Java writes a character beyond 16 bits as two surrogates of three bytes each, and NUL as two bytes.
    data = "ä€".encode() + b"\xed\xa0\xbd\xed\xb8\x80" + b"\xc0\x80"
    assert _JavaReader(struct.pack(">H", len(data)) + data, "x").utf() == "ä€😀\0"


def test_murmur3_of_known_values():
    # The results are those of Spark's hash(), whose seed is 42.
    data = np.frombuffer((1).to_bytes(4, "little"), np.uint8)
    found = murmur3(data, np.array([0]), np.array([4]), np.array([42], np.uint32))
    assert found.tolist() == [-559580957 % (1 << 32)]
