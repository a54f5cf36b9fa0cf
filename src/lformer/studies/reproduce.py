"""A study from text to results: what is missing is run, what is finished never again."""

import fnmatch
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.studies.collecting import compare, measurement_file, measurements, record
from lformer.studies.controls import controls
from lformer.studies.language import language, language_small
from lformer.studies.paper import paper
from lformer.studies.pool import Job, Pool
from lformer.studies.results import FILE, MissingRun, Results
from lformer.studies.scales import SCALES, Scale
from lformer.studies.study import Run, Study
from lformer.studies.study_data import describe, prepare_data
from lformer.studies.study_progress import StudyProgress
from lformer.train import Recipe, RunFolder
from lformer.train.files import write_json
from lformer.train.run_folder import environment

STUDIES: dict[str, Callable[[Scale], Study]] = {
    "paper": paper,
    "controls": controls,
    "language": language,
    "language-small": language_small,
}
GPU_WORKERS = 4
MEASURED = {"full": {"warm_up": 40, "steps": 150}, "smoke": {"warm_up": 1, "steps": 2}}


@dataclass
class Reproduction:
    """A study in its folder.

    data/          prepared data, unless they are elsewhere
    runs/          the folder of every run, GROUP/MODEL/LABEL
    measurements/  the speed of every row
    compressed/    trained dense models after compression
    logs/          what the workers printed
    seconds.json   wall clock by phase
    results.json   everything that the report shows
    """

    study: Study
    out: Path
    data_dir: Path | None = None
    cache: Path | None = None
    workers: int | None = None
    only: tuple[str, ...] = ("*",)
    """Runs whose name matches one of these."""
    console: Any = None
    prepared: dict[str, Prepared] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    """Of runs, by name."""
    failures: dict[str, str] = field(default_factory=dict)
    """Of measurements and compressions, as in `Results`."""

    def run(self) -> Results:
        """Prepare, train, measure, compress, collect; writes results.json and returns what it holds."""
        self._claim()
        with self._phase("prepare"):
            for name, need in self.study.data.items():
                self.prepared[name] = prepare_data(need, (self.cache or self.out / "data") / name, self.data_dir)
        with self._phase("train"):
            self._train()
        with self._phase("measure"):
            self._measure()
        with self._phase("compress"):
            self._compress()
        with self._phase("collect"):
            results = self.collect()
        results = replace(results, seconds={name: round(value, 1) for name, value in self._spent().items()})
        results.write(self.out / FILE)
        return results

    def collect(self) -> Results:
        """The results as far as they are there."""
        finished = [run for run in self.study.runs if self._folder(run).is_finished]
        environments: list[dict[str, Any]] = []
        runs = [record(run, self._folder(run), self.prepared[run.data], environments) for run in finished]
        return Results(
            study=self.study.name,
            scale=self.study.scale,
            score=self.study.score,
            groups={name: self._about(name) for name in self.study.groups},
            runs=runs,
            measurements=measurements(self.study, self.out / "measurements"),
            comparisons=compare(self.study, self.out / "runs", self.prepared),
            compressed={f"{group}/{model}": self._compressed(group, model) for group, model in self.study.compressed},
            missing=[self._missing(run) for run in self.study.runs if run not in finished],
            failures=self.failures,
            environments=environments or [environment()],
        )

    def _missing(self, run: Run) -> MissingRun:
        reason = self.errors.get(run.name, "was not asked for")
        return MissingRun(group=run.group, model=run.model, label=run.label, role=run.role, reason=reason)

    def _claim(self) -> None:
        """Refuse a folder that holds another study."""
        path = self.out / "study.json"
        description = {"study": self.study.name, "scale": self.study.scale}
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"{self.out} is a file; choose another --out")
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            if found != description:
                raise UserError(
                    f"{self.out} holds the study {found.get('study')} at scale {found.get('scale')}, not "
                    f"{self.study.name} at scale {self.study.scale}; choose another --out"
                )
            return
        if self.out.exists() and any(item.name != "data" for item in self.out.iterdir()):
            raise UserError(f"{self.out} exists and holds no study; choose another --out")
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(path, description)

    def _train(self) -> None:
        wanted = [run for run in self.study.runs if any(fnmatch.fnmatch(run.name, each) for each in self.only)]
        if not wanted:
            asked = " ".join(f"--only {each!r}" for each in self.only)
            raise UserError(f"no run of the study matches {asked}; a name is {self.study.runs[0].name}")
        needed = {name for run in wanted for name in run.tuned_by}
        wanted += [run for run in self.study.runs if run.name in needed and run not in wanted]
        missing = []
        for run in wanted:
            if self._folder(run).is_started:
                self._require_same(run)
            if not self._folder(run).is_finished:
                missing.append(run)
        unfinished = {run.name for run in missing}
        jobs = [
            Job(
                name=run.name,
                make=lambda run=run: self._train_job(run),  # type: ignore[misc]
                cost=self._cost(run),
                after=tuple(name for name in run.tuned_by if name in unfinished),
            )
            for run in missing
        ]
        steps = {run.name: self._steps(run) for run in missing}
        with StudyProgress(steps, self.out / "runs", self.console) as progress:
            self.errors |= self._pool(self._workers(), progress).run(jobs)

    def _measure(self) -> None:
        """The speed of every row whose runs are finished, one after another: nothing else may use the machine."""
        folder = self.out / "measurements"
        folder.mkdir(exist_ok=True)
        jobs = []
        for group in self.study.groups:
            for model in self.study.rows(group):
                run = next(
                    run for run in self.study.runs if (run.group, run.model) == (group, model) and run.is_reported
                )
                path = measurement_file(folder, group, model)
                if path.is_file() or not self._folder(run).is_finished:
                    continue
                jobs.append(Job(f"{group}/{model}", lambda run=run, path=path: self._measure_job(run, path)))  # type: ignore[misc]
        with StudyProgress({job.name: 1 for job in jobs}, None, self.console, "measuring") as progress:
            failed = self._pool(1, progress).run(jobs)
        self.failures |= {f"speed of {name}": error for name, error in failed.items()}

    def _compress(self) -> None:
        """Dense models without further training. The best trial is taken: it has texts on which to choose."""
        (self.out / "compressed").mkdir(exist_ok=True)
        jobs = []
        for group, model in self.study.compressed:
            path = self._compressed_file(group, model)
            run = next(run for run in self.study.runs if (run.group, run.model) == (group, model) and run.tuned_by)
            if not path.is_file() and (rates := self._trial_scores(run)):
                trial = next(
                    name
                    for name in run.tuned_by
                    if self.study.run(name).recipe.learning_rate == best(rates, self.study.score)
                )
                request = {"kind": "compress", "run": str(self.out / "runs" / trial), "out": str(path)}
                request["prepared"] = str(self.prepared[self.study.run(trial).data].path)
                jobs.append(Job(f"{group}/{model}", lambda request=request: request))  # type: ignore[misc]
        with StudyProgress({job.name: 1 for job in jobs}, None, self.console, "compressing") as progress:
            failed = self._pool(self._workers(), progress).run(jobs)
        self.failures |= {f"compression of {name}": error for name, error in failed.items()}

    def _compressed(self, group: str, model: str) -> list[dict[str, Any]]:
        """The model as trained and the best points at each budget; the whole sweep stays in its file."""
        path = self._compressed_file(group, model)
        points: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        return [point for point in points if point["test_accuracy"] is not None]

    def _compressed_file(self, group: str, model: str) -> Path:
        return measurement_file(self.out / "compressed", group, model)

    def _pool(self, workers: int, progress: StudyProgress) -> Pool:
        threads = None
        if self.study.scale == "smoke":
            threads = 1  # threads of tiny matrices only wait for each other
        elif workers > 1 and not torch.cuda.is_available():
            threads = max(1, (os.cpu_count() or 1) // workers)
        return Pool(workers, self.out / "logs", threads, on_start=progress.start, on_end=progress.end)

    def _train_job(self, run: Run) -> dict[str, Any]:
        return {"kind": "train", "out": str(self.out / "runs" / run.name), **self._request(run)}

    def _measure_job(self, run: Run, path: Path) -> dict[str, Any]:
        request = self._request(run)
        request["recipe"]["test_every_epoch"] = False
        return {"kind": "measure", "out": str(path), **request, **MEASURED[self.study.scale]}

    def _request(self, run: Run) -> dict[str, Any]:
        recipe = asdict(self._recipe(run))
        return {"prepared": str(self.prepared[run.data].path), "model": run.fields, "recipe": recipe}

    def _recipe(self, run: Run) -> Recipe:
        """The run's own, with the learning rate of the best of its trials."""
        if not run.tuned_by:
            return run.recipe
        scores = self._trial_scores(run)
        if not scores:
            raise UserError("none of the trials that choose its learning rate is finished")
        return replace(run.recipe, learning_rate=best(scores, self.study.score))

    def _trial_scores(self, run: Run) -> dict[float, float]:
        """Validation score by learning rate, of the trials that are finished."""
        folders = {name: RunFolder(self.out / "runs" / name) for name in run.tuned_by}
        return {
            self.study.run(name).recipe.learning_rate: folder.result()["validation"][self.study.score]
            for name, folder in folders.items()
            if folder.is_finished
        }

    def _require_same(self, run: Run) -> None:
        request = self._folder(run).request()
        recipe = {
            name: value for name, value in request["recipe"].items() if name != "learning_rate" or not run.tuned_by
        }
        asked = {name: value for name, value in asdict(run.recipe).items() if name in recipe}
        if request["model"] != run.fields or recipe != asked:
            raise UserError(
                f"{self._folder(run).path} was trained with other settings than the study has now; "
                "delete it or choose another --out"
            )

    def _folder(self, run: Run) -> RunFolder:
        return RunFolder(self.out / "runs" / run.name)

    def _steps(self, run: Run) -> int:
        prepared = self.prepared[run.data]
        examples = len(prepared.split("train"))
        if prepared.task == "language-modeling":
            examples = len(prepared.split("train").tokens) // run.recipe.sequence_length
        per_epoch = -(-examples // run.recipe.batch_size)
        return min(run.recipe.max_steps or run.recipe.epochs * per_epoch, run.recipe.epochs * per_epoch)

    def _cost(self, run: Run) -> float:
        """Roughly the time of the run; a trial comes before what waits for it."""
        cost = self._steps(run) * run.recipe.batch_size * (256 + run.fields["hidden_size"])
        return cost if run.tuned_by else 1e6 * cost

    def _workers(self) -> int:
        return self.workers or (GPU_WORKERS if torch.cuda.is_available() else 1)

    def _about(self, group: str) -> dict[str, Any]:
        described = self.study.groups[group]
        prepared = self.prepared[described.data]
        is_text = prepared.task == "language-modeling"
        splits = {split: prepared.split(split) for split in prepared.splits}
        sizes = {name: len(split.tokens) if is_text else len(split) for name, split in splits.items()}
        return {
            "title": described.title,
            "data": describe(self.study.data[described.data], prepared),
            "labels": prepared.label_names,
            "reference": described.reference,
            **sizes,
        }

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Count its time to that of earlier calls, which may have been interrupted."""
        path = self.out / "seconds.json"
        spent = self._spent()
        started = time.perf_counter()
        try:
            yield
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - started
            write_json(path, spent)

    def _spent(self) -> dict[str, float]:
        """Wall clock by phase, over all calls."""
        path = self.out / "seconds.json"
        found: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return found


def best(scores: dict[float, float], score: str = "accuracy") -> float:
    """The learning rate with the best score; the smaller one of two that are as good."""
    sign = -1 if score == "bits" else 1
    return max(scores, key=lambda rate: (sign * scores[rate], -rate))


def make_study(name: str, scale: str = "full") -> Study:
    """The study of that name."""
    for what, value, known in (("study", name, STUDIES), ("scale", scale, SCALES)):
        if value not in known:
            raise UserError(f"there is no {what} {value!r}; there are {', '.join(known)}")
    return STUDIES[name](SCALES[scale])
