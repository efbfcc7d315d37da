"""The documentation is right: its snippets, names, links, settings, metrics, and examples of docstrings."""

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import json
import pkgutil
import re
import tomllib
from pathlib import Path

import click
import pytest

import binshift
import binshift.inspect
import binshift.savepoints
from binshift.cli import exits
from binshift.cli.main import cli
from snippets import PAGES, ROOT, snippets

SCALA = "\n".join(f.read_text() for top in ("statestore", "jvm_shim") for f in (ROOT / top).rglob("*.scala"))
#: The names in snippets of objects that need a query.
KINDS = {
    "controller": binshift.Controller,
    "migration": binshift.Migration,
    "report": binshift.MigrationReport,
    "plan": binshift.MigrationPlan,
    "table": binshift.RoutingTable,
    "autoscaler": binshift.Autoscaler,
    "checkpoint": binshift.inspect.Checkpoint,
    "binshift": binshift,
}
#: Code in the text: a call, or an attribute with its module or object; neither a file nor a metric.
INLINE = re.compile(rf"`((?:{'|'.join(KINDS)})\.\w+\([^`]*\)|(?:binshift|controller)\.(?!py`)[a-z]\w+)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def unknown_names(tree):
    """Attributes and keyword arguments in the code that binshift's classes and functions don't have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (owner := meant(node.value)) is not None:
            if not hasattr(owner, node.attr):
                yield f"{ast.unparse(node)} does not exist"
        elif isinstance(node, ast.Call) and callable(called := meant(node.func)):
            parameters = inspect.signature(called).parameters
            yield from (
                f"{ast.unparse(node)}: {k.arg}" for k in node.keywords if k.arg not in {*parameters, None}
            )


def meant(node):
    """The object that an expression of a snippet stands for, as far as its name tells."""
    if isinstance(node, ast.Name):
        return KINDS.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := meant(node.value)) is not None:
        return getattr(owner, node.attr, None)
    return None


@pytest.mark.parametrize("snippet", [s for s in snippets() if s.makes_a_session], ids=lambda s: s.place)
def test_a_program_imports_or_makes_all_that_it_uses(snippet):
    assert snippet.free_names == set()


@pytest.mark.parametrize("snippet", list(snippets()), ids=lambda s: s.place)
def test_a_snippet_compiles_has_the_names_of_the_api_and_runs_if_it_needs_no_query(snippet):
    assert list(unknown_names(snippet.tree)) == []
    if snippet.needs_a_query or snippet.makes_a_session:
        return
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(snippet.tree, snippet.place, "exec"), {"binshift": binshift})
    assert out.getvalue() == snippet.printed


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_in_the_text_exist_and_links_lead_somewhere(page):
    text = page.read_text()
    wrong = []
    for code in INLINE.findall(text):
        with contextlib.suppress(SyntaxError):  # such as `binshift.<query's name>`
            wrong += unknown_names(ast.parse(code))
    wrong += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert wrong == []


def test_figures_that_are_said_to_be_of_the_benchmarks_are_there():
    measured = (ROOT / "BENCHMARKS.md").read_text()
    wrong = []
    for page in (
        ROOT / name for name in ("README.md", "docs/index.md", "docs/should-i-use-this.md", "docs/sizing.md")
    ):
        for passage in re.split(r"\n\n|\n(?=[-|] )", page.read_text()):
            if "BENCHMARKS.md#" in passage:
                figures = re.findall(r"\b\d+\.\d\d\b|\b\d+(?= times)", passage)
                wrong += [(page.name, f) for f in figures if not re.search(rf"\b{re.escape(f)}\b", measured)]
    assert wrong == []


def test_members_of_scala_classes_that_the_text_names_exist():
    sources = {
        f.stem: f.read_text() for top in ("statestore", "jvm_shim") for f in (ROOT / top).rglob("*.scala")
    }
    named = [n for page in PAGES for n in re.findall(r"`([A-Z]\w+)\.(\w+)(?:\([^`]*\))?`", page.read_text())]
    named = [(kind, member) for kind, member in named if kind in sources and member != "scala"]
    assert len(named) >= 10
    missing = [
        f"{kind}.{member}"
        for kind, member in named
        if not re.search(rf"\b(?:def|val|var|object|class) {member}\b|\b{member}:", sources[kind])
    ]
    assert [m for m in missing if not hasattr(getattr(binshift, m.split(".")[0], None), m.split(".")[1])] == []


def commands(group, *names):
    """Each command of the command line, by its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


def test_commands_of_the_text_exist_with_their_options_and_all_are_in_the_text():
    known = dict(commands(cli))
    wrong, named = [], set()
    for page in PAGES:
        text = "" if page.name == "CHANGELOG.md" else page.read_text()
        for line in [
            *re.findall(r"^\$ binshift (.*)$", text, re.M),
            *re.findall(r"`binshift ([a-z][^`]*)`", text),
        ]:
            words = line.replace('"', " ").split()
            path = next((tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in known), None)
            group = tuple(words[:1]) in {path[:1] for path in known}
            if path is None:
                wrong += [] if group and len(words) == 1 else [f"{page.name}: binshift {line}"]
                continue
            named.add(path)
            options = {o for p in known[path].params for o in p.opts} | {"--help"}
            wrong += [f"{page.name}: binshift {line}" for w in words if w.startswith("--") and w not in options]
    assert wrong == []
    reference = (ROOT / "docs/command-line.md").read_text()
    assert [path for path in known if path not in named and f"`{path[-1]}`" not in reference] == []


def test_exit_codes_are_those_of_the_command_line():
    table = dict(re.findall(r"^\| (\d+) \| `?(\w+)", (ROOT / "docs/command-line.md").read_text(), re.M))
    own = {str(code): error.__name__ for error, code in exits.EXIT_CODES.items()}
    assert {code: table.get(code) for code in own} == own


def test_all_settings_and_metrics_are_in_their_tables():
    settings, metrics = (ROOT / "docs/settings.md").read_text(), (ROOT / "docs/metrics.md").read_text()
    # Other files use `BinshiftConf.Prefix` for keys that binshift itself writes into the log of offsets.
    names = set(re.findall(r'(?<!\.)Prefix \+ "([\w.]+)"', SCALA)) | set(
        re.findall(r'bytes\("([\w.]+)", "', SCALA)
    )
    names -= {n for n in names if n.startswith("internal.")}
    assert len(names) >= 10
    assert sorted(n for n in names if f"| `{n}` |" not in settings) == []
    # The settings of a query have to be in this list for the query to start.
    conf = next(ROOT.glob("statestore/src/main/**/BinshiftConf.scala")).read_text()
    keys = dict(re.findall(r'val (\w+): String = Prefix \+ "([\w.]+)"', conf))
    (known,) = re.findall(r"val All: Set\[String\] = Set\((.*?)map\(", conf, re.S)
    accepted = {keys[k] for k in re.findall(r"\b[A-Z]\w+", known) if k in keys} | set(
        re.findall(r'"([\w.]+)"', known)
    )
    (section,) = re.findall(r"^## Settings of binshift$(.*?)^## ", settings, re.M | re.S)
    assert accepted == names == set(re.findall(r"^\| `([\w.]+)` \|", section, re.M))
    gauges = re.findall(r'gauge\("([\w.]+)"\)', SCALA)
    own = re.findall(r'"(binshift(?:Bins|Bytes|Rows|Adopt)\w+)"', SCALA)
    assert len(gauges) >= 9
    assert len(own) >= 12
    assert sorted(n for n in {*gauges, *own} if f"| `{n}` |" not in metrics) == []


def test_defaults_of_sizes_are_those_of_the_table():
    settings = (ROOT / "docs/settings.md").read_text()
    defaults = re.findall(r'bytes\("([\w.]+)", "(\w+)"\)', SCALA)
    assert defaults
    assert [d for d in defaults if f"| `{d[0]}` | {d[1]} |" not in settings] == []


def raised():
    """Each error condition that is raised in Scala or Python, with the class of the error."""
    for kind in vars(binshift.errors).values():
        if isinstance(kind, type) and issubclass(kind, binshift.BinshiftError):
            yield kind.condition, kind.__name__
    kinds = {"configuration": "ConfigurationError", "plan": "PlanError", "migration": "MigrationError",
             "unsupportedVersion": "UnsupportedVersionError",
             "unsupportedOperator": "UnsupportedOperatorError", "failure": "BinshiftError",
             "state": "StateFormatError", "storage": "StorageError"}  # fmt: skip
    for condition, method in re.findall(r'BinshiftException\("(\w+)"[^\n]*?\)\s*\.(\w+)\(', SCALA):
        yield condition, kinds[method]
    for _, kind, conditions, _ in errors_of_python():
        yield from ((condition, kind) for condition in conditions)


def errors_of_python():
    """Each place where Python raises an error: the place, the class, the conditions and the parameters."""
    for file in (ROOT / "python/binshift").rglob("*.py"):
        for call in (n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)):
            place, kind = f"{file.name}:{call.lineno}", ast.unparse(call.func).split(".")[-1]
            if kind == "impossible" and ast.unparse(call.args[0]) == "kind":
                continue  # The caller chooses the class, for any argument.
            if kind == "impossible":
                yield place, ast.unparse(call.args[0]), ["INVALID_VALUE"], {"name", "value"}
            elif isinstance(made := getattr(binshift.errors, kind, None), type) and issubclass(made, Exception):
                given = {k.arg: k.value for k in call.keywords}
                found = [n.value for n in ast.walk(given.pop("condition", ast.Tuple([])))
                         if isinstance(n, ast.Constant)]  # fmt: skip
                yield place, kind, found, set(given)


