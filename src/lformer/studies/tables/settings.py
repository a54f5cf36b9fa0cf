"""How every group was trained, beside what the paper says. paper: Tables model_configs, arch_* and train_*."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from lformer import LFormerConfig
from lformer.studies.published import SETTINGS
from lformer.studies.results import Results
from lformer.studies.rows import NOT_IN_PAPER, Row, data_of, group_rows, title_of
from lformer.studies.tables.beside import table_beside
from lformer.studies.tables.cells import Cell, Column, Missing, StudyTable, Text
from lformer.train import Recipe

UNSAID = "the paper does not say"
UNKNOWN = "the results do not say"
MOST_EXCEPTIONS = 3  # models that are named with a value of their own; of more only the values are listed


def settings_table(results: Results) -> StudyTable | None:
    """Ours, the paper's, and whether they are the same, a row for each setting."""
    rows = {group: [row for row in group_rows(results, group) if row.runs] for group in results.groups}
    groups = [group for group in rows if rows[group]]
    columns = [Column("setting")]
    for group in groups:
        title = title_of(results, group)
        columns += [Column(title), Column(f"paper: {title}", is_paper=True), Column(f"same: {title}", is_paper=True)]
    cells: list[list[Cell]] = []
    for name, read in READERS.items():
        line: list[Cell] = [Text(name)]
        for group in groups:
            line += _cells(group, name, {row.model: read(results, row) for row in rows[group]})
        if any(isinstance(cell, Text) for cell in line[1::3]):
            cells.append(line)
    note = (
        f"{data_of(results, *groups)} Exceptions stand in brackets. Fields in which the models of a group differ:"
        f" {', '.join(_varying([rows[group] for group in groups])) or 'none'}."
    )
    if any(group in SETTINGS for group in groups):
        note += (
            " In the paper embedding, classifier, recipe and data are fixed, and the type of the encoder, p and the"
            " positions vary."
        )
    return table_beside(key="settings", title="Settings", note=note, columns=columns, rows=cells if groups else [])


def _cells(group: str, name: str, by_model: dict[str, str]) -> list[Cell]:
    usual, shown = _usual(by_model)
    ours: Cell = Text(shown) if shown else Missing(UNKNOWN)
    if group not in SETTINGS:
        return [ours, Missing(NOT_IN_PAPER), Missing(NOT_IN_PAPER)]
    if (printed := SETTINGS[group].get(name)) is None:
        return [ours, Missing(UNSAID), Missing(UNSAID)]
    return [ours, Text(printed), Text("yes" if usual == printed else "no") if shown else ours]


def _usual(by_model: dict[str, str]) -> tuple[str, str]:
    """The value of most models, and the same with the exceptions."""
    usual = Counter(by_model.values()).most_common(1)[0][0]
    others = {model: value for model, value in by_model.items() if value != usual}
    if len(others) > MOST_EXCEPTIONS:
        return usual, ", ".join(sorted(set(by_model.values()), key=lambda text: (len(text), text)))
    exceptions = "; ".join(f"{model}: {value}" for model, value in others.items())
    return usual, f"{usual} ({exceptions})" if exceptions else usual


def _varying(groups: list[list[Row]]) -> list[str]:
    """Fields of the configuration that are not the same for all rows of a group."""
    found: dict[str, None] = {}
    for rows in groups:
        for name in dict.fromkeys(name for row in rows for name in row.fields):
            if len({repr(row.field(name)) for row in rows}) > 1:
                found[name] = None
    return list(found)


def _recipe(row: Row, name: str) -> list[Any]:
    """A field of the recipe, each value of the row's runs once."""
    return list(dict.fromkeys(run.recipe.get(name, getattr(Recipe, name)) for run in row.runs))


def _written(values: list[Any]) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, int | float) else str(value) for value in values)


def _of_recipe(name: str) -> Callable[[Results, Row], str]:
    return lambda results, row: _written(_recipe(row, name))


