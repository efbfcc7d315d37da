"""No sentence of the documentation, nor of the API's docstrings, has more words than a reader bears."""

import inspect
import re
from pathlib import Path

import pytest

import binshift
import binshift.inspect

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "python").rglob("*.md")])
MOST_WORDS = 25
#: What begins a block of its own: an item of a list, a heading.
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.|#+)\s+")
#: An end, what may close behind it, and the beginning of another sentence. "e.g." and "3.5" are none.
END = re.compile(r"(?<=[.!?])[)*\"']*\s+(?=[(*\[\"'`]*[A-Z0-9`\x00])")
#: Lines of a docstring of numpydoc that are no prose: titles with their rules, names with their types.
TITLE = re.compile(r"\s*-{3,}\s*")
NAME = re.compile(r"\s*\**\w+(?:, \**\w+)* : .*")


def blocks(markdown):
    """Paragraphs, items, and cells of tables, each in one line; code and pictures are none."""
    text = re.sub(r"^```.*?^```$|^ *<!--.*?-->", "\n", markdown, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    block = []
    for line in [*text.splitlines(), ""]:
        row = line.lstrip().startswith("|")
        if not line.strip() or row or ITEM.match(line):
            yield " ".join(block)
            block = []
        if row:
            yield from line.strip(" |").split("|")
        elif line.startswith("#"):
            yield ITEM.sub("", line, count=1)
        elif line.strip():
            block.append(ITEM.sub("", line, count=1).strip())


def sentences(block):
    """Those of a block; code counts as a word, a link as its text."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block)
    text = re.sub(r"(`+).+?\1", "\x00", text)
    return END.split(text)


def words(sentence):
    return [w for w in sentence.split() if re.search(r"[\w\x00]", w)]


def long_sentences(markdown):
    """Each sentence that has too many words, with their number."""
    found = [(len(words(s)), s.replace("\x00", "`…`")) for b in blocks(markdown) for s in sentences(b)]
    return [f"{count}: {sentence}" for count, sentence in found if count > MOST_WORDS]


def prose(docstring):
    """A docstring of numpydoc as Markdown: without examples, names of parameters, and titles."""
    lines = inspect.cleandoc(docstring).splitlines()
    kept, in_example = [], False
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        in_example = (in_example or line.lstrip().startswith(">>>")) and line.strip() != ""
        is_title = TITLE.fullmatch(line) or TITLE.fullmatch(after)
        kept.append("" if in_example or is_title or NAME.fullmatch(line) else line)
    return "\n".join(kept)


def documented():
    """Each public object with a docstring of its own, by its name."""
    for module in (binshift, binshift.autoscaling, binshift.inspect):
        yield module.__name__, module.__doc__
        for name in module.__all__:
            thing = getattr(module, name)
            if not callable(thing):
                continue
            yield f"{module.__name__}.{name}", thing.__doc__
            for member, value in vars(thing).items() if isinstance(thing, type) else ():
                doc = getattr(value, "__doc__", None)
                own = callable(value) or isinstance(value, property | classmethod | staticmethod)
                if own and doc and not member.startswith("_"):
                    yield f"{module.__name__}.{name}.{member}", doc


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_sentence_of_a_page_is_long(page):
    assert long_sentences(page.read_text()) == []


@pytest.mark.parametrize("docstring", [pytest.param(d, id=name) for name, d in documented() if d])
def test_no_sentence_of_a_public_docstring_is_long(docstring):
    assert long_sentences(prose(docstring)) == []


def test_sentences_are_told_apart():
    page = """# A title
One, `a b. C` two. *Three!* And
[four words](x.md), 3.5 = so. 4 follow
- item one
| a cell. Another | b |
|---|---|

```python
no prose
```
"""
    found = [words(s) for b in blocks(page) for s in sentences(b)]
    assert [len(f) for f in found if f] == [2, 3, 1, 5, 2, 2, 2, 1, 1]
