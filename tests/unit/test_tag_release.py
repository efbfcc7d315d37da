"""A release is closed by one command, and what is in its way is said before anything is built."""

import datetime
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = "# Changelog\n\n## [0.7.0] - unreleased\n\n### What breaks\n\nNothing.\n\n## [0.6.0] - 2026-01-01\n"


class Tree:
    """A repository with what a release looks at."""

    def __init__(self, root):
        self.root = root
        self.git("init", "--quiet", "-b", "main")
        self.git("config", "user.email", "a@b")
        self.git("config", "user.name", "a")
        self.write(**{"gradle.properties": "version=0.7.0\n", "CHANGELOG.md": SECTION})

    def git(self, *arguments):
        command = ["git", *arguments]
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout

    def write(self, **files):
        for name, text in files.items():
            (self.root / name).write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "-m", "x")

    def release(self, *arguments):
        command = [sys.executable, ROOT / "scripts/tag_release.py", *arguments]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_a_release_dates_its_section_commits_it_and_tags_the_commit(tree):
    before = tree.git("rev-parse", "HEAD")
    assert tree.release("--check").returncode == 0
    assert (tree.git("rev-parse", "HEAD"), tree.git("tag")) == (before, "")
    done = tree.release()
    assert done.returncode == 0, done.stderr
    assert "git push origin main v0.7.0" in done.stdout
    today = datetime.datetime.now(tz=datetime.UTC).date()
    assert (tree.root / "CHANGELOG.md").read_text() == SECTION.replace("unreleased", str(today))
    assert tree.git("status", "--porcelain") == ""
    assert tree.git("rev-parse", "v0.7.0^{commit}") == tree.git("rev-parse", "HEAD")
    assert "the tag v0.7.0 is there already" in tree.release("--check").stderr


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"gradle.properties": "version=0.7.0.dev1\n"}, "give one of a release, like 0.1.0"),
        (
            {"CHANGELOG.md": SECTION.replace("0.7.0", "0.8.0")},
            "with a section '## [0.7.0] - unreleased'",
        ),
        (
            {"CHANGELOG.md": SECTION.replace("### What breaks", "### More")},
            "no '### What breaks' for 0.7.0",
        ),
    ],
)
def test_what_is_in_the_way_is_said_and_nothing_is_changed(tree, files, said):
    tree.write(**files)
    (tree.root / "more").touch()
    tree.git("checkout", "--quiet", "-b", "other")
    for arguments in ([], ["--check"]):
        refused = tree.release(*arguments)
        assert refused.returncode == 1
        for part in (said, "changes that are not committed", "this is the branch other; release from main"):
            assert part in refused.stderr
    assert (tree.git("tag"), tree.git("status", "--porcelain")) == ("", "?? more\n")


def test_this_version_can_be_released_and_the_workflow_runs_what_there_is():
    version = re.search(r"^version=(.+)$", (ROOT / "gradle.properties").read_text(), re.M)[1]
    first = re.search(r"^## .*?(?=^## |\Z)", (ROOT / "CHANGELOG.md").read_text(), re.M | re.S)[0]
    assert first.startswith(f"## [{version}] - ")
    assert "### What breaks\n" in first
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"run: make (\S+)", workflow)) <= set(targets) | {"release-check"}
    assert all((ROOT / script).exists() for script in re.findall(r"run: (scripts/\w+)", workflow))
