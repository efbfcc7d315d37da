"""`python -m binshift` does what the program `binshift` does."""

from __future__ import annotations

from binshift.cli import start

if __name__ == "__main__":
    start()
