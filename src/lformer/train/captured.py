"""A training step as one CUDA graph for each kind of batch: recorded once, then replayed with a single launch."""

from collections.abc import Callable

import torch
from torch import nn

from lformer.settings import UserError
from lformer.train.recipe import Recipe
from lformer.train.resident import ResidentSteps
from lformer.train.resident_data import Kind

WARM_UP_STEPS = 3
MOST_GRAPHS = 32


class Capture:
    """Calls `steps.compute` a few times for each kind of batch, and from then on replays it.

    The calls before the recording are steps of the training like any other, so that libraries and kernels are ready
    when it is made and no weight has to be put back. Kinds that are rare are never recorded, nor is the short batch at
    the end of an epoch: a recording takes as long as many steps. Beyond MOST_GRAPHS none is, which `say` tells once.
    """

    def __init__(self, steps: ResidentSteps, say: Callable[[str], None]) -> None:
        self.steps = steps
        self.say = say
        self.is_full = False
        self.graphs: dict[Kind, torch.cuda.CUDAGraph] = {}
        self.seen: dict[Kind, int] = {}
        self.stream = torch.cuda.Stream(steps.accelerator.device)
        # One pool of memory for all: nothing in it outlives a step, so that the graphs may use the same places.
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, kind: Kind) -> None:
        if kind not in self.graphs:
            if self.seen.get(kind, 0) < WARM_UP_STEPS or self.steps.is_rest(kind) or self._no_more(kind):
                self._compute(kind)
                return
            self.graphs[kind] = self._record(kind)
        self.graphs[kind].replay()

    def _no_more(self, kind: Kind) -> bool:
        if len(self.graphs) >= MOST_GRAPHS and not self.is_full:
            self.is_full = True
            self.say(
                f"{MOST_GRAPHS} kinds of batches have CUDA graphs; those of {kind.size} x {kind.width} tokens "
                "and of other new kinds take the ordinary step, which is slower"
            )
        return self.is_full

    def _compute(self, kind: Kind) -> None:
        self.seen[kind] = self.seen.get(kind, 0) + 1
        outside = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(outside)
        with torch.cuda.stream(self.stream):
            self.steps.compute(kind)
        outside.wait_stream(self.stream)

    def _record(self, kind: Kind) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                self.steps.compute(kind)
        except RuntimeError as error:
            # A failed recording leaves allocator and random numbers as if it went on: no step can follow it here.
            reason = str(error.__context__ or error).splitlines()[0]
            raise UserError(
                f"the training step could not be captured in a CUDA graph, for batches of {kind.size} x {kind.width} "
                f"tokens ({reason}); run it with capture=never"
            ) from error
        return graph


def why_not_captured(
    recipe: Recipe,
    model: nn.Module,
    device: torch.device,
    *,
    processes: int,
    precision: str,
) -> str:
    """Why the steps of a run cannot be captured, as far as the data do not decide it; empty if they can."""
    if device.type != "cuda":
        return "there is no CUDA device"
    if processes > 1:
        return f"{processes} processes share each step"
    if recipe.accumulate > 1:
        return f"accumulate={recipe.accumulate} makes a step of several parts"
    if recipe.compile and recipe.capture != "always":
        return "compile=true is captured only with capture=always"
    if precision == "fp16":
        return "mixed_precision=fp16 decides on the host whether a step counts"
    if getattr(model, "is_gradient_checkpointing", False):
        return "gradient checkpointing keeps random states on the host"
    return ""
