"""A checkpoint written by hand, and the command line on it."""

import pytest
from click.testing import CliRunner

from binshift.cli.main import cli
from unit.checkpoints import TWO, HandWritten


@pytest.fixture
def checkpoint(tmp_path):
    return HandWritten(tmp_path / "checkpoint", TWO, committed=5)


@pytest.fixture
def run(checkpoint):
    """Runs a command on the checkpoint, put behind the command's name; checks its exit code."""

    def call(command, *arguments, code=0):
        result = CliRunner().invoke(cli, [command, str(checkpoint.root), *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result

    return call
