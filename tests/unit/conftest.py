"""Fixtures: a checkpoint written by hand, and a way to run commands on it."""

import pytest
from click.testing import CliRunner

from binshift.cli.main import cli
from unit.checkpoints import TWO, HandWritten


@pytest.fixture
def checkpoint(tmp_path):
    return HandWritten(tmp_path / "checkpoint", TWO, committed=5)


@pytest.fixture
def run(checkpoint):
    """Runs a command with the checkpoint as its first argument, and checks its exit code."""

    def call(command, *arguments, code=0):
        result = CliRunner().invoke(cli, [command, str(checkpoint.root), *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result

    return call
