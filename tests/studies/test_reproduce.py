"""Studies from text to results, in miniature: every row of the paper, resuming, stopping, failing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lformer.data import Prepared
from lformer.settings import UserError
from lformer.studies import worker
from lformer.studies.claim import only_one
from lformer.studies.planning import steps_of
from lformer.studies.pool import NOT_STARTED, STOPPED, Pool
from lformer.studies.reproduce import Reproduction, make_study
from lformer.studies.results import FILE, Results
from lformer.studies.study_report import write_study_report
from lformer.train import RunFolder

pytest.importorskip("babel", reason="no babel, whose names are the data of a miniature: pip install -e '.[demo]'")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The whole paper study in miniature."""
    out = tmp_path_factory.mktemp("studies") / "paper"
    return out, Reproduction(make_study("paper", "smoke"), out).run()


def few(study, *names):
    """The study with the runs of these rows only."""
    return replace(study, runs=[run for run in study.runs if run.model in names], comparisons=[], compressed=[])


def test_every_row_is_there(finished):
    _, results = finished
    study = make_study("paper", "smoke")
    assert {run.name for run in results.runs} == {run.name for run in study.runs}
    assert results.missing == []
    assert {(found.group, found.model) for found in results.measurements} == {
        (group, model) for group in study.groups for model in study.rows(group)
    }
    assert len(results.comparisons) == len(study.comparisons)


def test_a_repeated_run_is_the_same_to_the_bit(finished):
    _, results = finished
    by_name = {run.name: run for run in results.runs}
    again = by_name["imdb-128/T4-linear/seed-42-again"]
    assert again.test == by_name["imdb-128/T4-linear/seed-42"].test
    assert again.test != by_name["imdb-128/T4-linear/seed-123"].test


def test_records_agree_with_each_other(finished):
    _, results = finished
    for run in results.runs:
        if run.is_reported:
            right = sum(run.confusion[i][i] for i in range(len(run.confusion)))
            total = sum(map(sum, run.confusion))
            assert total == results.groups[run.group]["test"]
            assert run.test["accuracy"] == pytest.approx(right / total)
        if run.seed == 42:
            assert [point["epoch"] for point in run.curve] == [1, 2]
            assert run.curve[-1]["accuracy"] == pytest.approx(run.test["accuracy"], abs=1e-5)


