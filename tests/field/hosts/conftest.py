"""Fixtures for tests on hosts of their own."""

from __future__ import annotations

import pytest

from field.hosts.topology import why_not


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips a test with the reason if there can't be hosts here."""
    if reason := why_not():
        pytest.skip(reason)
