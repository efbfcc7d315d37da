"""`binshift fsck`, which says whether a checkpoint is whole."""

from __future__ import annotations

import json

import click

import binshift.inspect as reading
from binshift.cli.exits import EXIT_CODES
from binshift.cli.output import checkpoint, example
from binshift.errors import ConfigurationError, StateFormatError
from binshift.inspect.tools.fsck import Severity, fsck

__all__ = ["COMMANDS"]


@click.command(
    "fsck",
    epilog=example(
        "binshift fsck checkpoint",
        errors=(ConfigurationError, StateFormatError),
        note="9 also if it is damaged. Orphans do no harm and change no exit code.",
    ),
)
@checkpoint
@click.option(
    "--version", type=int, metavar="V", help="The version whose rows are checked; by default the newest."
)
@click.option("--scratch", type=click.Path(file_okay=False), help="Directory for temporary files.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per finding.")
@click.pass_context
def fsck_(ctx: click.Context, checkpoint: str, version: int | None, scratch: str | None, as_json: bool) -> None:
    """Check files, checksums, and where each bin is.

    Each bin has to be at its owner and nowhere else.

    Files of all versions are looked at, and the rows of one: also that each is in the bin of its key, except
    for keys with arrays, maps, variants, or decimals of more than 18 digits. Nothing is changed.
    """
    counts = dict.fromkeys(Severity, 0)
    with reading.open(checkpoint, scratch=scratch) as opened:
        for finding in fsck(opened, version):
            counts[finding.severity] += 1
            if as_json:
                facts = {"severity": finding.severity.value, "where": finding.where, "what": finding.what}
                click.echo(json.dumps(facts))
            else:
                click.echo(str(finding))
    if not as_json:
        damage, orphans = counts[Severity.DAMAGE], counts[Severity.ORPHAN]
        click.echo(f"{'damaged' if damage else 'sound'}: {damage} damages, {orphans} orphans")
    if counts[Severity.DAMAGE]:
        ctx.exit(EXIT_CODES[StateFormatError])


COMMANDS = (fsck_,)
