"""The scratch copy of a partition's rows, when RocksDB meets damage in it."""

import pytest

from binshift.errors import StateFormatError
from binshift.inspect.storage.database import Database


def test_damage_that_rocksdb_met_in_the_background_does_not_keep_a_copy_from_being_closed(tmp_path):
    """RocksDB reports such damage at each later write, and once more when the database is closed."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    database = Database(scratch, None, b"", is_read_only=False)
    for version in (b"1", b"2"):
        for key in range(1000):
            database.put(b"%05d" % key, version * 100)
        database._flush()
        database._db.flush()
    for file in scratch.glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0x10
        file.write_bytes(data)
    database._db.compact_range(None, None)
    with pytest.raises(StateFormatError, match="Corruption"):
        database.delete_range(b"0", b"1")
    database.close()
    assert not scratch.exists()
