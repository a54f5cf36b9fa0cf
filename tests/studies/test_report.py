"""The report holds what the runs hold, in one file that needs nothing else."""

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from lformer.data import Prepared, load_data, prepare
from lformer.settings import UserError
from lformer.studies import collect, write_report
from lformer.train import Recipe, train

NASTY = '<script>alert(1)</script> $x_1$ & "q"'
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4}


class Outline(HTMLParser):
    """Tags, and the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("colours")
    names = ["$a$ <b>", "grün", "绿"]  # what labels may be called, and letters that no font of ours has
    for split, copies in (("train", 8), ("validation", 4), ("test", 4)):
        rows = [{"text": f"{name} {i}", "label": name} for i in range(copies) for name in names]
        text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    return prepare(load_data(None, folder), folder / "cache", vocab_size=300, max_length=16)


@pytest.fixture(scope="module")
def runs(cache: Prepared, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    recipe = Recipe(epochs=2, batch_size=8, log_steps=1)
    for name, tube_length in (("dense $", 1), ("t4", 4)):
        train(cache, folder / name, model={**TINY, "tube_length": tube_length}, recipe=recipe, quiet=True)
    return [folder / "dense $", folder / "t4"]


def test_facts_are_those_of_the_folder(runs: list[Path], cache: Prepared) -> None:
    dense, tensor = collect(runs)
    assert (dense.name, tensor.name) == ("dense $", "t4")
    assert [step for step, _ in dense.losses] == [1, 2, 3, 4, 5, 6]
    assert [epoch for epoch, _ in dense.accuracies] == [1, 2]
    assert dense.confusion is not None
    assert dense.confusion.sum(1).tolist() == [4, 4, 4]
    result = json.loads((runs[0] / "result.json").read_text())
    assert np.trace(dense.confusion) / 12 == pytest.approx(result["test"]["accuracy"])
    assert tensor.score("accuracy") == tensor.result["test"]["accuracy"]
    assert tensor.score("bleu") is None


def test_a_report_is_one_page_with_everything(runs: list[Path], tmp_path: Path) -> None:
    out = write_report(runs, tmp_path / "new" / "report.html", NASTY)
    assert [path.name for path in out.parent.iterdir()] == ["report.html"], "no draft stays behind"
    page = out.read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(page)
    assert outline.count("svg") == 4  # loss, accuracy, two confusion matrices
    assert outline.count("script") == 1
    assert "aria-sort" in page
    assert "prefers-color-scheme" in page or "color-scheme: light dark" in page
    for name in ("layer parameters", "test accuracy", "macro-F1", "training seconds", "tokens/s", "torch", "device"):
        assert name in page
    for fact in collect(runs):
        assert f"{fact.result['parameters']:,}" in page
        assert f"{fact.score('accuracy'):.4f}" in page


def test_names_are_escaped(runs: list[Path], tmp_path: Path) -> None:
    page = write_report(runs, tmp_path / "report.html", NASTY).read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; $x_1$ &amp;" in page
    assert "$a$ &lt;b&gt;" in page
    assert "绿" in page


def test_the_page_reaches_for_nothing_outside(runs: list[Path], tmp_path: Path) -> None:
    page = write_report(runs, tmp_path / "report.html", "title").read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(page)
    for tag, attributes in outline.tags:
        assert tag not in ("link", "iframe", "object", "embed")
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'" in page


def test_figures_are_sound_svg_with_names_of_their_own(runs: list[Path], tmp_path: Path) -> None:
    page = write_report(runs, tmp_path / "report.html", "title").read_text(encoding="utf-8")
    figures = re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL)
    seen: set[str] = set()
    for figure in figures:
        ElementTree.fromstring(figure)
        names = set(re.findall(r' id="([^"]+)"', figure))
        assert set(re.findall(r'(?:url\(|href=")#([^")]+)', figure)) <= names
        assert not names & seen
        seen |= names
        assert "currentColor" in figure


def test_the_same_runs_give_the_same_page(runs: list[Path], tmp_path: Path) -> None:
    pages = [write_report(runs, tmp_path / name, "title").read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_runs_of_the_same_name_get_their_parents(runs: list[Path], tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t4").mkdir()
        for file in ("run.json", "environment.json", "result.json", "metrics.jsonl"):
            (tmp_path / name / "t4" / file).write_bytes((runs[1] / file).read_bytes())
    facts = collect([tmp_path / "first" / "t4", tmp_path / "second" / "t4"])
    assert [fact.name for fact in facts] == ["first/t4", "second/t4"]
    assert facts[0].confusion is None, "there are no predictions"


def test_what_cannot_be_reported(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one"):
        write_report([], tmp_path / "report.html", "title")
    with pytest.raises(UserError, match="has no run"):
        write_report([tmp_path], tmp_path / "report.html", "title")
    (tmp_path / "run.json").write_bytes((runs[0] / "run.json").read_bytes())
    with pytest.raises(UserError, match="not finished"):
        write_report([tmp_path], tmp_path / "report.html", "title")
    assert not (tmp_path / "report.html").exists()
