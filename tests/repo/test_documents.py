"""The documents say what is true: examples in docstrings run, public names are documented, links lead somewhere."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
import torch

import lformer.algebra

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("name", lformer.algebra.__all__)
def test_public_functions_are_documented(name: str) -> None:
    assert (getattr(lformer.algebra, name).__doc__ or "").strip(), f"{name} has no docstring"


@pytest.mark.parametrize("name", ["transforms", "unfolding", "products", "svd"])
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(f"lformer.algebra.{name}")
    result = doctest.testmod(module, extraglobs={"torch": torch}, raise_on_error=False)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_every_test_that_the_maths_page_names_exists() -> None:
    text = (ROOT / "docs" / "math.md").read_text()
    sources = {path.name: path.read_text() for path in (ROOT / "tests" / "algebra").glob("test_*.py")}
    named, file = 0, ""
    for match in re.finditer(r"`(?:(test_\w+\.py)::)?(test_\w+)`", text):
        file = match.group(1) or file  # a name without a file stands in the one before
        assert f"def {match.group(2)}(" in sources[file], match.group(0)
        named += 1
    assert named > 25
