"""Every Python block of the README runs and prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, flags=re.DOTALL)


def test_there_are_blocks_and_each_has_its_output() -> None:
    assert len(BLOCKS) == README.count("```python") > 0


@pytest.mark.parametrize(("code", "output"), BLOCKS)
def test_block(code: str, output: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == output
