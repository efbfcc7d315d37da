"""Reads Spark's state files in a checkpoint: snapshots, changelogs, checksums."""
