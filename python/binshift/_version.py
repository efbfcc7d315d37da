"""The version of the package, which is also that of its jar. Both come from gradle.properties."""

from importlib.metadata import version as _version_of

version: str = _version_of("binshift")