def _of_model(name: str) -> Callable[[Results, Row], str]:
    return lambda results, row: _written([row.field(name)])


def _of_data(name: str) -> Callable[[Results, Row], str]:
    """Of a group of classifiers: what a language model is trained on is counted in bytes."""

    def read(results: Results, row: Row) -> str:
        about = results.groups[row.group]
        found = about.get(name) if about.get("labels") else None
        return f"{found:,}" if isinstance(found, int) else (found or "").upper()

    return read


def _feed_forward(results: Results, row: Row) -> str:
    return _written([LFormerConfig(**row.fields).intermediate_size])


def _sequence_length(results: Results, row: Row) -> str:
    is_classifier = results.groups[row.group].get("labels")
    return _of_data("max_length")(results, row) if is_classifier else _written(_recipe(row, "sequence_length"))


def _classifier(results: Results, row: Row) -> str:
    return "mean pool + linear" if results.groups[row.group].get("labels") else ""


def _dropout(results: Results, row: Row) -> str:
    rates = [row.field(f"{name}_prob") for name in ("hidden_dropout", "attention_probs_dropout")]
    return "{:g}, attention {:g}".format(*rates)


def _schedule(results: Results, row: Row) -> str:
    kinds = []
    for run in row.runs:
        recipe = Recipe(**run.recipe)
        curve = {"onecycle": ", cosine", "linear": ", a line", "cosine": "cosine", "constant": ""}[recipe.schedule]
        warm_up = (
            f"{100 * recipe.warmup_fraction:g} % linear warm-up" if recipe.schedule in ("onecycle", "linear") else ""
        )
        end = f" to {recipe.final_learning_rate:g}" if curve else ""
        kinds.append(f"{recipe.schedule}: {warm_up}{curve}{end}")
    return ", ".join(dict.fromkeys(kinds))


def _length(results: Results, row: Row) -> str:
    steps = _recipe(row, "max_steps")
    return _written(_recipe(row, "epochs")) if steps == [None] else f"{_written(steps)} steps"


def _precision(results: Results, row: Row) -> str:
    has_gpu = any(run.peak_memory_bytes for run in row.runs)
    names = {"auto": "mixed, bf16" if has_gpu else "float32", "no": "float32"}
    return _written([names.get(value, f"mixed, {value}") for value in _recipe(row, "mixed_precision")])


def _deterministic(results: Results, row: Row) -> str:
    return _written(["yes" if value else "no" for value in _recipe(row, "deterministic")])


def _seeds(results: Results, row: Row) -> str:
    return _written([run.seed for run in row.runs])


def _hardware(results: Results, row: Row) -> str:
    devices = [results.environments[run.environment].get("device") for run in row.runs]
    return _written(list(dict.fromkeys(device for device in devices if device)))


READERS: dict[str, Callable[[Results, Row], str]] = {
    "training texts": _of_data("train"),
    "test texts": _of_data("test"),
    "tokenizer": _of_data("tokenizer"),
    "vocabulary": _of_data("vocab_size"),
    "sequence length T": _sequence_length,
    "width d": _of_model("hidden_size"),
    "attention heads H": _of_model("num_attention_heads"),
    "feed-forward width d_ff": _feed_forward,
    "encoder layers": _of_model("num_hidden_layers"),
    "classifier": _classifier,
    "dropout": _dropout,
    "activation": _of_model("hidden_act"),
    "optimizer": lambda results, row: f"AdamW, weight decay {_written(_recipe(row, 'weight_decay'))}",
    "learning rate": _of_recipe("learning_rate"),
    "schedule": _schedule,
    "gradient clipping": _of_recipe("clip_norm"),
    "epochs": _length,
    "batch": _of_recipe("batch_size"),
    "evaluation batch": _of_recipe("eval_batch_size"),
    "precision": _precision,
    "deterministic": _deterministic,
    "seeds": _seeds,
    "hardware": _hardware,
}
