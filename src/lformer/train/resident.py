"""A training step that needs nothing from the host: data, order, rates, counters and losses are on the device.

Python names the examples of a step and the kernels do the rest, so that the same kernels can be recorded once and
replayed (captured.py). Run without a recording, on any device, it is the ordinary step of loop.py.
"""

from collections.abc import Callable

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from lformer.train.batches import Rows
from lformer.train.evaluation import to_device
from lformer.train.recipe import Recipe
from lformer.train.resident_data import Kind, ResidentData
from lformer.train.schedule import learning_rate
from lformer.train.tasks import Classification, Task


class ResidentSteps:
    """The steps of one run. `run` is one of them; `take` gives what they found since the last time.

    `launch` calls `compute` for a kind of batch, or replays what it once did.
    """

    def __init__(
        self,
        task: Task,
        data: ResidentData,
        recipe: Recipe,
        accelerator: Accelerator,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        ema: AveragedModel | None,
        total_steps: int,
    ) -> None:
        self.task, self.data, self.recipe, self.accelerator = task, data, recipe, accelerator
        self.model, self.optimizer, self.ema = model, optimizer, ema
        self.launch: Callable[[Kind], None] = self.compute
        device = accelerator.device
        factors = torch.tensor([group["lr_factor"] for group in optimizer.param_groups], dtype=torch.float64)
        rates = torch.tensor(
            [learning_rate(recipe, step, total_steps) for step in range(total_steps)], dtype=torch.float64
        )
        self.rates = (factors[:, None] * rates).float().to(device)
        self.order = torch.zeros(max(len(data.lengths), recipe.batch_size), dtype=torch.int64, device=device)
        self.columns = torch.arange(recipe.batch_size, device=device)
        # Each counter twice: on the device, where the step moves it on, and here, to notice when the two part.
        self.step_on_device, self.step = torch.zeros(1, dtype=torch.int64, device=device), 0
        self.place_on_device = torch.zeros(1, dtype=torch.int64, device=device)
        self.planned: list[Rows] = []
        self.figures = torch.zeros(2, recipe.log_steps, device=device)
        self.taken = 0

    def plan(self, batches: list[Rows]) -> None:
        """Send the batches that come next, all at once: so many steps then need no transfer."""
        if batches:
            rows = to_device({"rows": np.concatenate(batches)}, self.order.device)["rows"]
            self.order[: len(rows)].copy_(rows)
        self.place_on_device.zero_()
        self.planned = batches[::-1]

    def run(self, step: int, rows: Rows) -> int:
        """Optimizer step `step` on these examples; returns how many tokens they have."""
        if not self.planned or self.planned[-1] is not rows:
            self.plan([rows])
        if step != self.step:
            self.step = self.taken = step
            self.step_on_device.fill_(step)
        if self.ema is not None and step == 0:
            self.compute(self.data.kind(rows), is_first=True)
        else:
            self.launch(self.data.kind(rows))
        self.planned.pop()
        self.step += 1
        return int(self.data.lengths[rows % len(self.data.lengths)].sum())

    def is_rest(self, kind: Kind) -> bool:
        """Whether it is what full batches leave of an epoch: it comes once in each."""
        return kind.size < self.recipe.batch_size < len(self.data.lengths)

    @property
    def is_full(self) -> bool:
        """Whether the next step would write over a figure that nobody took."""
        return self.step - self.taken >= self.figures.shape[1]

    def take(self) -> tuple[list[Tensor], list[Tensor]]:
        """The loss and the share that is right of every step since the last call, still on the device."""
        slots = np.arange(self.taken, self.step) % self.figures.shape[1]
        self.taken = self.step
        losses, correct = self.figures[:, slots.tolist()]
        return list(losses), list(correct)

    def compute(self, kind: Kind, *, is_first: bool = False) -> None:
        """The step itself. Everything that it reads and leaves behind has its place in memory before and after."""
        rows = self.order[self.place_on_device + self.columns[: kind.size]]
        batch = self.data.batch(rows, kind)
        weight = self.data.weight(batch)
        with self.accelerator.autocast():
            logits, labels = self.task.predict(self.model, batch)
            loss = self.task.loss(logits, labels, self.recipe.label_smoothing) / weight
        loss.backward()
        with torch.no_grad():
            correct = torch.zeros_like(loss)
            if isinstance(self.task, Classification):
                correct = (logits.argmax(-1) == labels).sum() / weight
            if self.recipe.clip_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
            self._move_weights()
            self._move_average(is_first)
            slot = self.step_on_device % self.figures.shape[1]
            self.figures.index_copy_(1, slot, torch.stack([loss.detach(), correct])[:, None])
            self.step_on_device += 1
            self.place_on_device += kind.size

    def _move_weights(self) -> None:
        groups = self.optimizer.param_groups
        outside = [(group["lr"], group["capturable"]) for group in groups]
        capturing = self.order.is_cuda and torch.cuda.is_current_stream_capturing()
        step = self.step_on_device.clamp_max(self.rates.shape[1] - 1)
        for group, rate in zip(groups, self.rates[:, step].squeeze(1), strict=True):
            # A learning rate that is a tensor is read by the kernel: a number would stay what it was when recorded.
            group["lr"], group["capturable"] = rate, capturing
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for group, (rate, capturable) in zip(groups, outside, strict=True):
            group["lr"], group["capturable"] = rate, capturable

    def _move_average(self, is_first: bool) -> None:
        if self.ema is None:
            return
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        if is_first:
            self.ema.update_parameters(model)  # a copy, and not an average
            return
        # As AveragedModel does it after the first time, but without asking the device whether this is the first.
        averages = [parameter.detach() for parameter in self.ema.parameters()]
        torch._foreach_lerp_(averages, [p.detach() for p in model.parameters()], 1 - self.recipe.ema)
        for old, new in zip(self.ema.module.buffers(), model.buffers(), strict=True):
            old.copy_(new)
        self.ema.n_averaged += 1
