"""Runs a suite in a JVM of its own, and keeps what became of its tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools.suites.testjars import PACKAGE

__all__ = ["Outcome", "Provider", "Runner"]

OPENED = [
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
]  # fmt: skip
#: A suite that takes longer hangs.
TIMEOUT_S = 1800


@dataclass(frozen=True)
class Outcome:
    """What became of the tests of a suite on a provider.

    Attributes
    ----------
    tests : dict
        Whether each test passed, by its name.
    ended : bool
        Whether the suite came to its end; else some of its tests are not there.
    """

    tests: dict[str, bool]
    ended: bool


@dataclass(frozen=True)
class Provider:
    """A provider, and the classes of the suites that name it."""

    name: str
    title: str
    classes: Path
    #: What else is on the class path, in front.
    jars: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Runner:
    """Runs suites of a Spark release with the jars of that release.

    Attributes
    ----------
    work : Path
        Where reports and results are kept.
    libs : sequence of Path
        The jars that the tests need beside Spark's own.
    spark : Path
        The directory of Spark's jars.
    same : str
        What stands for the name of a provider in the name of a test.
    """

    work: Path
    libs: Sequence[Path]
    spark: Path
    same: str

    def outcome(self, suite: str, provider: Provider) -> Outcome:
        """What became of the suite, which runs unless it has come to its end before."""
        kept = self.kept(suite, provider)
        if kept is not None:
            return kept
        outcome = self._run(suite, provider)
        file = self._file(suite, provider)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"ended": outcome.ended, "tests": outcome.tests}, indent=1))
        return outcome

    def kept(self, suite: str, provider: Provider) -> Outcome | None:
        """What became of the suite when it ran, if it did."""
        file = self._file(suite, provider)
        return Outcome(**json.loads(file.read_text())) if file.exists() else None

    def forget(self, suite: str, provider: Provider) -> None:
        """Has the suite run again."""
        self._file(suite, provider).unlink(missing_ok=True)

    def _file(self, suite: str, provider: Provider) -> Path:
        return self.work / "results" / provider.title / f"{suite}.json"

    def _run(self, suite: str, provider: Provider) -> Outcome:
        reports, scratch = (self.work / d / provider.title / suite for d in ("reports", "scratch"))
        for directory in (reports, scratch):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        libs = [j for j in self.libs if not j.name.startswith("spark-sql_")]
        path = [*map(str, [*provider.jars, provider.classes, *libs]), f"{self.spark}/*"]
        command = [
            "java", "-Xss8m", "-Xmx4g", *(f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in OPENED),
            "-Dspark.testing=1", "-Dspark.ui.enabled=false", "-Djdk.reflect.useDirectMethodHandle=false",
            *provider.options, f"-Dspark.sql.streaming.stateStore.providerClass={provider.name}",
            f"-Dspark.test.home={scratch}", f"-Djava.io.tmpdir={scratch}", "-cp", os.pathsep.join(path),
            "org.scalatest.tools.Runner", "-R", str(provider.classes), "-s", PACKAGE + suite, "-oW",
            "-u", str(reports),
        ]  # fmt: skip
        with (reports / "log.txt").open("w") as log:
            try:
                subprocess.run(
                    command, cwd=scratch, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=TIMEOUT_S
                )
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
        shutil.rmtree(scratch, ignore_errors=True)
        found = list(reports.glob("*.xml"))
        # Some suites say in a test's name which provider it runs on.
        tests = {
            case.get("name", "").replace(provider.name, self.same): case.find("failure") is None
            and case.find("error") is None
            for report in found
            for case in ET.parse(report).iter("testcase")
            if case.find("skipped") is None
        }
        return Outcome(tests, ended and bool(found))
