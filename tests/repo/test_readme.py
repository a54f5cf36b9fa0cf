"""Every Python block of the README runs and prints what the README says."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
import typer

from lformer.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = sorted(
    {
        line.split("  #")[0].strip()
        for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for line in page.read_text().splitlines()
        if line.startswith("lformer ")
    }
)
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, flags=re.DOTALL)


def test_there_are_blocks_and_each_has_its_output() -> None:
    assert len(BLOCKS) == README.count("```python") > 0


@pytest.mark.parametrize(("code", "output"), BLOCKS)
def test_block(code: str, output: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == output


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_in_the_documents_is_one_that_the_command_line_takes(line: str) -> None:
    parse(shlex.split(line)[1:])


def test_a_command_that_does_not_exist_would_be_seen() -> None:
    for line in ("train --outt runs/x", "teach --out runs/x", "train --preset paper-imdb"):
        with pytest.raises(Exception, match=r"(?i)no such|missing|required"):
            parse(shlex.split(line))


def parse(arguments: list[str]) -> None:
    """Find the verb and parse its options, without running it."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *arguments = arguments
        if name not in command.commands:
            raise ValueError(f"no such command: {name}")
        command = command.commands[name]
    command.make_context(name, list(arguments))
