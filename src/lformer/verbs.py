"""What each verb of the command line does, without the command line."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from rich.console import Console
from safetensors import SafetensorError
from transformers import AutoTokenizer

from lformer.data import Prepared
from lformer.data.tokenizer import same_tokens
from lformer.data_request import CONFIG_TYPES, DataRequest, refuse_other_tokens, refuse_stale, write_cache
from lformer.models import (
    LFormerConfig,
    LFormerForCausalLM,
    LFormerForConditionalGeneration,
    LFormerForMaskedLM,
    LFormerForSequenceClassification,
)
from lformer.settings import UserError, apply_settings
from lformer.studies import classify, is_study, write_markdown, write_report, write_study_report
from lformer.studies import quickstart as run_quickstart
from lformer.studies.bleu import bleu
from lformer.studies.generation import Sampling, continue_text, lines_of, to_text, translate
from lformer.train import PRESETS, Diverged, Interrupted, Recipe, RunFolder, make_task
from lformer.train import evaluate as evaluate_model
from lformer.train import train as train_model
from lformer.train.runner import make_accelerator

USER_ERRORS = (UserError, Diverged, Interrupted, KeyboardInterrupt)
MODELS = {
    model.__name__: model
    for model in (
        LFormerForSequenceClassification,
        LFormerForMaskedLM,
        LFormerForCausalLM,
        LFormerForConditionalGeneration,
    )
}


def exit_code(error: BaseException) -> int:
    """2 for a mistake of the user's, 3 for a run that diverged, 130 for one that was stopped."""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return 130
    return 3 if isinstance(error, Diverged) else 2


def quickstart(out: Path) -> None:
    """A dense and a tensor Transformer on embedded data, trained and compared."""
    run_quickstart(out)


def prepare(out: Path, request: DataRequest) -> Prepared:
    """Text in, token cache out; a fresh cache is left as it is."""
    preset = request.resolved()
    return write_cache(out, request.load(preset), preset.data)


def train(
    out: Path, request: DataRequest, *, prepared: Path | None = None, resume: bool = False
) -> dict[str, Any] | None:
    """Train into a run folder; returns the result, or None in the processes that do not report."""
    preset = request.resolved()
    folder = RunFolder(out)
    if resume:
        cache = Prepared.open(prepared or Path(folder.request()["data"]["path"]))
    elif prepared is not None:
        cache = Prepared.open(prepared)
        refuse_other_tokens(cache, request.changed())
        if request.source or request.data_dir:
            refuse_stale(cache, request.load(preset), preset.data)
    else:
        folder.require_new()
        with PartialState().main_process_first():  # the others then find a fresh cache
            cache = write_cache(out / "data", request.load(preset), preset.data)
    result = train_model(cache, out, model=preset.model, recipe=preset.recipe, task=preset.task, resume=resume)
    return result if PartialState().is_main_process else None


def evaluate(
    run: Path, prepared: Path | None, split: str, *, with_bleu: bool = False, batch_size: int = 64
) -> dict[str, Any]:
    """Scores of a trained model; of a translation model also BLEU, if asked for."""
    folder = RunFolder(run)
    request = folder.request()
    cache = Prepared.open(prepared or Path(request["data"]["path"]))
    if split not in cache.splits:
        raise UserError(f"{cache.path} has no split {split!r}; it has {', '.join(cache.splits)}")
    task = make_task(request["task"], cache, Recipe(**request["recipe"]))
    model, tokenizer = load_model(run)
    if not same_tokens(tokenizer, cache.tokenizer()):
        raise UserError(
            f"{cache.path} was prepared with another tokenizer than that of {run}, so its numbers mean other tokens; "
            "prepare the text with the settings of the run"
        )
    if with_bleu and not isinstance(model, LFormerForConditionalGeneration):
        raise UserError(f"{run} holds a {type(model).__name__}; BLEU is for translation")
    accelerator = make_accelerator(task.recipe, run)  # the precision that the run was evaluated in
    found = evaluate_model(model.to(accelerator.device), task, cache.split(split), accelerator).scores
    if not with_bleu:
        return found
    return {**found, "bleu": bleu(model, cache, split, batch_size=batch_size)}


def read_texts(texts: list[str] | None, file: Path | None) -> Iterable[str]:
    """The texts of the command line, or the lines of a file or of standard input."""
    if texts and file:
        raise UserError("give texts or --file, not both")
    if texts:
        return texts
    try:
        text = file.read_text(encoding="utf-8") if file else sys.stdin.read()
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file or 'standard input'} is not UTF-8: byte {error.start}") from None
    if not text:
        raise UserError(f"{file or 'standard input'} has no text")
    return lines_of(text)


def predict(run: Path, texts: Iterable[str], batch_size: int = 64) -> Iterator[dict[str, Any]]:
    """The class of every text, with the probabilities of all."""
    model, tokenizer = load_model(run)
    if not isinstance(model, LFormerForSequenceClassification):
        raise UserError(f"{run} holds a {type(model).__name__}; predict needs a classifier")
    yield from classify(model, tokenizer, texts, batch_size)