def tables():
    """The rows of the tables of errors: condition, class, and names of the parameters."""
    text = (ROOT / "docs/errors.md").read_text()
    for title, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        rows = re.findall(r"^\| `([A-Z_]+)` \| (?:`(\w+)` \|)?.*\| ?([^|]*) \|$", section, re.M)
        for condition, kind, parameters in rows:
            yield (condition, kind or title), set(re.findall(r"`(\w+)`", parameters))


def test_every_error_of_python_has_a_condition_of_its_own_or_a_class_that_says_it_all():
    telling = {
        "MigrationTimeout",
        "StateFormatError",
        "StorageError",
        "UnsupportedOperatorError",
        "UnsupportedVersionError",
    }
    made = list(errors_of_python())
    assert len(made) > 100
    assert [(place, kind) for place, kind, found, _ in made if not found and kind not in telling] == []


def test_errors_of_python_have_the_parameters_of_the_tables():
    known = dict(tables())
    wrong = []
    for place, kind, found, given in errors_of_python():
        for condition in found or [getattr(binshift.errors, kind).condition]:
            named = known[condition, kind]
            wrong += [] if given <= named and (given or not named) else [(place, condition, given, named)]
    assert wrong == []


def test_the_conditions_of_errors_are_those_of_the_tables():
    named = {row for row, _ in tables()}
    assert SCALA.count('BinshiftException("') == len(re.findall(r'BinshiftException\("\w+"', SCALA))
    assert set(raised()) == named