def test_the_report_is_in_the_clock(finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    work = Reproduction(make_study("paper", "smoke"), out)
    results = work.run()
    assert "report" not in results.seconds
    page = work.report(results).read_text()
    timed = Results.read(out)
    assert list(timed.seconds) == ["prepare", "train", "measure", "compress", "collect", "report"]
    assert timed.seconds["report"] > 0
    assert timed.tokens_to_report == pytest.approx(sum(timed.seconds.values()) - timed.seconds["prepare"], abs=0.5)
    assert ">report<" in page


def test_checkpoints_of_finished_runs_are_gone(finished):
    out, _ = finished
    assert not list(out.rglob("checkpoints"))


def test_runs_say_on_what_they_were_trained(finished):
    out, results = finished
    (environment,) = results.environments
    assert {run.environment for run in results.runs} == {0}
    assert environment == RunFolder(out / "runs" / results.runs[0].name).environment()
    assert environment["command"] == " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])  # not that of a worker
    assert {found.device for found in results.measurements} == {environment["device"]}


def test_a_record_has_what_its_recipe_changes(finished):
    _, results = finished
    run = next(run for run in results.runs if run.name == "imdb-128/T4-linear/seed-123")
    assert (run.recipe["seed"], run.recipe["max_steps"]) == (123, 6)
    assert "learning_rate" not in run.recipe  # the default
    roles = {run.label: run.role for run in results.runs if run.model == "T4-linear" and run.group == "imdb-128"}
    assert roles == {"seed-42": "result", "seed-123": "result", "seed-42-again": "repeat"}


def test_a_stand_in_says_so(finished):
    _, results = finished
    assert "stand-in" in results.groups["imdb-128"]["data"]
    assert "in miniature" in results.groups["imdb-128"]["title"]


def test_results_survive_the_file(finished):
    out, results = finished
    assert Results.read(out) == Results.read(out / FILE) == results


def test_a_finished_run_needs_no_weights(finished, tmp_path, monkeypatch):
    """So that a study can be carried to another machine, to go on there."""
    out = shutil.copytree(finished[0], tmp_path / "out", ignore=shutil.ignore_patterns("model", "checkpoints", "logs"))
    monkeypatch.setattr("lformer.studies.pool.Pool._start", lambda *_: pytest.fail("a worker was started"))
    again = Reproduction(make_study("paper", "smoke"), out).run()
    assert again.runs == finished[1].runs
    assert again.comparisons == finished[1].comparisons


# A worker, in which a job does not listen for signals as training does.
DEAF = """
import sys, time
from pathlib import Path
from lformer.studies import worker

def wait(job):
    Path(job["out"]).touch()
    time.sleep(300)

worker.JOBS["wait"] = wait
worker.main()
"""


def test_a_worker_that_is_stopped_unwinds(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", DEAF], text=True, stderr=subprocess.PIPE, **pipes) as process:
        process.stdin.write(json.dumps({"kind": "wait", "out": str(tmp_path / "on")}) + "\n")
        process.stdin.flush()
        _wait_for((tmp_path / "on").exists, process)
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.readline()) == {"error": STOPPED}
        process.send_signal(signal.SIGTERM)  # with no job on
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr


def test_a_finished_study_runs_nothing_again(finished, monkeypatch):
    out, results = finished
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    monkeypatch.setattr("lformer.studies.pool.Pool._start", lambda *_: pytest.fail("a worker was started"))
    again = Reproduction(make_study("paper", "smoke"), out).run()
    assert {path: path.stat().st_mtime_ns for path in out.rglob("result.json")} == stamps
    assert again.runs == results.runs


def test_a_folder_of_another_study_is_refused(finished):
    out, _ = finished
    with pytest.raises(UserError, match="holds the study paper at scale smoke, not paper at scale full"):
        Reproduction(make_study("paper"), out).run()


def test_a_run_with_other_settings_is_refused(finished):
    out, _ = finished
    study = make_study("paper", "smoke")
    changed = [replace(run, recipe=replace(run.recipe, learning_rate=0.1)) for run in study.runs]
    with pytest.raises(UserError, match="other settings"):
        Reproduction(replace(study, runs=changed), out).run()


TUNED = "imdb-128-tuned"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """One row of the controls, with its trials."""
    study = few(make_study("controls", "smoke"), "Std")
    study = replace(study, groups={TUNED: study.groups[TUNED]}, compressed=[(TUNED, "Std")])
    study = replace(study, runs=[run for run in study.runs if run.group == TUNED])
    out = tmp_path_factory.mktemp("tuned") / "out"
    return study, out, Reproduction(study, out).run()


def test_learning_rates_are_chosen_on_validation(tuned):
    _, _, results = tuned
    trials = [run for run in results.runs if run.role == "trial"]
    best = max(trials, key=lambda run: (run.validation["accuracy"], -run.learning_rate))
    reported = [run for run in results.runs if run.is_reported]
    assert len(trials) == 2
    assert len(reported) == 2
    assert {run.learning_rate for run in reported} == {best.learning_rate}
    assert all(not run.validation for run in reported)  # trained on everything but the test split
    points = results.compressed[f"{TUNED}/Std"]
    assert points[0]["test_accuracy"] == pytest.approx(best.test["accuracy"])  # of the trial, which has held-out texts
    assert {point["method"] for point in points} == {"none", "rank reduction", "stacked L-SVD"}
    assert results.failures == {}


def test_a_row_does_not_mix_learning_rates(tuned, tmp_path):
    """A trial that is finished after the seeds may choose another rate than they were trained with."""
    study, finished, results = tuned
    out = shutil.copytree(finished, tmp_path / "out")
    seeds = [run for run in study.runs if run.is_reported]
    taken = results.rows(TUNED)["Std"][0].learning_rate
    (other,) = [name for name in seeds[0].tuned_by if study.run(name).recipe.learning_rate != taken]
    result = out / "runs" / other / "result.json"
    found = json.loads(result.read_text())
    result.write_text(json.dumps({**found, "validation": {**found["validation"], "accuracy": 1.0}}))
    # One seed was trained before that trial, the other one after it.
    request = out / "runs" / seeds[1].name / "run.json"
    found = json.loads(request.read_text())
    rate = study.run(other).recipe.learning_rate
    request.write_text(json.dumps({**found, "recipe": {**found["recipe"], "learning_rate": rate}}))
    work = Reproduction(study, out)
    results = work.run()
    assert list(work.errors) == [seeds[0].name]
    assert f"learning rate {taken:g}, but the trials of its row now choose {rate:g}" in work.errors[seeds[0].name]
    assert [run.label for run in results.rows(TUNED)["Std"]] == [seeds[1].label]
    assert [(run.name, run.reason) for run in results.missing] == list(work.errors.items())


def test_a_language_model_is_scored_by_its_bits(tmp_path):
    study = few(make_study("language", "smoke"), "dense, d=256", "dense", "T4 L-products, learned")
    out = tmp_path / "out"
    results = Reproduction(study, out).run()
    assert results.missing == []
    assert all(not run.test for run in results.runs)  # the test part is not among the data
    reported = [run for run in results.runs if run.is_reported and run.model == "dense, d=256"]
    tried = [run for run in results.runs if not run.is_reported and run.model == "dense, d=256"]
    chosen = min(tried, key=lambda run: run.validation["bits"]).learning_rate
    assert {run.learning_rate for run in reported} == {chosen}
    others = {run.group: run.learning_rate for run in results.runs if run.model == "dense"}
    assert others == {"enwik8-0.8m": 2 * chosen, "enwik8-13m": chosen / 2, "enwik8-38m": chosen / 2}
    assert Reproduction(study, out).run().missing == []  # what was trained with the rate of its size stands
    page = write_study_report(out)[-1].read_text()
    assert "Bits per byte over size" in page
    assert "Bits per byte" in page
    assert "T4 L-products, learned" in page


def test_what_was_not_measured_says_why(tuned, tmp_path):
    study, finished, _ = tuned
    out = shutil.copytree(finished, tmp_path / "out")
    for path in (*out.glob("measurements/*"), *out.glob("compressed/*")):
        path.unlink()
    weights = next(run for run in out.glob("runs/*/Std/lr-*") if (run / "model").is_dir()).parent
    for trial in weights.glob("lr-*"):
        shutil.rmtree(trial / "model")
    runs = [replace(run, fields={**run.fields, "hidden_size": -1}) for run in study.runs]
    broken = replace(study, runs=runs, is_timed=True)
    for path in out.glob("runs/*/*/*/run.json"):
        request = json.loads(path.read_text())
        path.write_text(json.dumps({**request, "model": {**request["model"], "hidden_size": -1}}))
    results = Reproduction(broken, out).run()
    assert set(results.failures) == {f"speed of {TUNED}/Std", f"compression of {TUNED}/Std"}
    assert "hidden_size=-1" in results.failures[f"speed of {TUNED}/Std"]
    assert Results.read(out).failures == results.failures


def test_what_nothing_was_trained_for_says_so(tuned, tmp_path):
    study, finished, _ = tuned
    out = shutil.copytree(finished, tmp_path / "out")
    for path in (*out.glob("measurements/*"), *out.glob("compressed/*"), *out.rglob("result.json")):
        path.unlink()
    work = Reproduction(study, out)
    work.prepared = {name: Prepared.open(out / "data" / name) for name in study.data}
    results = work.collect()
    assert set(results.failures.values()) == {"no run that it needs is finished"}
    assert len(results.missing) == len(study.runs)


def test_runs_on_other_data_are_refused(tuned, tmp_path):
    study, finished, _ = tuned
    out = shutil.copytree(finished, tmp_path / "out")
    path = out / "data" / "imdb" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "fingerprint": "0" + manifest["fingerprint"][1:]}))
    with pytest.raises(UserError, match="trained with other data than the study has now"):
        Reproduction(study, out).run()


