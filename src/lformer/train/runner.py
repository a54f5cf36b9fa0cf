"""From a request to a finished run: set a training up, or put it back to where it was, and let it go."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import AutocastKwargs, is_tensorboard_available, set_seed
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lformer.data import Prepared
from lformer.models import LFormerConfig
from lformer.nn.positions import UNLIMITED
from lformer.settings import UserError
from lformer.train.captured import Capture, why_not_captured
from lformer.train.checkpoints import Checkpoints
from lformer.train.loop import Progress, Training
from lformer.train.optimizer import make_optimizer
from lformer.train.progress import Display
from lformer.train.recipe import Recipe
from lformer.train.resident import ResidentSteps
from lformer.train.resident_data import fits
from lformer.train.run_folder import RunFolder
from lformer.train.tasks import Task, make_task

WIDTH_MULTIPLE = 32  # of the batches of captured steps: every width has a graph, which takes a second to record


def train(
    prepared: Prepared,
    out: Path,
    *,
    model: dict[str, Any] | None = None,
    recipe: Recipe | None = None,
    task: str | None = None,
    resume: bool = False,
    quiet: bool = False,
    _resident: bool = False,
) -> dict[str, Any]:
    """Train a model on a prepared data set into a run folder; returns what result.json holds.

    `model` has the fields of LFormerConfig that are not the defaults. With `resume` an interrupted run goes on from its
    newest sound checkpoint, with the model and recipe that it was started with, and a finished one is left as it is.
    """
    folder = RunFolder(out)
    if resume and folder.is_started:
        request = folder.request()
        if folder.is_finished:
            return folder.result()
        _require_same_data(request, prepared, out)
        recipe, model, task = Recipe(**request["recipe"]), request["model"], request["task"]
    elif resume:
        raise UserError(f"{out} has no run to resume; leave out --resume to start one")
    training = set_up(prepared, out, model=model, recipe=recipe, task=task, quiet=quiet, _resident=_resident)
    if resume:
        _restore(training)
    elif training.accelerator.is_main_process:
        folder.start(_request(training, model or {}, task))
    training.accelerator.wait_for_everyone()
    training.accelerator.init_trackers("tensorboard")
    try:
        return training.run()
    finally:
        for tracker in training.accelerator.trackers:
            tracker.finish()


def set_up(
    prepared: Prepared,
    out: Path,
    *,
    model: dict[str, Any] | None = None,
    recipe: Recipe | None = None,
    task: str | None = None,
    quiet: bool = False,
    _resident: bool = False,
) -> Training:
    """A training that is ready for its first step; nothing is written yet.

    `_resident` makes steps of resident.py where they cannot be captured; for tests.
    """
    recipe = recipe or Recipe()
    _seed(recipe)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # an earlier run of this process may have needed more
    accelerator = make_accelerator(recipe, out)
    work = make_task(task, prepared, recipe)
    train_split = prepared.split("train")
    _require_examples(work, prepared)
    per_epoch = -(-len(work.lengths(train_split)) // recipe.batch_size)
    total = min(recipe.max_steps or recipe.epochs * per_epoch, recipe.epochs * per_epoch)
    config = _config(work, prepared, model or {})
    _require_positions(work, config)
    built: Any = work.model_class(config)
    ema = None
    if recipe.ema:
        ema = AveragedModel(built, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema)).to(accelerator.device)
    optimizer = make_optimizer(built, recipe)
    wrapped, optimizer = accelerator.prepare(torch.compile(built) if recipe.compile else built, optimizer)
    folder = RunFolder(out)
    training = Training(
        task=work,
        prepared=prepared,
        train_split=train_split,
        recipe=recipe,
        folder=folder,
        accelerator=accelerator,
        model=wrapped,
        optimizer=getattr(optimizer, "optimizer", optimizer),
        checkpoints=Checkpoints(folder.checkpoints, accelerator, recipe.keep_checkpoints),
        display=Display(total, quiet=quiet or not accelerator.is_main_process),
        total_steps=total,
        ema=ema,
    )
    training.resident = _resident_steps(training, force=_resident)
    return training


def _resident_steps(training: Training, *, force: bool) -> ResidentSteps | None:
    """Steps that are captured, where the recipe wants it and it can be done; says why where it cannot."""
    recipe, accelerator, split = training.recipe, training.accelerator, training.train_split
    if recipe.capture == "never" and not force:
        return None
    device = accelerator.device
    why_not = why_not_captured(
        recipe,
        training.unwrapped(),
        device,
        processes=accelerator.num_processes,
        precision=accelerator.mixed_precision,
    )
    data = None
    if force:
        data = training.task.resident(split, device)
    elif not why_not and fits(split, device):
        data = training.task.resident(split, device, WIDTH_MULTIPLE)
    if data is None:
        why_not = why_not or "the host makes its batches: for this task, or because the tokens would fill the device"
        if recipe.capture == "always":
            raise UserError(f"capture='always', but the step cannot be captured: {why_not}; use capture=auto")
        if device.type == "cuda":
            training.display.say(f"the step is not captured in a CUDA graph: {why_not}")
        return None
    steps = ResidentSteps(
        training.task,
        data,
        recipe,
        accelerator,
        training.model,
        training.optimizer,
        training.ema,
        training.total_steps,
    )
    if not why_not:
        steps.launch = Capture(steps, training.display.say)
    return steps


def _require_examples(task: Task, prepared: Prepared) -> None:
    """Refuse a split that is too short to be measured now, not when the training is over."""
    for name in prepared.splits:
        try:
            task.lengths(prepared.split(name))
        except UserError as error:
            raise UserError(f"the {name} split of {prepared.path}: {error}") from None


def _require_positions(task: Task, config: LFormerConfig) -> None:
    limit, needed = config.max_position_embeddings, task.decided().get("max_position_embeddings", 0)
    if needed > limit and config.positional not in UNLIMITED:
        raise UserError(
            f"max_position_embeddings={limit} is less than the {needed} tokens of an example; leave it out, or use "
            "positional=rope, which has no limit"
        )


def _config(task: Task, prepared: Prepared, model: dict[str, Any]) -> LFormerConfig:
    names = prepared.label_names
    labels: dict[str, Any] = {}
    if names:
        labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    try:
        return task.config(**labels, **model)
    except ValueError as error:
        raise UserError(str(error)) from None


def _request(training: Training, model: dict[str, Any], task: str | None) -> dict[str, Any]:
    prepared = training.prepared
    return {
        "task": task,
        "model": model,
        "config": training.unwrapped().config.to_diff_dict(),
        "recipe": asdict(training.recipe),
        "data": {
            "path": str(prepared.path.resolve()),
            "name": prepared.name,
            "fingerprint": prepared.manifest["fingerprint"],
        },
    }


def _require_same_data(request: dict[str, Any], prepared: Prepared, out: Path) -> None:
    if request["data"]["fingerprint"] != prepared.manifest["fingerprint"]:
        raise UserError(
            f"the run in {out} was started on other data ({request['data']['name']} in {request['data']['path']}); "
            "prepare those again, or start a new run"
        )


def _seed(recipe: Recipe) -> None:
    set_seed(recipe.seed)
    if recipe.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


def make_accelerator(recipe: Recipe, out: Path) -> Accelerator:
    """Device, processes and precision of a recipe: what a model is trained and evaluated under."""
    precision = recipe.mixed_precision
    if precision == "auto":
        precision = "bf16" if torch.cuda.is_available() else "no"
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != precision:
        AcceleratorState._reset_state()  # an earlier run of this process had another; accelerate keeps it globally
    trackers = ["tensorboard"] if is_tensorboard_available() else None
    # Weights that autocast keeps from one call to the next would be outside of a captured step.
    handlers: list[Any] = [AutocastKwargs(cache_enabled=False)]
    return Accelerator(mixed_precision=precision, log_with=trackers, project_dir=out, kwargs_handlers=handlers)


def _restore(training: Training) -> None:
    path, problems = training.checkpoints.newest()
    for problem in problems:
        training.display.say(f"{problem}; using the one before")
    if path is None:
        training.display.say("no checkpoint was written yet: starting from the beginning")
        training.folder.keep_metrics(0)
        return
    progress = training.checkpoints.load(path, training.model, training.optimizer, training.ema)
    training.progress = Progress(**progress)
    if training.accelerator.is_main_process:
        training.folder.keep_metrics(training.progress.metrics)
    training.display.say(f"resuming from {path}")
