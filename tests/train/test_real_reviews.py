"""One epoch on real film reviews, where the data are at hand."""

import json
from pathlib import Path

import pytest

from lformer.data import load_data, prepare
from lformer.train import Recipe, train

IMDB = Path(__file__).parents[3] / "shared" / "data" / "imdb"


@pytest.mark.skipif(not IMDB.is_dir(), reason=f"the IMDB reviews are not in {IMDB}")
def test_one_epoch_on_two_thousand_reviews_beats_chance(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="reading parquet needs pyarrow")
    (tmp_path / "text").mkdir()
    for split, count in (("train", 2000), ("test", 1000)):
        table = parquet.read_table(IMDB / f"{split}.parquet")
        step = len(table) // count  # the file has the negative reviews first
        with (tmp_path / "text" / f"{split}.jsonl").open("w") as file:
            for row in table.take(list(range(0, len(table), step))[:count]).to_pylist():
                file.write(json.dumps({"text": row["text"], "label": row["label"]}) + "\n")
    data = load_data("imdb", tmp_path / "text")
    assert {name: len(examples.texts) for name, examples in data.splits.items()} == {"train": 2000, "test": 1000}
    prepared = prepare(data, tmp_path / "tokens", max_length=128, vocab_size=4000)
    model = {"hidden_size": 64, "num_hidden_layers": 2, "positional": "linear"}
    recipe = Recipe(epochs=1, batch_size=16, learning_rate=2e-3)
    result = train(prepared, tmp_path / "run", model=model, recipe=recipe, quiet=True)
    # 1,000 fair coins land above 0.55 once in a thousand times.
    assert result["test"]["accuracy"] > 0.55
