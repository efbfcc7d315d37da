"""The tutorial runs as a reader runs it: its programs are saved, its commands typed, its outputs compared."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness import until
from jvms import quick

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Commands that change nothing: a reader gives them again until they show what the page shows.
LOOKS = ("binshift status", "binshift state", "binshift history", "binshift fsck", "python check.py")
#: Numbers that differ from run to run. A zero stays zero, and numbers of what is moved are those of the page.
PATTERNS = {
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": r"[0-9a-f-]{36}",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d": r"[\d: -]{19}",
    r"file:/\S+/": r"file:/\S+/",
    r"\d+ orphans": r"\d+ orphans",
    r"\d+ -> \d+|1024 bins|\d+ of 1024 \(50%\)|of \d+ steps|\d+ partitions|\d+ bins(?!,)|steps: \d+": None,
    r"[1-9][\d.]*": r"[1-9][\d.]*",
}
ANY = re.compile("|".join(f"(?P<p{i}>{pattern})" for i, pattern in enumerate(PATTERNS)))
#: Messages of a shell about a killed process, and of `fsck` about a file that it was writing just then.
KILLED = re.compile(r"^(?:\S+ line \d+: +\d+ (?:Killed|Terminated)|orphan: ).*$\n?", re.MULTILINE)
END = "this was all"


class Shell:
    """A shell in an empty directory, in which `spark-submit` starts JVMs as tests do."""

    def __init__(self, folder: Path) -> None:
        tools = folder.with_name("tools")
        tools.mkdir()
        bin = Path(sys.executable).parent
        properties = tools / "spark.conf"
        properties.write_text("".join(f"{key} {value}\n" for key, value in quick().items()))
        submit = tools / "spark-submit"
        submit.write_text(f'#!/bin/sh\nexec {bin}/spark-submit --properties-file {properties} "$@"\n')
        submit.chmod(0o755)
        settings = shlex.join([f"--conf={key}={value}" for key, value in quick().items()])
        self._bash = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{tools}:{bin}:{os.environ['PATH']}",
                "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell",
                "SPARK_LOCAL_DIRS": str(tools),
            },
        )

    def run(self, command: str) -> str:
        """The output of a command until it returns."""
        self._bash.stdin.write(f"{command}\necho {END}\n")
        self._bash.stdin.flush()
        lines = iter(self._bash.stdout.readline, f"{END}\n")
        return KILLED.sub("", "".join(lines))

    def close(self) -> None:
        """Nothing that was started here runs on."""
        self._bash.stdin.write("kill -9 $(jobs -p) 2> /dev/null\n")
        self._bash.stdin.close()
        self._bash.wait(30)


@pytest.fixture
def shell(tmp_path, jvm_jar):
    (folder := tmp_path / "shop").mkdir()
    shell = Shell(folder)
    yield shell, folder
    shell.close()


def pattern_of(shown):
    """A pattern for the output of a run where the page shows this; the number of blanks may differ."""
    shown = " ".join(shown.split())
    parts, at = [], 0
    for found in ANY.finditer(shown):
        kind = list(PATTERNS.values())[int(found.lastgroup[1:])]
        parts += [re.escape(shown[at : found.start()]), re.escape(found[0]) if kind is None else kind]
        at = found.end()
    return "".join(parts) + re.escape(shown[at:])


def test_what_may_differ_is_known():
    shown = "migration  0b6c3a52-2c7f-4a96-bf21-2727268fa0c0: 8 -> 4 partitions, batched(64), 2 of 8 steps done"
    said = "migration 866fd667-2c7f-4a96-bf21-2727268fa0c0: 8 -> 4 partitions, batched(64), {} of 8 steps done"
    assert re.fullmatch(pattern_of(shown), said.format(3))
    for other in (said.format(0), said.replace("of 8", "of 9"), said.replace("-> 4", "-> 5")):
        assert not re.fullmatch(pattern_of(shown), other.format(3))


def typed(bash, command, shown, counted):
    """The output of a command. One that changes nothing is given again until that is as shown.

    A check has to be of more orders than were counted before.
    """
    is_look = command.startswith(LOOKS)
    said = bash.run(command)

    def is_as_shown():
        nonlocal said
        as_shown = re.fullmatch(pattern_of(shown), " ".join(said.split()))
        if as_shown and all(orders > counted for orders, _ in checked(said)):
            return True
        if is_look:
            said = bash.run(command)
        return False

    assert until(is_as_shown, seconds=240 if is_look else 0), f"{command}\n{said}"
    return said


def checked(said):
    """The orders that a check has counted, and those that were sent."""
    return [(int(counted), int(sent)) for counted, sent in re.findall(r"(\d+) of (\d+) orders", said)]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_tutorial_shows_what_happens(shell):
    bash, folder = shell
    checks = [(0, 0)]
    for kind, block in BLOCK.findall(PAGE.read_text()):
        if kind == "python":
            (folder / block.split()[1]).write_text(block)
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            said = typed(bash, command, shown, checks[-1][0])
            sys.stdout.write(f"$ {command}\n{said}")
            checks += checked(said)
    assert len(checks) == 6
    assert [counted for counted, sent in checks if counted != sent] == []
