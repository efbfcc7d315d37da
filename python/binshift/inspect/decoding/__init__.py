"""Decodes stored bytes to values: schemas, encodings, and the bin of a key."""
