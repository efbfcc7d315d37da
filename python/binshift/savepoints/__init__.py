"""Savepoints: copies of a query's state as of a committed epoch, and new queries that begin with them.

A savepoint names files that the checkpoint has anyway, and keeps them from being deleted. So making one copies
no state, and the query, which may be running, isn't asked. `fork` makes a checkpoint for another query from it.
"""

from binshift.libraries import needed_for

with needed_for("savepoints", extra="inspect"):
    from binshift.control.savepoints import KeptFile, Savepoint
    from binshift.savepoints.copying import Copy, export_to, fork
    from binshift.savepoints.making import create, drop, get, of

__all__ = ["Copy", "KeptFile", "Savepoint", "create", "drop", "export_to", "fork", "get", "of"]