@pytest.mark.parametrize(("scale", "has_gpu", "count"), [("full", False, 20), ("full", True, 0), ("smoke", False, 0)])
def test_a_run_is_saved_where_it_takes_long(tuned, monkeypatch, tmp_path, scale, has_gpu, count):
    _, finished, _ = tuned
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    work = Reproduction(replace(make_study("paper"), scale=scale), tmp_path)
    work.prepared = {"imdb": Prepared.open(finished / "data" / "imdb")}
    run = work.study.run("imdb-128/Std/seed-42")
    steps, often = steps_of(run, work.prepared["imdb"]), work._recipe(run).checkpoint_steps
    assert steps // often == count


def test_one_failing_run_does_not_stop_the_others(tmp_path):
    study = few(make_study("paper", "smoke"), "Std-1L")
    broken = replace(study.runs[0], fields={**study.runs[0].fields, "num_attention_heads": 3})
    work = Reproduction(replace(study, runs=[broken, *study.runs[1:]]), tmp_path / "out")
    results = work.run()
    assert list(work.errors) == [broken.name]
    assert "num_attention_heads=3" in work.errors[broken.name]
    assert len(results.runs) == len(study.runs) - 1
    assert {(found.group, found.model) for found in results.measurements} == {(r.group, r.model) for r in study.runs}
    assert (results.missing[0].name, results.missing[0].role) == (broken.name, "result")


