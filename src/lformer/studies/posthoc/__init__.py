"""Compression of a trained dense classifier without further training: what a tensor model is compared with.

>>> from pathlib import Path
>>> from lformer.data import Prepared
>>> from lformer.studies.posthoc import posthoc_sweep
>>> points = posthoc_sweep(Path("runs/std"), Prepared.open(Path("cache/imdb")))  # doctest: +SKIP
>>> [(p["method"], p["layer_parameters"], p["test_accuracy"]) for p in points if p["budgets"]]  # doctest: +SKIP
"""

from lformer.studies.posthoc.compression import Stack, part_names, reduce_rank_, truncate_energy_, truncate_stack_
from lformer.studies.posthoc.sweep import posthoc_sweep

__all__ = ["Stack", "part_names", "posthoc_sweep", "reduce_rank_", "truncate_energy_", "truncate_stack_"]
