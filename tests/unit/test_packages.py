"""Dependencies between packages have no circles in either language, nor do those between Python's modules."""

import ast
import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "python" / "binshift"
SCALA = {
    "statestore": "org.apache.spark.sql.execution.streaming.state.binshift",
    "jvm_shim": "org.apache.spark.sql.binshift",
}

#: These decide by epochs, tables, executors and files, so that a test of them needs no session.
WITHOUT_SPARK = {
    "migration": ["CopyForecast", "MigrationPlan", "OpeningPace", "Splits", "StandbyPlan", "StepDecision"],
    "query": ["ServedRequests", "SignedRequests"],
    "retention": ["RunEnd"],
}
#: Classes of Spark's that only log, or make threads.
_HELPERS = {"org.apache.spark.internal.Logging", "org.apache.spark.util.ThreadUtils"}

Graph = dict[str, set[str]]

_DEFINED = re.compile(
    r"^(?:private(?:\[\w+\])? |final |sealed |abstract |case )*(?:class|object|trait) (\w+)", re.MULTILINE
)


@pytest.mark.parametrize("folder", SCALA)
def test_packages_of_scala_form_no_circle(folder: str) -> None:
    sources = [
        (_package(file, SCALA[folder]), file.read_text())
        for part in ("main", "since-4.2", "since-4.3", "spark-4.3")
        for file in (ROOT / folder / "src" / part / "scala").rglob("*.scala")
        if SCALA[folder].replace(".", "/") in str(file)
    ]
    homes = {name: package for package, text in sources for name in _DEFINED.findall(text)}
    graph: Graph = {package: set() for package, _ in sources}
    for package, text in sources:
        code = _code(text)
        # Names of others' packages that one of our packages has, too.
        foreign = re.findall(
            r"\w+", " ".join(re.findall(r"^import (?!.*\.binshift\b)(.*)$", text, re.MULTILINE))
        )
        names = _used(code).difference(foreign)
        graph[package] |= {homes[name] for name in names & homes.keys()} - {package}
    assert len(graph) > 5
    assert _circle(graph) is None


def test_what_only_decides_knows_no_class_of_spark() -> None:
    base = ROOT / "jvm_shim/src/main/scala" / SCALA["jvm_shim"].replace(".", "/")
    texts = {file.relative_to(base): file.read_text() for file in base.rglob("*.scala")}
    knowing = {file for file, text in texts.items() if _imports_of_spark(text)}
    names = {name for file in knowing for name in _DEFINED.findall(texts[file])}
    for package, files in WITHOUT_SPARK.items():
        for file in (Path(package, f"{name}.scala") for name in files):
            assert _imports_of_spark(texts[file]) == []
            # Others of the package need no import.
            assert names & _used(_code(texts[file])) == set()


def test_modules_and_packages_of_python_form_no_circle() -> None:
    files = {_module(file): file for file in PYTHON.rglob("*.py")}
    modules: Graph = {name: set(_imports(file, files)) - {name} for name, file in files.items()}
    assert modules["binshift.controller"] >= {"binshift.migration"}
    assert _circle(modules) is None
    # A module at the top level counts as a package of its own.
    packages: Graph = {}
    for name, found in modules.items():
        packages.setdefault(_top(name), set()).update(_top(n) for n in found if _top(n) != _top(name))
    assert {"binshift.planning", "binshift.control"} <= packages.keys()
    assert _circle(packages) is None


def test_a_circle_is_found() -> None:
    assert _circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert _circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def _circle(graph: Mapping[str, Iterable[str]]) -> list[str] | None:
    """The nodes of a circle; the first node is repeated at the end."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str] | None:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        for target in sorted(graph.get(node, ())):
            if found := visit(target, [*path, node]):
                return found
        done.add(node)
        return None

    return next((found for node in sorted(graph) if (found := visit(node, []))), None)


def _imports_of_spark(text: str) -> list[str]:
    found = re.findall(r"^import (org\.apache\.spark\.\S+)", text, re.MULTILINE)
    ours = tuple(f"{base}." for base in SCALA.values())
    return [name for name in found if name not in _HELPERS and not name.startswith(ours)]


def _package(file: Path, base: str) -> str:
    package = re.search(r"^package (\S+)$", file.read_text(), re.MULTILINE)
    assert package is not None, file
    return package[1].removeprefix(base)


def _code(text: str) -> str:
    """The text without comments, strings and imports."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    text = re.sub(r'"""(?:.*?)"""', _interpolated, text, flags=re.DOTALL)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', _interpolated, text)
    return re.sub(r"^import .*$", "", text, flags=re.MULTILINE)


def _used(code: str) -> set[str]:
    """The names of classes and objects that are defined elsewhere."""
    return set(re.findall(r"(?<![.\w])([A-Z]\w+)", code)) - set(
        re.findall(r"(?:class|object|trait|val) (\w+)", code)
    )


def _interpolated(literal: re.Match[str]) -> str:
    return " ".join(re.findall(r"\$\{([^}]*)\}", literal[0]))


def _module(file: Path) -> str:
    parts = file.relative_to(PYTHON.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(file: Path, modules: Container[str]) -> Iterable[str]:
    """The modules among `modules` that a file imports, including imports for annotations only."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                home = name if name in modules else str(node.module)
                if home in modules:
                    yield home


def _top(module: str) -> str:
    return ".".join(module.split(".")[:2])