def test_a_study_that_has_no_time_goes_on_with_the_next_call(tmp_path):
    study = few(make_study("paper", "smoke"), "Std-1L")
    out = tmp_path / "out"
    work = Reproduction(study, out, minutes=0)
    results = work.run()
    assert results.runs == []
    assert {run.reason for run in results.missing} == {NOT_STARTED}
    assert work.unfinished == {run.name for run in study.runs}
    assert not _found(out, "run.json")
    assert work.report(results).is_file()
    work = Reproduction(study, out, minutes=60)
    assert len(work.run().runs) == len(study.runs)
    assert work.unfinished == set()


def test_a_run_that_is_on_when_the_time_is_up_is_saved(tmp_path, monkeypatch):
    out = tmp_path / "out"
    study = few(make_study("paper", "smoke"), "Std-1L")
    runs = [replace(run, recipe=replace(run.recipe, epochs=10**5, max_steps=10**5)) for run in study.runs[:1]]
    monkeypatch.setattr(Pool, "_is_late", lambda pool, by=0.0: not by and bool(_found(out, "metrics.jsonl")))
    work = Reproduction(replace(study, runs=runs), out, minutes=60)
    results = work.run()
    assert work.unfinished == {runs[0].name}
    assert [(run.name, run.reason) for run in results.missing] == [(runs[0].name, STOPPED)]
    assert list(out.glob("runs/*/*/*/checkpoints/step-*"))
    assert Results.read(out) == results
    assert not _workers_in(out)


@pytest.mark.parametrize("name", ["result.json", "predictions/test.npy"])
def test_a_damaged_run_is_refused_before_anything_is_trained(tuned, tmp_path, name):
    study, finished, _ = tuned
    out = shutil.copytree(finished, tmp_path / "out")
    run = study.runs[-1].name
    (out / "runs" / run / name).write_bytes(b"{")
    shutil.rmtree(out / "runs" / study.runs[-2].name)
    with pytest.raises(UserError, match=rf"{run} is damaged .*: delete it to train it again"):
        Reproduction(study, out).run()
    assert not (out / "runs" / study.runs[-2].name).exists()


def test_damaged_points_of_a_compression_are_named(tuned, tmp_path):
    study, finished, _ = tuned
    out = shutil.copytree(finished, tmp_path / "out")
    (path,) = out.glob("compressed/*.json")
    path.write_text("[{")
    with pytest.raises(UserError, match="is damaged: delete it to compress the model again"):
        Reproduction(study, out).run()


def test_compression_waits_for_all_trials(tuned, tmp_path):
    """The best of those that are finished need not be the best in the end."""
    study, finished, _ = tuned
    out = shutil.copytree(finished, tmp_path / "out")
    for path in (*out.glob("compressed/*"), *out.glob("measurements/*")):
        path.unlink()
    for run in study.runs[1:]:
        shutil.rmtree(out / "runs" / run.name)
    results = Reproduction(study, out, only=(study.runs[0].name,)).run()
    assert [run.name for run in results.runs] == [study.runs[0].name]
    assert results.failures == {f"compression of {TUNED}/Std": "no run that it needs is finished"}


def test_the_data_of_a_worker_stay_open(tuned, tmp_path, monkeypatch):
    study, finished, _ = tuned
    read = []
    plain = Prepared.tokenizer
    monkeypatch.setattr(Prepared, "tokenizer", lambda self: read.append(self.path) or plain(self))
    worker.open_data.cache_clear()
    work = Reproduction(study, tmp_path)
    work.prepared = {name: Prepared.open(finished / "data" / name) for name in study.data}
    for run in study.runs[:2]:
        worker.do_train(work._train_job(run))
        made, found = (folder / "runs" / run.name / "model" / "tokenizer.json" for folder in (tmp_path, finished))
        assert made.read_bytes() == found.read_bytes()
        assert RunFolder(tmp_path / "runs" / run.name).result()["test"]["accuracy"] > 0
    assert read == [work.prepared[study.runs[0].data].path]


