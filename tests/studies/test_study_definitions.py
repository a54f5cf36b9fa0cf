"""The studies as they are written down: every row of the paper, and budgets that are equal where they claim to be."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lformer import LFormerConfig, LFormerForSequenceClassification
from lformer.models.summary import multiply_adds
from lformer.settings import UserError
from lformer.studies.controls import MATCHED, rows
from lformer.studies.language import LARGE, RECOMMENDED
from lformer.studies.published import PUBLISHED
from lformer.studies.reproduce import STUDIES, make_study
from lformer.studies.scales import SEEDS
from lformer.train.language_presets import recommended

LANGUAGE = ["language", "language-small"]
SAME_SIZE = [MATCHED, "Dense, one layer", "Dense, shared layers", "Dense, low rank", "FNet"]


def layer_parameters(fields):
    with torch.device("meta"):
        model = LFormerForSequenceClassification(LFormerConfig(vocab_size=10, **fields))
    return sum(p.numel() for name, p in model.named_parameters() if "layers." in name)


def test_every_row_of_the_paper_is_run_with_three_seeds():
    study = make_study("paper")
    for group, published in PUBLISHED.items():
        assert published.keys() <= set(study.rows(group))
        for model in study.rows(group):
            runs = [run for run in study.runs if (run.group, run.model) == (group, model) and run.is_reported]
            assert tuple(run.recipe.seed for run in runs) == SEEDS


def test_the_paper_study_has_the_recipe_of_the_paper():
    study = make_study("paper")
    for run in study.runs:
        recipe = run.recipe
        assert (recipe.learning_rate, recipe.weight_decay, recipe.clip_norm) == (3e-4, 0.01, 1.0)
        assert (recipe.schedule, recipe.warmup_fraction, recipe.final_learning_rate) == ("onecycle", 0.1, 1e-5)
        assert recipe.early_stopping == 0
        assert recipe.epochs == (20 if run.group == "imdb-128" else 5)
        assert recipe.batch_size == (64 if run.group == "ag-news-768" else 128)
        assert not LFormerConfig(**run.fields).paper_counts


@pytest.mark.parametrize(("group", "model", "count"), [
    ("imdb-128", "Std", 793_088),
    ("imdb-128", "Std-1L", 198_272),
    ("imdb-128", "T4-linear", 203_264),
    ("ag-news-256", "Std", 3_159_040),
    ("ag-news-256", "T4-linear", 799_744),
    ("ag-news-768", "Std", 28_351_488),
    ("ag-news-768", "T4-linear", 7_117_824),
])  # fmt: skip
def test_parameters_are_those_of_the_formulas(group, model, count):
    run = next(run for run in make_study("paper").runs if (run.group, run.model) == (group, model))
    assert layer_parameters(run.fields) == count


@pytest.mark.parametrize("width", [128, 256])
@pytest.mark.parametrize("model", SAME_SIZE)
def test_baselines_of_the_same_size_are(model, width):
    found = rows(width)
    assert layer_parameters(found[model]) == pytest.approx(layer_parameters(found["T4"]), rel=0.025)


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("scale", ["full", "smoke"])
def test_every_row_makes_a_model(name, scale):
    study = make_study(name, scale)
    for group in study.groups:
        for model in study.rows(group):
            run = next(run for run in study.runs if (run.group, run.model) == (group, model))
            assert layer_parameters(run.fields) > 0
    for group, model, other in study.comparisons:
        assert {model, other} <= set(study.rows(group))


def test_controls_are_tuned_on_texts_that_are_not_tested():
    study = make_study("controls")
    for run in study.runs:
        fraction = study.data[run.data].settings.validation_fraction
        assert (fraction > 0) == (not run.is_reported)
        for name in run.tuned_by:
            trial = study.run(name)
            assert (trial.group, trial.model, trial.fields) == (run.group, run.model, run.fields)
            assert trial.recipe.seed == SEEDS[0]
        assert len(run.tuned_by) == (3 if run.is_reported else 0)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_models_are_of_one_size(name):
    study = make_study(name)
    for group, about in study.groups.items():
        sizes = {run.model: layer_parameters(run.fields) for run in study.runs if run.group == group}
        reference = sizes[about.reference]
        for model, size in sizes.items():
            if "(equal " not in model:
                assert 0.94 < size / reference < 1.015, (group, model)


@pytest.mark.parametrize("name", LANGUAGE)
def test_the_wider_dense_models_do_as_much_work_as_the_tensor_model(name):
    study = make_study(name)
    group = next(iter(study.groups))
    for kind in ("", ", gated"):
        wider = next(model for model in study.rows(group) if f"dense{kind}, d=" in model and "multiply-adds" in model)
        found = []
        for model in (wider, f"T4 L-products, learned, interleaved{kind}"):
            run = next(run for run in study.runs if (run.group, run.model) == (group, model))
            config = LFormerConfig(vocab_size=260, is_decoder=True, **run.fields)
            found.append(sum(multiply_adds(config, run.recipe.sequence_length).values()))
        assert found[0] == pytest.approx(found[1], rel=0.035)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_models_are_chosen_without_the_test_part(name):
    study = make_study(name)
    assert study.data["enwik8"].splits == ("train", "validation")
    seeds = {run.recipe.seed for run in study.runs if not run.is_reported}
    assert seeds.isdisjoint(run.recipe.seed for run in study.runs if run.is_reported)


def test_the_recommended_row_is_the_recommended_preset():
    run = next(run for run in make_study("language").runs if run.model == RECOMMENDED)
    assert recommended().items() <= run.fields.items()


def test_other_sizes_have_the_rates_of_their_row_by_width():
    study = make_study("language")
    tuned, *others = study.groups
    sizes = {run.group: layer_parameters(run.fields) for run in study.runs if run.model == RECOMMENDED}
    assert [round(sizes[group] / 1e6, 1) for group in study.groups] == [3.1, 0.8, 12.6, 37.8]
    for run in (run for run in study.runs if run.group in others):
        row = study.groups[tuned].reference if run.model == "dense" else run.model
        trials = [study.run(name) for name in run.tuned_by]
        assert {(trial.group, trial.model, trial.role) for trial in trials} == {(tuned, row, "trial")}
        assert run.rate_factor == trials[0].fields["hidden_size"] / run.fields["hidden_size"]
        assert trials[0].recipe == replace(run.recipe, seed=trials[0].recipe.seed)
        width = ("hidden_size", "num_hidden_layers", "num_attention_heads")
        assert {k: v for k, v in run.fields.items() if k not in width} == {
            k: v for k, v in trials[0].fields.items() if k not in width
        }


def test_rows_of_other_budgets_are_other_rows_longer_or_shorter():
    study = make_study("language")
    for name, factor in LARGE.budgets.items():
        mine, theirs = (
            [run for run in study.runs if run.group == LARGE.group and run.model == model]
            for model in (name, name.rpartition(", ")[0])
        )
        for run, other in zip(mine, theirs, strict=True):
            assert run.fields == other.fields
            assert run.recipe == replace(other.recipe, max_steps=2500 * factor)


def test_the_document_counts_the_runs_of_every_study():
    text = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()
    counts = {name: int(count) for name, count in re.findall(r"^\| `([\w-]+)` \|.*\| (\d+) \|$", text, re.MULTILINE)}
    assert counts == {name: len(make_study(name).runs) for name in STUDIES}


def test_an_unknown_study_or_scale_is_named():
    with pytest.raises(UserError, match="no study 'papers'; there are paper, controls, language"):
        make_study("papers")
    with pytest.raises(UserError, match="no scale 'tiny'"):
        make_study("paper", "tiny")
