"""The test jars of a Spark release: fetched by Maven, unpacked, and made to name another provider."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

from devtools.compiling import FILE_SYSTEMS, compile_to

__all__ = ["PACKAGE", "fetch", "suites", "unpack"]

PACKAGE = "org.apache.spark.sql."
#: The file system of the suites, which notices streams that are left open.
DEBUG_FILES = "org/apache/spark/DebugFilesystem.class"
#: The folders with suites of streams and of their state.
FOLDERS = ("streaming", "execution/streaming", "execution/datasources/v2/state", "execution/python/streaming")

#: Bytes of a constant of a class behind its tag; texts have a length of their own.
_SIZES = (
    dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 4) | dict.fromkeys((7, 8, 16, 19, 20), 2) | {5: 8, 6: 8, 15: 3}
)
_TEXT, _TWO_ENTRIES = 1, (5, 6)
_ABSTRACT, _INTERFACE = 0x0400, 0x0200

SCALATEST = [
    "scalatest-core", "scalatest-funsuite", "scalatest-funspec", "scalatest-flatspec", "scalatest-freespec",
    "scalatest-featurespec", "scalatest-wordspec", "scalatest-propspec", "scalatest-refspec",
    "scalatest-diagrams", "scalatest-matchers-core", "scalatest-shouldmatchers", "scalatest-mustmatchers",
]  # fmt: skip

#: Asks Maven for jars; nothing is built.
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>binshift</groupId><artifactId>spark-suites</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""


def artifacts(spark: str) -> list[tuple[str, str, str, str]]:
    """Group, artifact, version and classifier of the jars that are needed beside Spark's own."""
    tests = [f"spark-{m}_2.13" for m in ("sql", "catalyst", "core", "sql-api", "tags", "common-utils")]
    return [
        *(("org.apache.spark", m, spark, "tests") for m in tests),
        *(("org.scalatest", f"{m}_2.13", "3.2.19", "") for m in SCALATEST),
        ("org.scalatest", "scalatest-compatible", "3.2.19", ""),
        ("org.scalactic", "scalactic_2.13", "3.2.19", ""),
        ("org.scalatestplus", "scalacheck-1-18_2.13", "3.2.19.0", ""),
        ("org.scalacheck", "scalacheck_2.13", "1.18.0", ""),
        ("org.scalatestplus", "mockito-5-12_2.13", "3.2.19.0", ""),
        ("org.mockito", "mockito-core", "5.12.0", ""),
        ("net.bytebuddy", "byte-buddy", "1.14.17", ""),
        ("net.bytebuddy", "byte-buddy-agent", "1.14.17", ""),
    ]


def fetch(work: Path, spark: str) -> list[Path]:
    """The jars of `artifacts`, each without what it depends on, by Maven."""
    lib = work / f"lib-{spark}"
    if not lib.exists():
        staging = lib.with_suffix(".part")
        staging.mkdir(parents=True, exist_ok=True)
        pom = staging / "pom.xml"
        pom.write_text(POM.format(dependencies="".join(map(_dependency, artifacts(spark)))))
        goal = ["dependency:copy-dependencies", "-DexcludeTransitive=true", f"-DoutputDirectory={staging}"]
        done = subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=False)
        if done.returncode != 0:
            raise SystemExit(f"Maven serves no test jars of Spark {spark}; name another release with --spark")
        staging.rename(lib)
    return sorted(lib.glob("*.jar"))


def _dependency(artifact: tuple[str, str, str, str]) -> str:
    group, name, version, classifier = artifact
    kind = f"<classifier>{classifier}</classifier>" if classifier else ""
    ids = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    return f"<dependency>{ids}{kind}</dependency>"


def unpack(libs: list[Path], target: Path, names: tuple[str, str] | None) -> Path:
    """The test classes of Spark SQL in a directory, since some tests look for resources as files.

    Of two `names` of classes, each mention of the first becomes one of the second. The suites' file system is
    that of devtools/jvm/QuickLocalFiles.scala, without which epochs spend most of their time on processes.
    """
    if not target.exists():
        staging = target.with_suffix(".part")
        shutil.rmtree(staging, ignore_errors=True)
        with zipfile.ZipFile(_of(libs, "spark-sql_")) as jar:
            jar.extractall(staging)
        if names is not None:
            for file in (staging / "org/apache/spark/sql").rglob("*.class"):
                _rename(file, *names)
        with zipfile.ZipFile(_of(libs, "spark-core_")) as jar:
            jar.extract(DEBUG_FILES, staging)
        _rename(
            staging / DEBUG_FILES, "org.apache.hadoop.fs.LocalFileSystem", "binshift.devtools.QuickLocalFiles"
        )
        compile_to(staging, [f for f in FILE_SYSTEMS if f.name.startswith("Quick")])
        staging.rename(target)
    return target


def _of(libs: list[Path], start: str) -> Path:
    return next(jar for jar in libs if jar.name.startswith(start))


def _rename(file: Path, old: str, new: str) -> None:
    """Has a compiled class name another class."""
    code = file.read_bytes()
    was, now = (name.replace(".", "/").encode() for name in (old, new))
    if was in code:
        file.write_bytes(_ClassFile(code).renamed(was, now))


def suites(classes: Path) -> list[str]:
    """The suites of streams and state that can be run, by their names below `PACKAGE`."""
    root = classes / PACKAGE.replace(".", "/")
    files = {f for folder in FOLDERS for f in (root / folder).rglob("*Suite.class") if "$" not in f.name}
    concrete = [f for f in files if not _ClassFile(f.read_bytes()).flags & (_ABSTRACT | _INTERFACE)]
    return sorted(str(f.relative_to(root).with_suffix("")).replace("/", ".") for f in concrete)


class _ClassFile:
    """The constant pool of a compiled class, and what follows it."""

    def __init__(self, code: bytes) -> None:
        (count,) = struct.unpack_from(">H", code, 8)
        self._head = code[:10]
        self._constants: list[bytes] = []
        at, index = 10, 1
        while index < count:
            tag = code[at]
            size = 2 + struct.unpack_from(">H", code, at + 1)[0] if tag == _TEXT else _SIZES[tag]
            self._constants.append(code[at : at + 1 + size])
            at += 1 + size
            index += 2 if tag in _TWO_ENTRIES else 1
        self._rest = code[at:]

    @property
    def flags(self) -> int:
        """How the class may be used."""
        return int(struct.unpack_from(">H", self._rest)[0])

    def renamed(self, old: bytes, new: bytes) -> bytes:
        """The class, with `new` where a text of it is `old`, or names it as a parameter's or result's type."""
        was, now = (b"L" + text + b";" for text in (old, new))

        def rename(constant: bytes) -> bytes:
            if constant[0] != _TEXT:
                return constant
            text = constant[3:]
            text = new if text == old else text.replace(was, now)
            return struct.pack(">BH", _TEXT, len(text)) + text

        return b"".join([self._head, *map(rename, self._constants), self._rest])
