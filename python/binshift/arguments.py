"""Checks the types of arguments. The error has the argument's name, its value, and what to give instead."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from binshift.errors import BinshiftError, impossible

__all__ = ["checked", "is_of_pyspark"]

_T = TypeVar("_T")


def checked(kind: type[BinshiftError], *, but: Collection[str] = ()) -> Callable[[_T], _T]:
    """Makes a function, or all public methods of a class, refuse arguments that their annotations don't allow.

    The arguments of the class's constructor are checked as well.

    Parameters
    ----------
    kind : type
        Class of the error.
    but : collection of str
        Parameters that the body checks itself, because it can give a better message.
    """

    def decorate(thing: _T) -> _T:
        if not isinstance(thing, type):
            return cast(_T, _checked(cast(Callable[..., Any], thing), kind, but))
        for name, member in list(vars(thing).items()):
            if name.startswith("_") and name != "__init__":
                continue
            if isinstance(member, types.FunctionType):
                setattr(thing, name, _checked(member, kind, but))
            elif isinstance(member, classmethod):
                setattr(thing, name, classmethod(_checked(member.__func__, kind, but)))
        return thing

    return decorate


def is_of_pyspark(value: object, name: str) -> bool:
    """True if it is an instance of this class of PySpark, or of the class of the same name of Spark Connect."""
    return any(k.__name__ == name and k.__module__.startswith("pyspark.") for k in type(value).__mro__)


def _checked(function: Callable[..., Any], kind: type[BinshiftError], but: Collection[str]) -> Any:
    @functools.cache
    def expected() -> tuple[inspect.Signature, dict[str, Any]]:
        # On the first call, because the function's module may still be loading when it is decorated.
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.name not in but and p.annotation is not p.empty]
        named = [p for p in named if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        names = vars(sys.modules[function.__module__])
        return signature, {p.name: eval(p.annotation, names) for p in named}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        signature, hints = expected()
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python itself says best which argument is missing, or too many.
        for name, hint in hints.items():
            if name in given and not _fits(given[name], hint):
                raise impossible(kind, name, given[name], _wanted(hint))
        return function(*args, **kwargs)

    return call


def _fits(value: object, hint: Any) -> bool:
    """True if a value matches an annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is Literal:
        return value in args
    if origin is Callable:
        return callable(value)
    if origin is not None and issubclass(origin, Iterable):
        return isinstance(value, origin) and not isinstance(value, str | bytes) and _holds(value, args[0])
    return _is_of(value, origin or hint)


def _holds(values: Iterable[object], hint: Any) -> bool:
    """True if all items, or keys of a mapping, match an annotation. Iterators are not consumed."""
    return isinstance(values, Iterator) or all(_fits(item, hint) for item in values)


def _is_of(value: object, kind: Any) -> bool:
    if kind is Any or kind is None:
        return kind is Any or value is None
    if kind in (int, float):
        # Numbers of numpy are accepted, too.
        is_number = isinstance(value, numbers.Integral if kind is int else numbers.Real)
        is_none = isinstance(value, bool) or (isinstance(value, float) and math.isnan(value))
        return is_number and not is_none
    of_pyspark = kind.__module__.startswith("pyspark.")
    return isinstance(value, kind) or (of_pyspark and is_of_pyspark(value, kind.__name__))


_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    types.NoneType: "None",
}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}


def _wanted(hint: Any) -> str:
    """The values that an annotation allows, in words."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_wanted, args))
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin is Callable:
        return "a function"
    if origin is not None and issubclass(origin, Mapping):
        return "a dict"
    if origin is not None and issubclass(origin, Iterable):
        of = _PLURALS.get(args[0]) or f"{get_origin(args[0]) or args[0]}s".rpartition(".")[2].replace("'>", "")
        return f"a list of {of}"
    named = origin or hint
    return _WORDS.get(named) or f"{'an' if named.__name__[0] in 'AEIOU' else 'a'} {named.__name__}"
