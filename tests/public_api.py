"""The public API as a text: a line for each thing that a user can call, type, set, query or catch.

`python tests/public_api.py` writes `docs/public-api.txt` anew. A change of that file is a change of the API;
docs/stability.md says which ones are allowed.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import binshift
import binshift.inspect
import binshift.savepoints
from binshift.cli import exits
from binshift.cli.main import cli
from unit.test_api import MADE
from unit.test_docs import SCALA, commands, raised

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs/public-api.txt"
_SQL = ROOT / "jvm_shim/src/main/scala/org/apache/spark/sql/binshift/sql"


def listing() -> str:
    """The whole listing, by kind."""
    kinds = {
        "Python": python(),
        "Conditions of errors": (f"{kind}.{condition}" for condition, kind in set(raised())),
        "Command line": command_line(),
        "Settings, below spark.sql.streaming.stateStore.binshift.": settings(),
        "SQL": sql(),
        "Scala and Java": scala(),
        "Metrics": metrics(),
    }
    return "\n\n".join("\n".join([f"# {kind}", "", *sorted(lines)]) for kind, lines in kinds.items()) + "\n"


def python() -> Iterator[str]:
    for module in (binshift, binshift.autoscaling, binshift.inspect, binshift.savepoints):
        for name in module.__all__:
            thing, full = getattr(module, name), f"{module.__name__}.{name}"
            if inspect.isclass(thing):
                yield from _of_class(full, thing)
            else:
                yield f"{full}{_signature(thing) if inspect.isfunction(thing) else ''}"


def _of_class(full: str, kind: Any) -> Iterator[str]:
    bases = ", ".join(b.__name__ for b in kind.__bases__ if b is not object)
    if issubclass(kind, enum.Enum):
        yield f"{full}({bases})"
        yield from (f"{full}.{member.name} = {member.value!r}" for member in kind)
        return
    if issubclass(kind, BaseException):
        yield f"{full}({bases}) {kind.condition}"
    elif kind.__name__ in MADE:
        yield full
    else:
        yield f"{full}{_signature(kind)}"
    own = {n for k in kind.__mro__ if k.__module__.startswith("binshift") for n in vars(k)}
    for name in sorted(own - {n for n in own if n.startswith("_") and n not in ("__enter__", "__exit__")}):
        member = inspect.getattr_static(kind, name)
        routine = inspect.isroutine(getattr(kind, name))
        yield f"{full}.{name}{_signature(getattr(kind, name)) if routine else _type_of(member)}"


def _signature(thing: Any) -> str:
    try:
        return str(inspect.signature(thing)).replace("'", "")
    except ValueError:
        return "(...)"


def _type_of(member: object) -> str:
    getter = member.fget if isinstance(member, property) else getattr(member, "func", None)
    returned = getattr(getter, "__annotations__", {}).get("return")
    return "" if returned is None else f" -> {returned}"


def command_line() -> Iterator[str]:
    for words, command in commands(cli):
        yield f"binshift {' '.join(words)}"
        for parameter in command.params:
            names = ", ".join(parameter.opts) if isinstance(parameter, click.Option) else parameter.name.upper()
            flag = getattr(parameter, "is_flag", False)
            details = [
                "" if flag else _kind(parameter.type),
                "required" if parameter.required else "",
                "repeated" if parameter.multiple or parameter.nargs == -1 else "",
                f"or {parameter.envvar}" if parameter.envvar else "",
            ]
            yield f"binshift {' '.join(words)} {names} {' '.join(filter(None, details))}".rstrip()
    yield from (f"exit code {code} {error.__name__}" for error, code in exits.EXIT_CODES.items())


def _kind(kind: Any) -> str:
    return "|".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else kind.name


def settings() -> set[str]:
    (conf,) = ROOT.glob("statestore/src/main/**/BinshiftConf.scala")
    text = conf.read_text()
    keys = dict(re.findall(r'val (\w+): String = Prefix \+ "([\w.]+)"', text))
    (known,) = re.findall(r"val All: Set\[String\] = Set\((.*?)map\(", text, re.S)
    named = {keys[name] for name in re.findall(r"\b[A-Z]\w+", known) if name in keys}
    return named | set(re.findall(r'"([\w.]+)"', known))


def sql() -> Iterator[str]:
    tables = (_SQL / "SystemTables.scala").read_text()
    column = r'add\(\s*"(\w+)",\s*(\w+)Type'
    first = [f"{name} {kind}" for name, kind in re.findall(column, tables.partition("val Queries")[0])]
    for name, columns in re.findall(r'= table\("(\w+)"[^)]*\)\((.*?)\{', tables, re.S):
        yield f"table {name}({', '.join([*first, *(f'{n} {k}' for n, k in re.findall(column, columns))])})"
    for file in ("Procedures.scala", "ClientProcedures.scala"):
        text = (_SQL / file).read_text()
        # Lists of parameters that several procedures share, by the name of the list.
        lists: dict[str, list[str]] = {}
        for value, body in re.findall(r"private val (\w+) = (.*?)(?=\n\n|\n  private val )", text, re.S):
            procedure = re.match(r'new SystemProcedure\(\s*"(\w+)",(.*?)(?:\(session, |$)', body, re.S)
            found = list(_parameters(procedure[2] if procedure else body, lists))
            if procedure:
                yield f"procedure {procedure[1]}({', '.join(found)})"
            else:
                lists[value] = found


def _parameters(text: str, lists: dict[str, list[str]]) -> Iterator[str]:
    parameter = r'(optional|Parameter)\("(\w+)",\s*(\w+)Type'
    for maker, name, kind, used in re.findall(rf"{parameter}|\b({'|'.join(lists) or 'none'})\b", text):
        if used:
            yield from lists[used]
        else:
            yield f"{name} {kind}{' optional' if maker == 'optional' else ''}"


def scala() -> Iterator[str]:
    for file in (ROOT / "jvm_shim/src/main/scala/binshift").glob("*.scala"):
        owner = ""
        for line in file.read_text().splitlines():
            if found := re.match(r"(?:final )?(?:case )?(?:class|object) (\w+).*?(?= \{$|$)", line):
                owner = found[1]
                yield f"binshift.{owner}: {found[0]}"
            elif found := re.match(r"  (?:override )?def (.*?) =", line):
                yield f"binshift.{owner}.{found[1]}"
    yield "binshift.StateStoreProvider: the provider's class"


def metrics() -> set[str]:
    own = set(re.findall(r'"(binshift(?:Bins|Bytes|Rows|Adopt)\w+)"', SCALA))
    return own | {f"gauge {name}" for name in re.findall(r'gauge\("([\w.]+)"\)', SCALA)}


if __name__ == "__main__":
    FILE.write_text(listing())
