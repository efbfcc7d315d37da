"""Plants the faults of faults.toml one by one, and looks whether random lives find them; see docs/mutants.md.

    PYTHONPATH=tests python tests/mutants/run.py --minutes 10
    PYTHONPATH=tests python tests/mutants/run.py --only delete-one-too-many
    PYTHONPATH=tests python tests/mutants/run.py --page

`results.jsonl` beside this file has a line for each fault. One that was looked for at this commit is not
planted again.
`--page` writes the table into docs/mutants.md. Ends with 1 if a fault was not found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import jvms
from binshift.session import jar_path
from devtools.compiling import compile_to
from devtools.pages import with_part
from devtools.results import commit, read
from prepared import prepare_jvms

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
BUILD = REPO / "build" / "mutants"
RESULTS = HERE / "results.jsonl"
PAGE = REPO / "docs" / "mutants.md"
#: The table stands between these two lines of the page.
MARKS = ("<!-- Below: written by `tests/mutants/run.py --page`. -->\n\n", "\n\n<!-- Above. -->")
PACKAGES = {
    "statestore": "statestore/src/main/scala/org/apache/spark/sql/execution/streaming/state/binshift",
    "jvm_shim": "jvm_shim/src/main/scala/org/apache/spark/sql/binshift",
}


@dataclass(frozen=True)
class PlantedFault:
    """A change of one place in the sources, and what is wrong about it, or why it changes nothing."""

    name: str
    file: str
    old: str
    new: str
    why: str
    harmless: str | None = None

    @property
    def path(self) -> Path:
        top, rest = self.file.split("/", 1)
        return REPO / PACKAGES[top] / rest

    def changed(self) -> str:
        """The text of the file with the fault. Raises `ValueError` if there is not exactly one place for it."""
        text = self.path.read_text()
        if (n := text.count(self.old)) != 1:
            raise ValueError(f"'{self.name}' has to be adapted: {self.file} has {n} places like {self.old!r}")
        return text.replace(self.old, self.new)


def faults() -> list[PlantedFault]:
    return [PlantedFault(**f) for f in tomllib.loads((HERE / "faults.toml").read_text())["fault"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of looking for each fault, at most")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--seed", default="21", help="of the lives; quick themes come first")
    parser.add_argument("--processes", type=int, default=2, help="JVMs side by side")
    parser.add_argument("--themes", nargs="+", default=(), help="only lives with these, which finds it sooner")
    parser.add_argument("--page", action="store_true", help="only write what was done into the page")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text(with_part(PAGE.read_text(), MARKS, table(read(RESULTS))))
        return 0
    # All JVMs share what the sound ones would: the jar with a fault is not among the classes that are archived.
    prepare_jvms(jvms.SHARED / "mutants")
    now = commit(REPO)
    done = {r["name"] for r in read(RESULTS) if r["commit"] == now}
    missed = []
    harmful = [f for f in faults() if f.harmless is None]
    wanted = [f for f in harmful if f.name in (given.only or [f.name]) and (given.only or f.name not in done)]
    compile_all(wanted)
    for fault in sorted(wanted, key=lambda f: (given.only or [f.name]).index(f.name)):
        try:
            result = {"commit": now, "name": fault.name, **look_for(fault, given)}
        except RuntimeError as error:
            print(error, file=sys.stderr)
            continue
        with RESULTS.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(json.dumps(result), flush=True)
        missed += [fault.name] * (result["found"] is None)
    if missed:
        print(f"not found: {', '.join(missed)}")
    return 1 if missed else 0


def look_for(fault: PlantedFault, given: argparse.Namespace) -> dict[str, Any]:
    """Lives through random lives with the fault until one comes out wrong."""
    root = BUILD / fault.name
    shutil.rmtree(root, ignore_errors=True)
    plant(fault, root)
    command = [sys.executable, str(HERE.parent / "lives" / "run.py"), "--minutes", str(given.minutes)]
    command += ["--seed", given.seed, "--processes", str(given.processes), "--shrink", "0"]
    command += ["--themes", *given.themes] if given.themes else []
    # All faults are looked for in the same lives.
    command += ["--oracles", str(BUILD / "oracles")]
    began = time.monotonic()
    # The lives of a process that is ended go with it.
    scratch = root / "tmp"
    scratch.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root / "python"), str(HERE.parent)]),
        "TMPDIR": str(scratch),
    }
    out = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    seconds = round(time.monotonic() - began)
    lives = [line for line in out.stdout.splitlines() if line.startswith("life ")]
    wrong = [line for line in lives if not line.endswith(", right")]
    if out.returncode != (1 if wrong else 0) or not lives:
        raise RuntimeError(f"{fault.name}: nothing was lived through: {out.stdout[-2000:]}")
    shutil.rmtree(root)
    found = re.sub(r"^life \S+: ", "", wrong[0])[:300] if wrong else None
    themes = {"themes": given.themes} if given.themes else {}
    return {"found": found, "seconds": seconds, "lives": len(lives), **themes}


def classes_of(fault: PlantedFault) -> Path:
    """Where the classes of the changed file are, by what they are made of."""
    made_of = hashlib.sha256(fault.changed().encode() + jar_path().read_bytes()).hexdigest()
    return BUILD / "classes" / f"{fault.name}-{made_of[:16]}"


def compile_all(wanted: Iterable[PlantedFault]) -> None:
    """Compiles the changed files that are not compiled yet, which takes half a minute.

    Faults of different files are compiled at once, and those of the same file one after the other.
    """
    missing = [f for f in wanted if not classes_of(f).exists()]
    while missing:
        batch = list({f.path.name: f for f in missing}.values())
        made, sources = BUILD / "compiled", BUILD / "sources"
        for folder in (made, sources):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for fault in batch:
            (sources / fault.path.name).write_text(fault.changed())
        compile_to(made, sources.iterdir())
        for fault in batch:
            part = sources / fault.name
            for file in made.rglob("*.class"):
                # Each class names the file that it comes from.
                if f"\0{chr(len(fault.path.name))}{fault.path.name}".encode() in file.read_bytes():
                    (part / file.relative_to(made)).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, part / file.relative_to(made))
            classes_of(fault).parent.mkdir(exist_ok=True)
            part.rename(classes_of(fault))
        missing = [f for f in missing if f not in batch]


def plant(fault: PlantedFault, root: Path) -> None:
    """Makes a package in `root` that is like this one but for its jar."""
    package = root / "python" / "binshift"
    (package / "jars").mkdir(parents=True)
    for entry in (REPO / "python" / "binshift").iterdir():
        if entry.name not in ("jars", "__pycache__"):
            (package / entry.name).symlink_to(entry)
    (root / "python" / "devtools").symlink_to(REPO / "python" / "devtools")
    classes = classes_of(fault)
    compiled = {str(f.relative_to(classes)): f for f in classes.rglob("*.class")}
    with ZipFile(jar_path()) as sound, ZipFile(package / "jars" / jar_path().name, "w", ZIP_DEFLATED) as jar:
        for item in sound.infolist():
            if item.filename not in compiled:
                jar.writestr(item, sound.read(item))
        for name, file in compiled.items():
            jar.write(file, name)


def table(done: list[dict[str, Any]]) -> str:
    """One row for each fault, as it was looked for last."""
    last = {r["name"]: r for r in done}
    lines = ["| fault | what goes wrong | found by | seconds | lives |", "|---|---|---|---|---|"]
    for fault in faults():
        r = last.get(fault.name, {"found": "not looked for", "seconds": "", "lives": ""})
        found = r["found"].split("\n")[0][:120].replace("|", "\\|") if r["found"] else "**not found**"
        if fault.harmless:
            found = f"harmless: {fault.harmless}"
        themes = f" of {', '.join(r['themes'])}" if "themes" in r else ""
        lines.append(f"| {fault.name} | {fault.why} | {found} | {r['seconds']} | {r['lives']}{themes} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
