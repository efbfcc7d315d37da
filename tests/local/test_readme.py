"""The README's first program runs unchanged."""

import re
from pathlib import Path

from local.programs import ran

README = Path(__file__).parents[2] / "README.md"


def test_the_program_of_the_readme_rescales_a_query(tmp_path, jvm_jar):
    (program,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    done = ran(program, tmp_path, "--master", "local[2]", timeout=120)
    assert "MigrationReport: batched(" in done.stdout
    assert "finished: " in done.stdout
    # The end of the program logs no exceptions, either.
    assert "\tat org.apache" not in done.stderr