def test_ci_runs_what_a_developer_runs_and_types_of_all_programs_are_checked():
    assert re.findall(r"^make (.*)$", (ROOT / ".ci/run").read_text(), re.M) == [
        'check MATRIX="$((day % 240))/240" LONG="$((day % 12))/12" OLDER="4.$((1 + day % 2))"'
    ]
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    ours = [f.relative_to(ROOT) for top in ("python", "scripts", "tests") for f in (ROOT / top).rglob("*.py")]
    ours += [f.relative_to(ROOT) for f in ROOT.glob("*.py")]
    assert len(ours) > 200
    assert [f for f in ours if not any(f.is_relative_to(c) for c in checked)] == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_and_folders_that_the_map_names_exist(page):
    tops = [ROOT / top for top in ("statestore", "jvm_shim", "python", "tests", "scripts", "docs")]
    files = [f for top in tops for f in (top, *top.rglob("*")) if "__pycache__" not in f.parts]
    paths = {f"/{f.relative_to(ROOT)}{'/' if f.is_dir() else ''}" for f in files} | {
        "/build.gradle",
        "/hatch_build.py",
    }
    (checkpoint,) = re.findall(r"^<checkpoint>.*?```", (ROOT / "ARCHITECTURE.md").read_text(), re.M | re.S)
    named = re.findall(r"`((?:[\w.…]+/)*\w+\.(?:scala|py|gradle)|(?:[\w.…]+/)+)`", (ROOT / page).read_text())
    assert named
    missing = [n for n in named if not any(p.endswith("/" + n.split("…/")[-1]) for p in paths)]
    assert [n for n in missing if n not in checkpoint] == []


def modules():
    found = pkgutil.walk_packages(binshift.__path__, "binshift.")
    return ["binshift", *(m.name for m in found if not m.name.endswith("__main__"))]


@pytest.mark.parametrize("name", modules())
def test_examples_of_docstrings_run(name):
    module = importlib.import_module(name)
    assert "doctest: +SKIP" not in (Path(module.__file__).read_text())
    assert doctest.testmod(module, verbose=False).failed == 0


def test_each_public_name_is_in_the_reference():
    text = "\n".join(f.read_text() for f in (ROOT / "docs/api").glob("*.rst"))
    listed = {line.rsplit(".", 1)[1] for line in re.findall(r":: (binshift\S+)", text)}
    errors = {n for n in binshift.__all__ if isinstance(getattr(binshift, n), type)
              and issubclass(getattr(binshift, n), binshift.BinshiftError)}  # fmt: skip
    named = {*binshift.__all__, *binshift.autoscaling.__all__, *binshift.inspect.__all__}
    named |= {*binshift.savepoints.__all__}
    modules = {"autoscaling", "inspect", "savepoints"}
    assert sorted(named - listed - errors - modules - {"__version__"}) == []


def test_the_notebook_of_the_examples_compiles():
    cells = json.loads((ROOT / "python/examples/rescaling.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            assert list(unknown_names(ast.parse("".join(cell["source"])))) == []


def test_the_page_on_porting_has_each_internal_that_is_relied_on_and_a_test_of_it():
    text = (ROOT / "docs/porting.md").read_text()
    rows = re.findall(r"^\| `([\w/]+\.\w+)` \| .* \| `(\w+)` \|$", text, re.M)
    folders = (ROOT / folder for folder in ("statestore", "jvm_shim", "python/binshift"))
    sources = [p for folder in folders for end in ("scala", "py") for p in folder.rglob(f"*.{end}")]
    rely = {p for p in sources if re.search(r"[Rr]elies on (in )?Spark", p.read_text())}
    named = {p for p in sources for file, _ in rows if str(p).endswith(f"/{file}")}
    assert not {str(p.relative_to(ROOT)) for p in rely - named}
    assert all(any(str(p).endswith(f"/{file}") for p in sources) for file, _ in rows), "a file is gone"
    tests = "".join(p.read_text() for p in (ROOT / "tests").rglob("test_*.py"))
    assert not [test for _, test in rows if f"def {test}(" not in tests]