def test_nothing_matches_the_pattern(tmp_path):
    with pytest.raises(UserError, match="no run of the study matches --only 'sst2\\*'"):
        Reproduction(make_study("paper", "smoke"), tmp_path / "out", only=("sst2*",)).run()


def test_a_missing_data_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="has no folder imdb"):
        Reproduction(make_study("paper", "smoke"), tmp_path / "out", data_dir=tmp_path).run()


def test_a_stopped_study_leaves_no_worker_and_goes_on(tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "lformer.cli", "reproduce", "paper", "--scale", "smoke", "--out", str(out)]
    command += ["--only", "imdb-128/T4-l*"]
    with _started(command) as process:
        _wait_for(lambda: _found(out, "result.json"), process)
        assert _workers_in(out)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert not _workers_in(out)
    finished = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    assert 0 < len(finished) < 5
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in finished.items())
    assert re.search(r"5 runs in .*; prepare \d+ s, train \d+ s, .*, report \d+ s", done.stderr)
    assert f"From prepared tokens to report: {Results.read(out).tokens_to_report:.0f} s" in done.stderr
    assert len(Results.read(out).runs) == 5  # linear and learnable, two seeds, and the one that is repeated


# A study whose runs would take hours.
LONG = """
import sys
from dataclasses import replace
from pathlib import Path
from lformer.studies.claim import only_one
from lformer.studies.planning import steps_of
from lformer.studies.reproduce import Reproduction, make_study

out = Path(sys.argv[1])
study = make_study("paper", "smoke")
runs = [run for run in study.runs if run.model == "Std-1L" and run.group == "imdb-128" and run.is_reported]
runs = [replace(run, recipe=replace(run.recipe, epochs=10**5, max_steps=10**5)) for run in runs]
try:
    Reproduction(replace(study, runs=runs, comparisons=[]), out, workers=2).run()
except ValueError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def killed(tmp_path):
    """The folder of a study that was killed while two workers trained, as a second one was refused."""
    out = tmp_path / "out"
    command = [sys.executable, "-c", LONG, str(out)]
    with _started(command) as process:
        _wait_for(lambda: len(_found(out, "metrics.jsonl")) == 2, process)
        assert len(_workers_in(out)) == 2
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"a study is at work in {out} (process {process.pid})" in second.stderr
    yield out
    for process_id in _workers_in(out):
        os.kill(process_id, signal.SIGKILL)


def test_workers_end_with_a_study_that_is_killed(killed):
    """They would train on beside those of the study when it is started again."""
    study = make_study("paper", "smoke")
    deadline = time.monotonic() + 60
    while _workers_in(killed):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    runs = [RunFolder(path.parent) for path in killed.rglob("run.json")]
    assert len(runs) == 2
    for run in runs:
        assert not run.is_finished
        assert list(run.checkpoints.glob("step-*")), "it was stopped, as by the user, and not cut off"
    assert json.loads((killed / "seconds.json").read_text())["train"] > 0
    started = time.monotonic()
    with only_one(killed, lambda _: None):
        assert time.monotonic() - started < 5
    # The settings that the study has now are others, so that it does not go on: but it got as far as to see that.
    with pytest.raises(UserError, match="other settings"):
        Reproduction(study, killed).run()


@contextmanager
def _started(command):
    """A process that is killed where the test leaves it at work, and whose pipe is closed either way."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _found(out: Path, name: str) -> list[Path]:
    """The files of this name, while a study makes and removes folders; unlike `rglob`, `walk` passes over those."""
    return [Path(folder, name) for folder, _, files in os.walk(out) if name in files]


def _wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _workers_in(out: Path) -> list[int]:
    """Workers are started with the command of their study."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "lformer.studies.worker" in words and str(out) in words:
            found.append(int(entry.parent.name))
    return found


def test_results_that_are_none_are_named(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        Results.read(tmp_path)
    for text, message in (("{", "does not hold"), ("{}", "not the results"), ("[]", "does not hold")):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(UserError, match=message):
            Results.read(tmp_path)
    (tmp_path / FILE).write_text(json.dumps({"format": "lformer-study", "version": 99}))
    with pytest.raises(UserError, match="version 99"):
        Results.read(tmp_path)
    assert not RunFolder(tmp_path).is_started
