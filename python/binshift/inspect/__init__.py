"""Looks into a checkpoint's state without a JVM.

It reads checkpoints of Spark's RocksDB provider and of binshift's, with only rocksdict and pyarrow.
"""

from binshift.libraries import needed_for

with needed_for("reading state", extra="inspect"):
    from binshift.inspect.checkpoint import Checkpoint, open  # noqa: A004 - read with its module, as gzip.open
    from binshift.inspect.decoding.schema import Encoder, Family, Operator, Store
    from binshift.inspect.decoding.types import Field, SparkType, TypeKind
    from binshift.inspect.source import Source

__all__ = [
    "Checkpoint",
    "Encoder",
    "Family",
    "Field",
    "Operator",
    "Source",
    "SparkType",
    "Store",
    "TypeKind",
    "open",
]
