"""What a user says about data and training, and the token cache that follows from it."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from lformer.data import Prepared, TextData, load_data
from lformer.data import prepare as prepare_data
from lformer.models import LFormerConfig
from lformer.settings import UserError, apply_settings, did_you_mean
from lformer.train import PRESETS, TASKS, DataSettings, Preset
from lformer.train.presets import DATA_TYPES
from lformer.train.recipe import RECIPE_TYPES

CONFIG_TYPES: dict[str, Any] = {**LFormerConfig.__annotations__, "num_labels": int}


@dataclass(frozen=True)
class DataRequest:
    """What a user said about data and training."""

    source: str | None
    data_dir: Path | None
    preset: str | None
    task: str | None
    text_columns: list[str] | None
    label_column: str
    settings: list[str]

    def resolved(self) -> Preset:
        """The preset, with every --set put where it belongs."""
        name = self.preset or "default"
        if name not in PRESETS:
            near = did_you_mean(name, PRESETS) or f"; there are {', '.join(PRESETS)}"
            raise UserError(f"there is no preset {name!r}{near}")
        preset = PRESETS[name]()
        model_types = {key: kind for key, kind in CONFIG_TYPES.items() if key not in DATA_TYPES}
        changed = self.changed()

        def chosen(types: dict[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in changed.items() if key in types}

        resolved = replace(
            preset,
            source=self.source or (None if self.data_dir and self.preset is None else preset.source),
            task=self.task or preset.task,
            model={**preset.model, **chosen(model_types)},
            recipe=replace(preset.recipe, **chosen(RECIPE_TYPES)),
            data=replace(preset.data, **chosen(DATA_TYPES)),
        )
        _check_model(resolved)  # before anything is read or written
        return resolved

    def changed(self) -> dict[str, Any]:
        """What --set says."""
        return apply_settings({}, self.settings, {**CONFIG_TYPES, **RECIPE_TYPES, **DATA_TYPES})

    def load(self, preset: Preset) -> TextData:
        """Read the text."""
        if preset.source is None and self.data_dir is None:
            raise UserError("no data: give --data-dir, --source or a preset that names its data")
        kind = {"causal-lm": "language-modeling", "translation": "translation"}.get(preset.task or "", "classification")
        return load_data(
            preset.source,
            self.data_dir,
            task=kind,
            text_columns=self.text_columns,
            label_column=self.label_column,
            validation_fraction=preset.data.validation_fraction,
            seed=preset.recipe.seed,
        )


def _check_model(preset: Preset) -> None:
    """Refuse a task that does not exist, and a model whose fields do not fit together."""
    if preset.task is not None and preset.task not in TASKS:
        raise UserError(f"there is no task {preset.task!r}; there are {', '.join(TASKS)}")
    try:
        LFormerConfig(**preset.model)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(str(error)) from None


def write_cache(out: Path, data: TextData, settings: DataSettings) -> Prepared:
    options = {name: value for name, value in asdict(settings).items() if name != "validation_fraction"}
    console = Console(stderr=True)
    for note in data.notes:
        console.print(note, highlight=False)
    return prepare_data(data, out, **options)


def refuse_other_tokens(cache: Prepared, changed: dict[str, Any]) -> None:
    """A --set that says how text becomes tokens has no effect on those that are there."""
    asked = {name: value for name, value in changed.items() if name in DATA_TYPES and name != "validation_fraction"}
    if reasons := cache.stale_reasons(**asked):
        raise UserError(
            f"--set cannot change the tokens in {cache.path}: {'; '.join(reasons)}; prepare it again, or leave that out"
        )


def refuse_stale(cache: Prepared, data: TextData, settings: DataSettings) -> None:
    options = {name: value for name, value in asdict(settings).items() if name != "validation_fraction"}
    reasons = cache.stale_reasons(data, **options)
    if reasons:
        raise UserError(f"the token cache {cache.path} is stale: {'; '.join(reasons)}; prepare it again")
