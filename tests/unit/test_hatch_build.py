"""`pip install git+...` says what is missing to build the jar, before it downloads anything."""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hook(monkeypatch, tmp_path):
    """The hook for a source tree without jars; its base class is part of the build environment only."""
    interface: Any = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.JarBuildHook()
    made.root = str(tmp_path)
    (tmp_path / "gradle.properties").write_text("version=0.1.0\n")
    (tmp_path / "jvm_shim/src/spark-4.3").mkdir(parents=True)
    return made


def program(folder, name, said=""):
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    file.chmod(0o755)


def refused(hook):
    """The message, which no stack of an exception precedes."""
    with pytest.raises(SystemExit) as error:
        hook.dependencies()
    return error.value.code


def test_all_that_is_missing_is_listed_with_what_to_install(hook, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    message = refused(hook)
    assert "\n- there is no Java on PATH: install a JDK of version 17 or newer" in message
    assert "\n- there is no Gradle on PATH: install it" in message
    assert "apt-get install openjdk-17-jdk-headless gradle" in message
    program(tmp_path / "bin", "gradle")
    assert "Gradle on PATH" not in refused(hook)
    program(tmp_path / "bin", "java", 'openjdk version "17.0.1" 2021-10-19')
    assert hook.dependencies() == ["pyspark==4.3.*"]


def test_a_java_that_is_too_old_or_not_where_java_home_says_is_named(hook, monkeypatch, tmp_path):
    program(tmp_path / "bin", "gradle")
    program(tmp_path / "bin", "java", 'openjdk version "1.8.0_292"')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "- Java is 8: install a JDK of version 17 or newer" in refused(hook)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "- JAVA_HOME, /nowhere, has no Java that runs" in refused(hook)


def test_another_spark_has_to_be_one_that_there_are_sources_for(hook, monkeypatch, tmp_path):
    for name in ("java", "gradle"):
        program(tmp_path / "bin", name, 'openjdk version "21.0.1"')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("BINSHIFT_SPARK", "3.5")
    assert refused(hook) == "BINSHIFT_SPARK is '3.5'; set it to one of 4.3, or unset it"