def generate(
    run: Path,
    prompt: bytes,
    sampling: Sampling,
    write: Callable[[str], object],
    *,
    stream: bool = False,
    batch_size: int = 32,
) -> None:
    """Write a continuation of the prompt, as it comes if asked for, or the translation of each of its lines."""
    model, tokenizer = load_model(run)
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    said: set[str] = set()

    def note(text: str) -> None:
        if text not in said:
            Console(stderr=True, highlight=False, markup=False).print(text, soft_wrap=True)
        said.add(text)

    if isinstance(model, LFormerForCausalLM):
        text = continue_text(model, tokenizer, prompt, sampling, write=write if stream else None, note=note)
        write("\n" if stream else text + "\n")
    elif isinstance(model, LFormerForConditionalGeneration):
        lines = lines_of(to_text(prompt, note, "the text"))
        for line in translate(model, tokenizer, lines, sampling, batch_size=batch_size, note=note):
            write(line + "\n")
    else:
        raise UserError(f"{run} holds a {type(model).__name__}; generate needs a causal or encoder-decoder model")


def read_prompt(given: list[str | None], file: Path | None) -> bytes:
    """The one prompt that was given, or the bytes of a file; - is standard input."""
    found = [text for text in given if text is not None]
    if len(found) + (file is not None) > 1:
        raise UserError("give one prompt: as an argument, with --prompt or with --file")
    if found == ["-"] or (file is not None and str(file) == "-"):
        return sys.stdin.buffer.read()
    if file is None:
        return found[0].encode("utf-8", "surrogateescape") if found else b""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None


def reproduce(
    study: str,
    out: Path,
    data_dir: Path | None,
    cache: Path | None,
    scale: str,
    workers: int | None,
    only: list[str],
    minutes: float | None,
    prepare_only: bool,
) -> None:
    """Run what is missing of a study, write its results and the report; or only prepare its data."""
    from lformer.studies.reproduce import Reproduction, make_study
    from lformer.studies.results import Results
    from lformer.studies.study_data import describe

    console = Console(stderr=True, highlight=False, markup=False)
    work = Reproduction(make_study(study, scale), out, data_dir, cache, workers, tuple(only), minutes)
    if prepare_only:
        for name, prepared in work.prepare().items():
            size = sum(file["bytes"] for file in prepared.manifest["files"].values()) / 1e6
            about = describe(work.study.data[name], prepared)
            console.print(f"{prepared.path}: {about}; {size:.1f} MB", soft_wrap=True)
        return
    page = work.report(work.run())
    results = Results.read(out)
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in results.seconds.items())
    console.print(f"{len(results.runs)} runs in {out}; {spent}", soft_wrap=True)
    console.print(f"From prepared tokens to report: {results.tokens_to_report:.0f} s", soft_wrap=True)
    console.print(f"The report: {page}", soft_wrap=True)
    if work.unfinished:
        console.print(f"No time for {len(work.unfinished)} parts: the same command goes on", soft_wrap=True)
    reasons = work.errors | work.failures
    if failed := {name: reason for name, reason in reasons.items() if name not in work.unfinished}:
        listed = "\n".join(f"  {name}: {reason}" for name, reason in failed.items())
        raise UserError(f"{len(failed)} parts of the study failed, the others are finished:\n{listed}")


def export(run: Path, out: Path) -> Path:
    """A trained model as ONNX."""
    from lformer.models.export import export_onnx

    return export_onnx(load_model(run)[0], out)


def report(paths: list[Path], out: Path | None, title: str | None, markdown: Path | None) -> list[Path]:
    """The reports of studies, or one of runs; returns the files that were written."""
    studies = [path for path in paths if is_study(path)]
    runs = [path for path in paths if path not in studies]
    for path in runs:
        if not RunFolder(path).is_started:
            raise UserError(f"{path} holds neither a study (results.json) nor a run (run.json)")
    if studies and runs:
        raise UserError(f"{studies[0]} is a study and {runs[0]} a run: give studies alone, or runs alone")
    if len(studies) > 1 and out is not None:
        raise UserError("--out is for one study; without it each report is written beside its results")
    if out is not None and out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; --out takes a folder")
    if not studies:
        if markdown is not None:
            raise UserError("--markdown needs a study: a folder with results.json")
        return [write_report(paths, (out or Path("report")) / "report.html", title or "lformer: runs compared")]
    written = []
    if markdown is None or out is not None:
        written = [path for study in studies for path in write_study_report(study, out, title)]
    return written if markdown is None else [*written, write_markdown(studies, markdown)]


def load_model(run: Path) -> tuple[Any, Any]:
    """The model and tokenizer of a run, or of a folder that save_pretrained wrote."""
    folder = run / "model" if (run / "model").is_dir() else run
    config = _read_config(folder)
    found = config.get("architectures") or []
    if not found or found[0] not in MODELS:
        raise UserError(f"{folder / 'config.json'} names no model of lformer (architectures: {found})")
    try:
        model = MODELS[found[0]].from_pretrained(folder).eval()
        return model, AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"the model in {folder} cannot be loaded: {reason}") from None


def load_config(model: Path | None, settings: list[str]) -> LFormerConfig:
    """A saved configuration, or the default one, with settings changed."""
    values: dict[str, Any] = {}
    if model is not None:
        values = _read_config(model / "model" if (model / "model").is_dir() else model)
        if values.get("model_type") != "lformer":
            raise UserError(f"{model} holds a model of type {values.get('model_type')!r}, not 'lformer'")
    try:
        return LFormerConfig.from_dict(apply_settings(values, settings, CONFIG_TYPES))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from None


def preset_descriptions() -> dict[str, str]:
    return {name: preset().about for name, preset in PRESETS.items()}


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{folder} has no config.json: give the folder of a finished run or of a saved model")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} does not hold a configuration")
    return found
