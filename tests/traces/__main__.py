"""Checks a trace: `python -m traces FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from traces.checker import RejectedError, check


def main() -> int:
    try:
        verdict = check(Path(sys.argv[1]))
    except RejectedError as rejected:
        print(rejected)
        return 1
    print(f"{verdict.accepted} events accepted")
    for checkpoint, why in verdict.unchecked.items():
        print(f"{checkpoint} is not checked: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
