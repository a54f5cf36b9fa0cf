"""A study from text to results: what is missing is run, what is finished never again."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.studies.claim import check_claim, claim, only_one
from lformer.studies.clock import Clock
from lformer.studies.collecting import (
    compare,
    measurement_file,
    measurements,
    record,
    require_sound,
    trained_the_same,
)
from lformer.studies.controls import controls
from lformer.studies.language import language, language_small
from lformer.studies.paper import paper
from lformer.studies.planning import cost_of, steps_of, wanted_runs
from lformer.studies.pool import Job, Pool
from lformer.studies.results import FILE, MissingRun, Results
from lformer.studies.scales import SCALES, Scale
from lformer.studies.study import Run, Study
from lformer.studies.study_data import check_source, describe, prepare_data, subset
from lformer.studies.study_progress import StudyProgress
from lformer.studies.study_report import draw, write_report_files
from lformer.studies.tuning import best_trial, chosen_rate, other_rate
from lformer.train import Recipe, RunFolder
from lformer.train.run_folder import environment

STUDIES: dict[str, Callable[[Scale], Study]] = {
    "paper": paper,
    "controls": controls,
    "language": language,
    "language-small": language_small,
}
GPU_WORKERS = 4
MEASURED = {"full": {"warm_up": 40, "steps": 150}, "smoke": {"warm_up": 1, "steps": 2}}
CHECKPOINTS = 20  # in a run that may take an hour
NO_CHECKPOINTS = 10**9  # steps between them: a run of seconds is started again sooner than it is saved


@dataclass
class Reproduction:
    """A study in its folder.

    data/          prepared data, unless they are elsewhere
    runs/          the folder of every run, GROUP/MODEL/LABEL
    measurements/  the speed of every row
    compressed/    trained dense models after compression
    logs/          what the workers printed
    seconds.json   wall clock by phase
    lock           held by the study that is at work here
    results.json   everything that the report shows
    report/        the report
    """

    study: Study
    out: Path
    data_dir: Path | None = None
    cache: Path | None = None
    workers: int | None = None
    only: tuple[str, ...] = ("*",)
    """Runs whose name matches one of these."""
    minutes: float | None = None
    """After which jobs are stopped and no more are started: what is finished is written, the rest waits for the next
    call.
    """
    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))
    prepared: dict[str, Prepared] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    """Of runs, by name."""
    failures: dict[str, str] = field(default_factory=dict)
    """Of measurements and compressions, as in `Results`."""
    unfinished: set[str] = field(default_factory=set)
    """The names of those that did not fail, but for which there was no time."""
    lock: int | None = None
    """Its descriptor, while the study is at work."""

    def __post_init__(self) -> None:
        self.clock = Clock(self.out / "seconds.json")
        self.deadline = None if self.minutes is None else time.monotonic() + 60 * self.minutes

    def run(self) -> Results:
        """Prepare, train, measure, compress, collect; writes results.json and returns what it holds."""
        check_claim(self.out, self.study)  # what can be refused is refused before anything is written
        wanted_runs(self.study, self.only)
        self._check_sources()
        claim(self.out, self.study)
        with only_one(self.out, self._say) as self.lock:
            with self.clock.phase("prepare"):
                self._prepare()
            with self.clock.phase("train"):
                self._train()
            with self.clock.phase("measure"):
                self._measure()
            with self.clock.phase("compress"):
                self._compress()
            with self.clock.phase("collect", starts_over=True):
                results = self.collect()
            return self._write(results)

    def prepare(self) -> dict[str, Prepared]:
        """The token caches alone, for a machine that has no text; nothing else is written."""
        check_claim(self.out, self.study)
        self._check_sources()
        self._prepare()
        return self.prepared

    def report(self, results: Results) -> Path:
        """The report of what `run` found; returns its page."""
        with only_one(self.out, self._say):
            with self.clock.phase("report", starts_over=True):
                pictures = draw(results)
                write_report_files(results, pictures, self.out / "report")
            # Once more, in a moment: now it is known how long it took.
            return write_report_files(self._write(results), pictures, self.out / "report")[-1]

    def _write(self, results: Results) -> Results:
        """Into the folder, with the time that was spent so far."""
        seconds = {name: round(value, 1) for name, value in self.clock.spent().items()}
        results = replace(results, seconds=seconds, tokens_to_report=round(self.clock.from_tokens(), 1))
        results.write(self.out / FILE)
        return results

    def collect(self) -> Results:
        """The results as far as they are there."""
        finished = [run for run in self.study.runs if self._is_finished(run)]
        environments: list[dict[str, Any]] = []
        runs = [record(run, self._folder(run), self.prepared[run.data], environments) for run in finished]
        return Results(
            study=self.study.name,
            scale=self.study.scale,
            score=self.study.score,
            groups={name: self._about(name) for name in self.study.groups},
            runs=runs,
            measurements=measurements(self.study, self.out / "measurements"),
            comparisons=compare(self.study, finished, self.out / "runs", self.prepared),
            compressed={f"{group}/{model}": self._compressed(group, model) for group, model in self.study.compressed},
            missing=[self._missing(run) for run in self.study.runs if run not in finished],
            failures=self._failures(),
            environments=environments or [environment()],
        )

    def _check_sources(self) -> None:
        for name, need in self.study.data.items():
            check_source(need, self._cache(name), self.data_dir)

    def _prepare(self) -> None:
        for name, need in self.study.data.items():
            self.prepared[name] = prepare_data(need, self._cache(name), self.data_dir)

    def _cache(self, name: str) -> Path:
        return (self.cache or self.out / "data") / name

    def _missing(self, run: Run) -> MissingRun:
        reason = self.errors.get(run.name, "was not asked for")
        return MissingRun(group=run.group, model=run.model, label=run.label, role=run.role, reason=reason)

    def _failures(self) -> dict[str, str]:
        """Why a row has no speed, or a dense model was not compressed."""
        rows = [(group, model) for group in self.study.groups for model in self.study.rows(group)]
        rows = rows if self.study.is_timed else []
        wanted = {f"speed of {group}/{model}": self._measurement(group, model) for group, model in rows}
        wanted |= {f"compression of {g}/{m}": self._compressed_file(g, m) for g, m in self.study.compressed}
        absent = [name for name, path in wanted.items() if not path.is_file()]
        return {name: self.failures.get(name, "no run that it needs is finished") for name in absent}

    def _train(self) -> None:
        for run in self.study.runs:
            if self._folder(run).is_started:
                self._require_same(run)
                require_sound(self._folder(run))
        missing = [run for run in wanted_runs(self.study, self.only) if not self._folder(run).is_finished]
        unfinished = {run.name for run in missing}
        jobs = [
            Job(
                name=run.name,
                make=lambda run=run: self._train_job(run),  # type: ignore[misc]
                cost=cost_of(run, self.prepared[run.data]),
                after=tuple(name for name in run.tuned_by if name in unfinished),
            )
            for run in missing
        ]
        steps = {run.name: steps_of(run, self.prepared[run.data]) for run in missing}
        with StudyProgress(steps, self.out / "runs", self.console) as progress:
            self.errors |= self._run(self._workers(), progress, jobs)
        reasons = {run.name: other_rate(self.study, self.out / "runs", run) for run in self.study.runs}
        self.errors |= {name: reason for name, reason in reasons.items() if reason}

    def _measure(self) -> None:
        """The speed of every row whose runs are finished, one after another: nothing else may use the machine."""
        (self.out / "measurements").mkdir(exist_ok=True)
        jobs: dict[str, Job] = {}
        for run in self.study.runs:
            path, name = self._measurement(run.group, run.model), f"{run.group}/{run.model}"
            if self.study.is_timed and run.is_reported and self._is_finished(run) and not path.is_file():
                jobs.setdefault(name, Job(name, lambda run=run, path=path: self._measure_job(run, path)))  # type: ignore[misc]
        with StudyProgress(dict.fromkeys(jobs, 1), None, self.console, "measuring") as progress:
            self.failures |= self._run(1, progress, list(jobs.values()), "speed of ")

    def _compress(self) -> None:
        """Dense models without further training. The best trial is taken: it has texts on which to choose."""
        (self.out / "compressed").mkdir(exist_ok=True)
        jobs = []
        for group, model in self.study.compressed:
            path = self._compressed_file(group, model)
            row = [run for run in self.study.runs if (run.group, run.model) == (group, model) and run.tuned_by]
            # A row that is trained is one whose trials are all done: before, another one may be the best in the end.
            run = next((run for run in row if self._is_finished(run)), None)
            if not path.is_file() and run and (trial := best_trial(self.study, self.out / "runs", run)):
                request = {"kind": "compress", "run": str(self._folder(trial).path), "out": str(path)}
                request["prepared"] = str(self.prepared[trial.data].path)
                jobs.append(Job(f"{group}/{model}", lambda request=request: request))  # type: ignore[misc]
        with StudyProgress({job.name: 1 for job in jobs}, None, self.console, "compressing") as progress:
            self.failures |= self._run(self._workers(), progress, jobs, "compression of ")

    def _compressed(self, group: str, model: str) -> list[dict[str, Any]]:
        """The model as trained and the best points at each budget; the whole sweep stays in its file."""
        path = self._compressed_file(group, model)
        if not path.is_file():
            return []
        try:
            points: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise UserError(f"{path} is damaged: delete it to compress the model again") from None
        return [point for point in points if point["test_accuracy"] is not None]

    def _measurement(self, group: str, model: str) -> Path:
        return measurement_file(self.out / "measurements", group, model)

    def _compressed_file(self, group: str, model: str) -> Path:
        return measurement_file(self.out / "compressed", group, model)

    def _run(self, workers: int, progress: StudyProgress, jobs: list[Job], what: str = "") -> dict[str, str]:
        """The jobs by so many workers; returns why some are not done, by name."""
        pool = self._pool(workers, progress)
        errors = {f"{what}{name}": error for name, error in pool.run(jobs).items()}
        self.unfinished |= {f"{what}{name}" for name in pool.unfinished}
        return errors

    def _pool(self, workers: int, progress: StudyProgress) -> Pool:
        threads = None
        if self.study.scale == "smoke":
            threads = 1  # threads of tiny matrices only wait for each other
        elif workers > 1:
            threads = max(1, (os.cpu_count() or 1) // workers)
        lock = () if self.lock is None else (self.lock,)
        calls: dict[str, Any] = {"on_start": progress.start, "on_end": progress.end}
        return Pool(workers, self.out / "logs", threads, keep_open=lock, deadline=self.deadline, **calls)

    def _train_job(self, run: Run) -> dict[str, Any]:
        if reason := other_rate(self.study, self.out / "runs", run):
            raise UserError(reason)
        return {"kind": "train", "out": str(self.out / "runs" / run.name), **self._request(run)}

    def _measure_job(self, run: Run, path: Path) -> dict[str, Any]:
        request = self._request(run)
        request["recipe"]["test_every_epoch"] = False
        return {"kind": "measure", "out": str(path), **request, **MEASURED[self.study.scale]}

    def _request(self, run: Run) -> dict[str, Any]:
        recipe = asdict(self._recipe(run))
        return {"prepared": str(self.prepared[run.data].path), "model": run.fields, "recipe": recipe}

    def _recipe(self, run: Run) -> Recipe:
        """The run's own, with the learning rate of the best of its trials, saved as often as this machine needs it."""
        quick = self.study.scale == "smoke" or torch.cuda.is_available()
        often = NO_CHECKPOINTS if quick else -(-steps_of(run, self.prepared[run.data]) // CHECKPOINTS)
        rate = chosen_rate(self.study, self.out / "runs", run) if run.tuned_by else run.recipe.learning_rate
        return replace(run.recipe, learning_rate=rate, checkpoint_steps=often)

    def _require_same(self, run: Run) -> None:
        request = self._folder(run).request()
        chosen = ["learning_rate"] if run.tuned_by else []
        other = []
        if request["model"] != run.fields or not trained_the_same(request["recipe"], asdict(run.recipe), but=chosen):
            other.append("settings")
        if request["data"]["fingerprint"] != self.prepared[run.data].manifest["fingerprint"]:
            other.append("data")
        if other:
            raise UserError(
                f"{self._folder(run).path} was trained with other {' and '.join(other)} than the study has now; "
                "delete it or choose another --out"
            )

    def _is_finished(self, run: Run) -> bool:
        """Whether it is, and can stand in its row."""
        return self._folder(run).is_finished and run.name not in self.errors

    def _folder(self, run: Run) -> RunFolder:
        return RunFolder(self.out / "runs" / run.name)

    def _workers(self) -> int:
        return self.workers or (GPU_WORKERS if torch.cuda.is_available() else 1)

    def _about(self, group: str) -> dict[str, Any]:
        described = self.study.groups[group]
        prepared = self.prepared[described.data]
        is_text = prepared.task == "language-modeling"
        splits = {split: prepared.split(split) for split in prepared.splits}
        sizes = {name: len(split.tokens) if is_text else len(split) for name, split in splits.items()}
        return {
            "title": described.title + subset(self.study.data[described.data], prepared),
            "data": describe(self.study.data[described.data], prepared),
            "labels": prepared.label_names,
            "reference": described.reference,
            "tokenizer": prepared.manifest["settings"]["tokenizer_kind"],
            "vocab_size": prepared.vocab_size,
            "max_length": prepared.max_length,
            **sizes,
        }

    def _say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False)


def make_study(name: str, scale: str = "full") -> Study:
    """The study of that name."""
    for what, value, known in (("study", name, STUDIES), ("scale", scale, SCALES)):
        if value not in known:
            raise UserError(f"there is no {what} {value!r}; there are {', '.join(known)}")
    return STUDIES[name](SCALES[scale])
