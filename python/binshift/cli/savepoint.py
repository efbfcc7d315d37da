"""`binshift savepoint`, which keeps the state of an epoch."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from binshift import savepoints
from binshift.cli.output import as_json, checkpoint, example, print_json, print_table
from binshift.control.savepoints import Savepoint
from binshift.display import in_bytes
from binshift.errors import ConfigurationError, StateFormatError
from binshift.savepoints import Copy

__all__ = ["COMMANDS"]

_FAILS = (ConfigurationError, StateFormatError)
_name = click.argument("name")


@click.group(
    epilog=example(
        "binshift savepoint create /data/checkpoint before-upgrade",
        "binshift fork /data/checkpoint /data/checkpoint2 --savepoint before-upgrade",
        errors=_FAILS,
    )
)
def savepoint() -> None:
    """Keep the state of an epoch, to go back to it.

    A savepoint keeps files of the checkpoint from being deleted. It copies no state, and the query, which may
    run, doesn't notice. To use one, make a checkpoint from it with `binshift fork`.
    """


@savepoint.command(epilog=example("binshift savepoint create /data/checkpoint before-upgrade", errors=_FAILS))
@checkpoint
@_name
@as_json
def create(checkpoint: str, name: str, as_json: bool) -> None:
    """Make a savepoint of the newest committed epoch."""
    made = savepoints.create(checkpoint, name)
    if as_json:
        print_json(_facts(made))
    else:
        click.echo(f"savepoint {made.name} keeps epoch {made.epoch}, {in_bytes(made.size)} of state")


@savepoint.command("list", epilog=example("binshift savepoint list /data/checkpoint", errors=_FAILS))
@checkpoint
@as_json
def list_(checkpoint: str, as_json: bool) -> None:
    """List the savepoints, oldest first."""
    there = [_facts(s) for s in savepoints.of(checkpoint)]
    if as_json:
        print_json(there)
    elif there:
        print_table([*there[0]], [[_shown(v) for v in facts.values()] for facts in there])
    else:
        click.echo("no savepoints")


@savepoint.command(epilog=example("binshift savepoint show /data/checkpoint before-upgrade", errors=_FAILS))
@checkpoint
@_name
@as_json
def show(checkpoint: str, name: str, as_json: bool) -> None:
    """Show a savepoint with the files that it keeps."""
    found = savepoints.get(checkpoint, name)
    files = {f"{d}/{n}": f.bytes for d, names in (found.files or {}).items() for n, f in names.items()}
    if as_json:
        print_json(_facts(found) | {"files": files})
        return
    print_table(["name", "value"], [[k, _shown(v)] for k, v in _facts(found).items()])
    print_table(["file", "bytes"], sorted(files.items()))


@savepoint.command(epilog=example("binshift savepoint drop /data/checkpoint before-upgrade", errors=_FAILS))
@checkpoint
@_name
def drop(checkpoint: str, name: str) -> None:
    """Drop a savepoint; the query deletes its files later, unless it needs them."""
    savepoints.drop(checkpoint, name)
    click.echo(f"savepoint {name} is dropped")


@savepoint.command(
    epilog=example("binshift savepoint export /data/checkpoint nightly s3://backup/orders", errors=_FAILS)
)
@checkpoint
@_name
@click.argument("target")
@as_json
def export(checkpoint: str, name: str, target: str, as_json: bool) -> None:
    """Copy a savepoint to TARGET, and compare the checksums.

    TARGET is a checkpoint with the same query id: a backup, from which the query can continue.
    """
    _print_copy(savepoints.export_to(checkpoint, name, target), as_json=as_json)


@click.command(
    epilog=example(
        "binshift fork /data/checkpoint /data/checkpoint2",
        "binshift fork /data/checkpoint /data/checkpoint2 --savepoint before-upgrade",
        errors=_FAILS,
    )
)
@checkpoint
@click.argument("target")
@click.option("--savepoint", metavar="NAME", help="What to begin with; by default the newest committed epoch.")
@as_json
def fork(checkpoint: str, target: str, savepoint: str | None, as_json: bool) -> None:
    """Make a checkpoint from which another query can run.

    The query of CHECKPOINT may run, and goes on. The new query has an id and a history of its own. On a local
    disk, both share the bytes of state; on an object store, the store copies them.
    """
    _print_copy(savepoints.fork(checkpoint, target, savepoint=savepoint), as_json=as_json)


def _facts(of: Savepoint) -> dict[str, object]:
    state = "kept" if of.is_finished else "not finished"
    return {"name": of.name, "epoch": of.epoch, "made_at": of.made_at, "state": state, "bytes": of.size}


def _shown(value: object) -> object:
    return value.isoformat(" ", "seconds") if isinstance(value, datetime) else value


def _print_copy(copy: Copy, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(copy))
    else:
        click.echo(
            f"{copy.checkpoint} has the state of epoch {copy.epoch}: {copy.files} files, "
            f"{in_bytes(copy.bytes)}; {copy.linked} of the files share their bytes with the original"
        )


COMMANDS = (savepoint, fork)
