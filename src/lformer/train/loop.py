"""The training loop, on accelerate: one process or many, CPU or GPU, stopped at any moment. runner.py sets it up."""

import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from lformer.data import Prepared, TokenSplit
from lformer.train.batches import Rows, epoch_batches, share
from lformer.train.checkpoints import Checkpoints
from lformer.train.evaluation import Evaluation, evaluate, to_device
from lformer.train.files import new_folder
from lformer.train.optimizer import set_learning_rate
from lformer.train.progress import Display
from lformer.train.recipe import Recipe
from lformer.train.resident import ResidentSteps
from lformer.train.run_folder import RunFolder
from lformer.train.schedule import learning_rate
from lformer.train.stopping import Stop, stop_on_signal
from lformer.train.tasks import Classification, Task

STEPS_BETWEEN_ASKING = 8


class Interrupted(Exception):
    """The run was asked to stop, and can be resumed."""


class Diverged(ValueError):
    """The loss is no longer a number."""


@dataclass
class Progress:
    """Where a run is: what a checkpoint remembers of the loop itself."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Batches of the epoch that are done."""
    seconds: float = 0.0
    """Spent training, evaluations and checkpoints left out, over all resumptions."""
    tokens: int = 0
    metrics: int = 0
    """Lines of metrics.jsonl that were written so far."""
    best: float | None = None
    best_epoch: int = 0


