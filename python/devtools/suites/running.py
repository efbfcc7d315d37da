"""Runs suites in a JVM, one after the other, and reports the results of their tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools.suites.results import Outcome
from devtools.suites.testjars import PACKAGE

__all__ = ["Provider", "Runner"]

OPENED = [
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
]  # fmt: skip
#: Suites run most code only a few times, so compiling it well costs more than it gains.
QUICK_TO_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
#: A suite that takes longer is considered to hang.
TIMEOUT_S = 2400


@dataclass(frozen=True)
class Provider:
    """A provider, and the classes of the suites that name it."""

    name: str
    title: str
    version: str
    classes: Path
    #: Additional jars at the front of the class path.
    jars: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Runner:
    """Runs suites of a Spark release with the jars of that release.

    Attributes
    ----------
    work : Path
        Where the logs of JVMs and the reports of suites are kept.
    libs : sequence of Path
        The jars that the tests need beside Spark's own.
    jars : Path
        The directory of Spark's jars.
    spark : str
        Which release it is.
    same : str
        The placeholder for the provider in names of tests.
    """

    work: Path
    libs: Sequence[Path]
    jars: Path
    spark: str
    same: str

    def run(self, suites: Mapping[str, Sequence[str]], provider: Provider) -> Iterator[Outcome]:
        """Runs suites in a JVM, and yields the outcome of each as soon as it ends.

        If the JVM dies or a suite hangs, the last outcome says that the suite hasn't ended; later suites
        haven't run.

        Parameters
        ----------
        suites : mapping
            For each suite, the names of the tests to run; all of them if it is empty.
        """
        place = self.work / "runs" / provider.title / next(iter(suites))
        shutil.rmtree(place, ignore_errors=True)
        reports, scratch = place / "reports", place / "scratch"
        for directory in (reports, scratch):
            directory.mkdir(parents=True)
        with (place / "log.txt").open("w") as log:
            jvm = subprocess.Popen(
                self._command(suites, provider, reports, scratch),
                cwd=scratch,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                for suite in list(suites):
                    report = reports / f"TEST-{PACKAGE}{suite}.xml"
                    outcome = self._outcome(suite, provider, self._awaited(report, jvm))
                    yield outcome
                    if not outcome.ended and not report.exists():
                        return
            finally:
                jvm.kill()
                jvm.wait()
                shutil.rmtree(scratch, ignore_errors=True)

    def _awaited(self, report: Path, jvm: subprocess.Popen[bytes]) -> ET.Element | None:
        """The report of a suite at its end; None if it doesn't get there."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            over = jvm.poll() is not None
            if report.exists():
                try:
                    return ET.parse(report).getroot()
                except ET.ParseError:
                    pass  # It is being written.
            if over:
                return None
            time.sleep(0.5)
        return None

    def _outcome(self, suite: str, provider: Provider, report: ET.Element | None) -> Outcome:
        cases = {} if report is None else {self._name(case, provider): case for case in report.iter("testcase")}
        skipped = {name for name, case in cases.items() if case.find("skipped") is not None}
        failed = {n for n, c in cases.items() if c.find("failure") is not None or c.find("error") is not None}
        # An error of the suite itself, rather than of a test, keeps its tests from running.
        ended = report is not None and bool(cases) and report.get("errors") == "0"
        return Outcome(
            suite=suite,
            spark=self.spark,
            provider=provider.title,
            version=provider.version,
            ended=ended,
            passed=len(cases) - len(skipped) - len(failed),
            failed=tuple(sorted(failed)),
            skipped=tuple(sorted(skipped)),
        )

    def _name(self, case: ET.Element, provider: Provider) -> str:
        """The name of a test, without the provider that some suites include in it."""
        return case.get("name", "").replace(provider.name, self.same)

    def _title(self, test: str, provider: Provider) -> str:
        """The name of a test in its suite, on the provider."""
        return test.replace(self.same, provider.name)

    def _command(
        self, suites: Mapping[str, Sequence[str]], provider: Provider, reports: Path, scratch: Path
    ) -> list[str]:
        libs = [j for j in self.libs if not j.name.startswith("spark-sql_")]
        path = [*map(str, [*provider.jars, provider.classes, *libs]), f"{self.jars}/*"]
        named = [
            option
            for suite, tests in suites.items()
            for option in (
                "-s",
                PACKAGE + suite,
                *(o for test in tests for o in ("-t", self._title(test, provider))),
            )
        ]
        return [
            "java", "-Xss8m", "-Xmx4g", *QUICK_TO_START,
            *(f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in OPENED),
            "-Dspark.testing=1", "-Dspark.ui.enabled=false", "-Djdk.reflect.useDirectMethodHandle=false",
            "-Dspark.hadoop.fs.AbstractFileSystem.file.impl=binshift.devtools.QuickLocalFs",
            *provider.options, f"-Dspark.sql.streaming.stateStore.providerClass={provider.name}",
            f"-Dspark.test.home={scratch}", f"-Djava.io.tmpdir={scratch}", "-cp", os.pathsep.join(path),
            "org.scalatest.tools.Runner", "-R", str(provider.classes), *named, "-oDWF", "-u", str(reports),
        ]  # fmt: skip
