"""Named starting points. Variants derive by --set."""

from collections.abc import Callable

from lformer.train.language_presets import LANGUAGE_PRESETS
from lformer.train.preset import DATA_TYPES, DataSettings, Preset
from lformer.train.recipe import Recipe

__all__ = ["DATA_TYPES", "PRESETS", "DataSettings", "Preset"]


def default() -> Preset:
    return Preset(about="a T4 classifier of width 256 with the paper's recipe", model={"positional": "linear"})


def paper_imdb() -> Preset:
    return Preset(
        about="the paper's T4-linear on IMDB: d=128, 20 epochs",
        source="imdb",
        model={"hidden_size": 128, "positional": "linear"},
        recipe=Recipe(epochs=20),
    )


def paper_ag_news() -> Preset:
    return Preset(
        about="the paper's T4-linear on AG News: d=256, 5 epochs",
        source="ag_news",
        model={"hidden_size": 256, "positional": "linear"},
        recipe=Recipe(epochs=5),
    )


def paper_ag_news_768() -> Preset:
    return Preset(
        about="the paper's T4-linear on AG News at BERT's width: d=768, 8 heads, batch 64",
        source="ag_news",
        model={"hidden_size": 768, "num_attention_heads": 8, "positional": "linear"},
        recipe=Recipe(epochs=5, batch_size=64),
    )


def quickstart() -> Preset:
    return Preset(
        about="which language is this name? A small T4 on the embedded CLDR data, a minute on a CPU",
        source="cldr",
        model={"hidden_size": 128, "num_hidden_layers": 2, "positional": "linear", "hidden_dropout_prob": 0.2},
        recipe=Recipe(epochs=12, batch_size=128, learning_rate=2e-3, label_smoothing=0.1, bucket=True),
        data=DataSettings(max_length=48, vocab_size=1_000, lowercase=False),
    )


PRESETS: dict[str, Callable[[], Preset]] = {
    "default": default,
    "paper-imdb": paper_imdb,
    "paper-ag-news": paper_ag_news,
    "paper-ag-news-768": paper_ag_news_768,
    "quickstart": quickstart,
    **LANGUAGE_PRESETS,
}
