"""Spark's state files as they lie in a checkpoint: snapshots, changelogs, checksums."""
