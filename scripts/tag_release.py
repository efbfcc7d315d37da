#!/usr/bin/env python3
"""Closes a release: gives its section of the changelog a date, commits that, and tags the commit.

`tag_release.py --check` only says whether that can be done. Nothing is pushed; the last line says how. The
version is the one of gradle.properties.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path.cwd()
CHANGELOG = ROOT / "CHANGELOG.md"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def problems(version: str) -> list[str]:
    """All that is in the way of a release, each with what to do."""
    found = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        found.append(f"gradle.properties has version={version}; give one of a release, like 0.1.0")
    if git("status", "--porcelain"):
        found.append("there are changes that are not committed; commit them, or put them aside")
    if (branch := git("rev-parse", "--abbrev-ref", "HEAD")) != "main":
        found.append(f"this is the branch {branch}; release from main")
    if git("tag", "--list", f"v{version}"):
        found.append(f"the tag v{version} is there already; give gradle.properties the next version")
    section = re.search(r"^## .*$(.*?)(?=^## |\Z)", CHANGELOG.read_text(), re.M | re.S)
    if section is None or not section[0].startswith(f"## [{version}] - unreleased\n"):
        found.append(f"CHANGELOG.md does not begin with a section '## [{version}] - unreleased'; write it")
    elif "### What breaks\n" not in section[0]:
        found.append(f"CHANGELOG.md has no '### What breaks' for {version}; write it, also if nothing breaks")
    return found


def main(*arguments: str) -> None:
    (version,) = re.findall(r"^version=(.+)$", (ROOT / "gradle.properties").read_text(), re.M)
    if found := problems(version):
        raise SystemExit("\n".join([f"{version} cannot be released:", *(f"- {problem}" for problem in found)]))
    if arguments == ("--check",):
        print(f"{version} can be released")
        return
    today = datetime.datetime.now(tz=datetime.UTC).date()
    text = CHANGELOG.read_text()
    CHANGELOG.write_text(text.replace(f"## [{version}] - unreleased", f"## [{version}] - {today}", 1))
    git("commit", "--quiet", "-m", f"binshift {version}", "CHANGELOG.md")
    git("tag", "-a", f"v{version}", "-m", f"binshift {version}")
    print(f"v{version} is tagged; 'git push origin main v{version}' publishes it")


if __name__ == "__main__":
    main(*sys.argv[1:])
