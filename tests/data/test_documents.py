"""The page about data and the examples in docstrings run and print what they say."""

import contextlib
import doctest
import importlib
import io
import re
from pathlib import Path

import pytest

import lformer.data

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


def test_the_page() -> None:
    ((code, output),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "data.md", "exec"), {})
    assert printed.getvalue() == output


@pytest.mark.parametrize("name", ["load", "tokenizer"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"lformer.data.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(set(lformer.data.__all__) - {"SOURCES"}))
def test_public_names_are_documented(name: str) -> None:
    assert (getattr(lformer.data, name).__doc__ or "").strip()