@dataclass
class Training:
    """One run, ready to go: everything that its steps need."""

    task: Task
    prepared: Prepared
    train_split: TokenSplit
    recipe: Recipe
    folder: RunFolder
    accelerator: Accelerator
    model: nn.Module
    optimizer: torch.optim.Optimizer
    checkpoints: Checkpoints
    display: Display
    total_steps: int
    ema: AveragedModel | None = None
    resident: ResidentSteps | None = None
    """Makes the steps where they can be made without the host."""
    progress: Progress = field(default_factory=Progress)
    losses: list[Tensor] = field(default_factory=list)
    correct: list[Tensor] = field(default_factory=list)
    """Of every step since the last line of metrics: the loss, and for a classifier the share that it got right."""

    @cached_property
    def lengths(self) -> Rows:
        """Of every training example."""
        return self.task.lengths(self.train_split)

    def run(self) -> dict[str, Any]:
        """Train to the end, evaluate, save; returns the result."""
        with self.display, stop_on_signal() as stop:
            while not self._is_done():
                self._epoch(stop)
            self._take_best_weights()
            return self._finish()

    def _is_done(self) -> bool:
        stopped_early = bool(
            self.recipe.early_stopping
            and self.progress.best is not None
            and self.progress.epoch - self.progress.best_epoch >= self.recipe.early_stopping
        )
        return self.progress.step >= self.total_steps or stopped_early

    def _epoch(self, stop: Stop) -> None:
        progress, recipe = self.progress, self.recipe
        batches = epoch_batches(
            self.lengths,
            recipe.batch_size,
            seed=recipe.seed,
            epoch=progress.epoch,
            bucket=recipe.bucket,
        )
        batches = self.task.shifted(batches, self.train_split, progress.epoch)[progress.batch :]
        if self.resident is not None:
            self.resident.plan(batches)
        self.model.train()
        started = self._now()
        for rows in batches:
            self.step(rows)
            done = progress.step >= self.total_steps
            stopping = self._all_stop(stop)
            if progress.step % recipe.log_steps == 0 or done or stopping:
                progress.seconds += self._now() - started
                self.log()
                started = self._now()
            if recipe.eval_steps and progress.step % recipe.eval_steps == 0 and not (done or stopping):
                progress.seconds += self._now() - started
                self._between_steps()
                started = self._now()
            if stopping or (recipe.checkpoint_steps and progress.step % recipe.checkpoint_steps == 0 and not done):
                progress.seconds += self._now() - started
                self._save()
                if stopping:
                    name = stop.name or "a signal to another process"
                    raise Interrupted(f"stopped by {name} after step {progress.step}; the checkpoint is written")
                started = self._now()
            if done:
                break
        progress.seconds += self._now() - started
        progress.epoch, progress.batch = progress.epoch + 1, 0
        self.log()
        self._after_epoch()
        if not recipe.checkpoint_steps and progress.step < self.total_steps:
            self._save()

    def _all_stop(self, stop: Stop) -> bool:
        """Whether the run stops here. A signal reaches processes at different steps, and writing a checkpoint takes all
        of them, so that they ask each other every few steps.
        """
        if self.accelerator.num_processes == 1:
            return stop.asked
        if self.progress.step % STEPS_BETWEEN_ASKING:
            return False
        asked: Any = self.accelerator.reduce(torch.tensor(float(stop.asked), device=self.accelerator.device))
        return bool(asked > 0)

    def _now(self) -> float:
        """The time, once the device is done with what it was given: Python may be many steps ahead of it."""
        if self.accelerator.device.type == "cuda":
            torch.cuda.synchronize(self.accelerator.device)
        return time.perf_counter()

    def step(self, rows: Rows) -> None:
        """One optimizer step on one global batch."""
        if self.resident is None:
            tokens = self._step_from_host(rows)
        else:
            if self.resident.is_full:
                self._collect()
            tokens = self.resident.run(self.progress.step, rows)
        self.progress.step += 1
        self.progress.batch += 1
        self.progress.tokens += tokens
        self.display.step(self.progress.step)

    def _step_from_host(self, rows: Rows) -> int:
        """The step on a batch that is made here, of which this process takes its share, in parts."""
        progress, recipe, accelerator = self.progress, self.recipe, self.accelerator
        set_learning_rate(self.optimizer, learning_rate(recipe, progress.step, self.total_steps))
        generator = np.random.default_rng([recipe.seed, progress.epoch, progress.batch])
        whole = self.task.batch(self.train_split, rows, generator)
        weight = self.task.weight(whole)
        own = share(np.arange(len(rows)), accelerator.process_index, accelerator.num_processes)
        parts = np.array_split(own, recipe.accumulate)
        total, correct = torch.zeros(2, device=accelerator.device)
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            with nullcontext() if last else accelerator.no_sync(self.model):
                batch = to_device({name: array[part] for name, array in whole.items()}, accelerator.device)
                with accelerator.autocast():
                    logits, labels = self.task.predict(self.model, batch)
                    loss = self.task.loss(logits, labels, recipe.label_smoothing) / weight
                # Processes average their gradients, and the loss is divided by the whole batch already.
                accelerator.backward(loss * accelerator.num_processes)
            total += loss.detach()
            if isinstance(self.task, Classification):
                correct += (logits.argmax(-1) == labels).sum() / weight
        if recipe.clip_norm:
            accelerator.clip_grad_norm_(self.model.parameters(), recipe.clip_norm)
        if accelerator.scaler is None:
            self.optimizer.step()
        else:  # fp16: gradients are scaled back, and a step whose gradients overflowed does not count
            accelerator.scaler.step(self.optimizer)
            accelerator.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update_parameters(accelerator.unwrap_model(self.model))
        self.losses.append(total)
        self.correct.append(correct)
        return int(self.lengths[rows % len(self.lengths)].sum())

    def _collect(self) -> None:
        if self.resident is not None:
            losses, correct = self.resident.take()
            self.losses += losses
            self.correct += correct

    def log(self) -> None:
        """Look at the losses since the last time: all at once, so that a GPU need not wait for Python at every step."""
        self._collect()
        if not self.losses:
            return
        both: Any = self.accelerator.reduce(torch.stack(self.losses + self.correct), reduction="sum")
        found, correct = both.double().cpu().chunk(2)
        first = self.progress.step - len(found)
        self.losses.clear()
        self.correct.clear()
        bad = (~torch.isfinite(found)).nonzero()
        if len(bad):
            raise Diverged(self._divergence(first + int(bad[0])))
        progress = self.progress
        rate = learning_rate(self.recipe, progress.step - 1, self.total_steps)
        speed = progress.tokens / max(progress.seconds, 1e-9)
        figures = {"loss": float(found.mean())}
        if isinstance(self.task, Classification):
            figures["accuracy"] = float(correct.mean())
        self.display.step(progress.step, **figures, tokens_per_second=speed)
        figures |= {"learning_rate": rate, "seconds": round(progress.seconds, 3), "tokens_per_second": round(speed)}
        self._measure("train", figures)

    def _divergence(self, step: int) -> str:
        newest, _ = self.checkpoints.newest()
        rate = learning_rate(self.recipe, step, self.total_steps)
        good = f"the last good checkpoint is {newest}" if newest else "there is no checkpoint yet"
        return (
            f"the loss of step {step + 1} is not a finite number (learning rate {rate:.2g}); {good}. "
            "Try a smaller learning_rate, or mixed_precision=no"
        )

    def _between_steps(self) -> None:
        """Measure on a part of the validation split: a long run is worth a look before its end."""
        if "validation" in self.prepared.splits:
            self.log()
            scores = self.evaluate("validation", tokens=self.recipe.eval_tokens).scores
            self.display.steps(
                self.progress.step, self.total_steps, **{f"validation_{name}": score for name, score in scores.items()}
            )

    def _after_epoch(self) -> None:
        """Measure on the validation split, and remember the best weights where early stopping wants them."""
        figures: dict[str, Any] = {}
        wanted = not self.recipe.eval_steps or self.recipe.early_stopping
        if wanted and "validation" in self.prepared.splits:
            scores = self.evaluate("validation").scores
            figures = {f"validation_{name}": value for name, value in scores.items()}
            if self.recipe.early_stopping:
                self._remember_if_best(scores)
        if self.recipe.test_every_epoch and "test" in self.prepared.splits and not self._is_done():
            self.evaluate("test")  # after the last epoch it is measured anyway
        progress = self.progress
        figures["tokens_per_second"] = progress.tokens / max(progress.seconds, 1e-9)
        self.display.epoch(progress.epoch, self.recipe.epochs, **figures)

    def _remember_if_best(self, scores: dict[str, float]) -> None:
        score = scores[self.task.score] * (-1 if self.task.score == "loss" else 1)
        if self.progress.best is not None and score <= self.progress.best:
            return
        self.progress.best, self.progress.best_epoch = score, self.progress.epoch
        self._save_model(self.folder.path / "best")

    def _take_best_weights(self) -> None:
        best = self.folder.path / "best"
        if self.recipe.early_stopping and best.is_dir():
            found = self.task.model_class.from_pretrained(best)
            self.unwrapped().load_state_dict(found.state_dict())

    def evaluate(self, split: str, tokens: int = 0) -> Evaluation:
        """Scores on a split, or on about so many tokens of it, written to the metrics."""
        model = self.ema.module if self.ema is not None else self.model
        found = evaluate(model, self.task, self.prepared.split(split), self.accelerator, tokens=tokens)
        self._measure("evaluation", found.scores, split=split, **({"tokens": tokens} if tokens else {}))
        return found

    def _measure(self, kind: str, figures: dict[str, Any], **labels: Any) -> None:
        """One line of metrics.jsonl, and the same for accelerate's trackers (TensorBoard, if it is installed)."""
        if self.accelerator.is_main_process:
            self.folder.log(kind=kind, **labels, step=self.progress.step, epoch=self.progress.epoch, **figures)
        name = labels.get("split", kind)
        self.accelerator.log({f"{name}/{key}": value for key, value in figures.items()}, step=self.progress.step)

    def _save(self) -> None:
        self.log()  # a checkpoint of weights that are no numbers would be worse than none
        self.progress.metrics = len(list(self.folder.metrics()))
        self.checkpoints.save(self.progress.step, self.model, self.optimizer, asdict(self.progress), self.ema)

    def _finish(self) -> dict[str, Any]:
        result: dict[str, Any] = {"steps": self.progress.step, "epochs": self.progress.epoch}
        for split in ("validation", "test"):
            if split not in self.prepared.splits:
                continue
            started = time.perf_counter()
            found = self.evaluate(split)
            result[split] = {**found.scores, "seconds": round(time.perf_counter() - started, 3)}
            if found.predictions is not None and self.accelerator.is_main_process:
                (self.folder.path / "predictions").mkdir(exist_ok=True)
                np.save(self.folder.path / "predictions" / f"{split}.npy", found.predictions.astype(np.int32))
        model = self.unwrapped()
        stack = sum(p.numel() for name, p in model.named_parameters() if "layers." in name)
        result |= {
            "parameters": model.num_parameters(),
            "layer_parameters": stack,
            "train_seconds": round(self.progress.seconds, 3),
            "tokens_per_second": round(self.progress.tokens / max(self.progress.seconds, 1e-9)),
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
        }
        self._save_model(self.folder.model)
        if self.accelerator.is_main_process:
            self.folder.finish(result)
        self.accelerator.wait_for_everyone()
        return result

    def _save_model(self, path: Path) -> None:
        weights = self.accelerator.get_state_dict(self.model)
        if self.ema is not None:
            weights = self.ema.module.state_dict()
        if self.accelerator.is_main_process:
            with new_folder(path) as draft:
                self.unwrapped().save_pretrained(draft, state_dict=weights)
                self.task.tokenizer.save_pretrained(draft)
        self.accelerator.wait_for_everyone()

    def unwrapped(self) -> Any:
        """The model itself, without what accelerate or the compiler put around it."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
