"""`binshift savepoint`, which keeps the state of an epoch."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from binshift import savepoints
from binshift.cli.output import as_json, checkpoint, example, print_json, print_table
from binshift.control.files import Files
from binshift.control.savepoints import Savepoint
from binshift.control.uris import with_suffix
from binshift.display import in_bytes
from binshift.errors import ConfigurationError, StateFormatError
from binshift.savepoints import Copy

__all__ = ["COMMANDS"]

_FAILS = (ConfigurationError, StateFormatError)
_name = click.argument("name")


@click.group(
    epilog=example(
        "binshift savepoint create /data/checkpoint before-upgrade",
        "binshift fork /data/checkpoint@before-upgrade /data/checkpoint2",
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
@click.option(
    "--epoch", type=click.IntRange(min=0), help="An epoch that is still retained; by default the newest."
)
@as_json
def create(checkpoint: str, name: str, epoch: int | None, as_json: bool) -> None:
    """Make a savepoint of a committed epoch."""
    made = savepoints.create(checkpoint, name, epoch=epoch)
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
        "binshift fork /data/checkpoint@before-upgrade /data/checkpoint2",
        "binshift fork /data/checkpoint@1841 /data/checkpoint2",
        errors=_FAILS,
    )
)
@click.argument("checkpoint", metavar="CHECKPOINT[@SAVEPOINT|@EPOCH]")
@click.argument("target")
@click.option("--savepoint", metavar="NAME", help="The same as CHECKPOINT@NAME.")
@click.option("--epoch", type=click.IntRange(min=0), help="The same as CHECKPOINT@EPOCH.")
@click.option(
    "--drop-operator",
    "dropped",
    metavar="N",
    type=click.IntRange(min=0),
    multiple=True,
    help="A stateful operator that the new query no longer has; may be given several times.",
)
@as_json
def fork(
    checkpoint: str,
    target: str,
    savepoint: str | None,
    epoch: int | None,
    dropped: tuple[int, ...],
    as_json: bool,
) -> None:
    """Make a checkpoint from which another query can run.

    The query of CHECKPOINT may run, and goes on. The new one begins with a savepoint, or with an epoch that is
    still retained, by default the newest. It has an id and a history of its own. On a local disk, both share
    the bytes of state; on an object store, the store copies them.
    """
    if savepoint is None and epoch is None:
        checkpoint, savepoint, epoch = _place(checkpoint)
    made = savepoints.fork(checkpoint, target, savepoint=savepoint, epoch=epoch, drop_operators=dropped)
    _print_copy(made, as_json=as_json)


def _place(text: str) -> tuple[str, str | None, int | None]:
    """Reads `CHECKPOINT[@SAVEPOINT|@EPOCH]`. A number is a savepoint if one is called so."""
    # The path of a checkpoint may have an @ itself.
    if (parts := with_suffix(text)) is None or Files(text).exists("offsets"):
        return text, None, None
    path, what = parts
    is_epoch = what.isascii() and what.isdigit() and what not in [s.name for s in savepoints.of(path)]
    return (path, None, int(what)) if is_epoch else (path, what, None)


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
