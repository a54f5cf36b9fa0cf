"""A data set small enough to train on in a second, made once."""

import csv
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lformer.data import Prepared, load_data, prepare
from lformer.train import Recipe

MODEL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32}
RECIPE = Recipe(epochs=2, batch_size=16, learning_rate=3e-3, log_steps=4)


def write_reviews(folder: Path) -> None:
    """Reviews of a few words each, which a model can tell apart from single words."""
    generator = random.Random(0)
    words = {"pos": ["good", "fine", "nice"], "neg": ["bad", "awful", "poor"]}
    folder.mkdir(parents=True)
    for split, count in (("train", 120), ("test", 40)):
        with (folder / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for _ in range(count):
                label = generator.choice(["pos", "neg"])
                text = " film ".join(generator.choices(words[label], k=generator.randint(1, 6)))
                writer.writerow([text, label])


@pytest.fixture(scope="session")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("reviews")
    write_reviews(folder / "text")
    data = load_data(None, folder / "text", validation_fraction=0.2)
    return prepare(data, folder / "tokens", max_length=16, vocab_size=300)


def write_pairs(folder: Path) -> None:
    """Pairs of which the second has the words of the first in reverse, in capitals."""
    generator = random.Random(0)
    folder.mkdir(parents=True)
    for split, count in (("train", 60), ("validation", 12), ("test", 12)):
        lines = [generator.choices(["one", "two", "three", "four"], k=generator.randint(1, 6)) for _ in range(count)]
        (folder / f"{split}.en").write_text("".join(" ".join(words) + "\n" for words in lines))
        (folder / f"{split}.xx").write_text("".join(" ".join(words[::-1]).upper() + "\n" for words in lines))


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("pairs")
    write_pairs(folder / "text")
    data = load_data(None, folder / "text", task="translation", text_columns=["en", "xx"])
    return prepare(data, folder / "tokens", max_length=24, vocab_size=280, lowercase=False)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
