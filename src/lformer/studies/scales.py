"""How large a study is: as the paper has it, or in miniature, to see on any machine that every row runs."""

from dataclasses import dataclass, replace
from typing import Any

from lformer.studies.study import DataNeed
from lformer.train import DataSettings, Recipe

SEEDS = (42, 123, 7)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What stands between a row as the paper describes it and the row that runs."""

    name: str
    seeds: tuple[int, ...] = SEEDS
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Learning rates among which a tuned row chooses."""
    rows: int | None = None
    is_small: bool = False

    def title(self, title: str) -> str:
        return f"{title} (in miniature)" if self.is_small else title

    def data(self, source: str, *, validation_fraction: float = 0.0) -> DataNeed:
        """The paper's preparation of a source: 30,000 types, 128 tokens."""
        settings = DataSettings(validation_fraction=validation_fraction)
        if self.is_small:
            settings = replace(settings, max_length=32, vocab_size=600)
        return DataNeed(source=source, settings=settings, rows=self.rows, stand_in="cldr" if self.is_small else None)

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The model's; in miniature about a quarter as wide, a multiple of 16 up to 64."""
        if not self.is_small:
            return fields
        width = fields["hidden_size"]
        small = dict(fields, hidden_size=min(max(width // 64, 1) * 16, 64))
        for name, multiple in (("intermediate_size", 16), ("linear_rank", 1)):
            if small.get(name):
                share = small[name] * small["hidden_size"] // width
                small[name] = max(1, share // multiple) * multiple  # interleaving cuts slices into equal chunks
        return small

    def recipe(self, recipe: Recipe) -> Recipe:
        if not self.is_small:
            return recipe
        return replace(recipe, batch_size=16, epochs=2, max_steps=6, log_steps=2, sequence_length=32)


SCALES = {
    "full": Scale(name="full"),
    "smoke": Scale(name="smoke", seeds=SEEDS[:2], rates=(1e-3, 3e-3), rows=64, is_small=True),
}
