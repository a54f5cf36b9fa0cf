"""transformers.Trainer: it learns, resumes where it stopped, and weighs accumulated batches rightly."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from lformer import LFormerForCausalLM, LFormerForConditionalGeneration, LFormerForSequenceClassification

from . import tiny


def classifier():
    return tiny.model(LFormerForSequenceClassification, vocab_size=len(tiny.tokenizer()), num_labels=2)


def texts():
    encoded = tiny.tokenizer()(list(tiny.SENTENCES), padding=True)
    columns = zip(encoded["input_ids"], encoded["attention_mask"], tiny.LABELS, strict=True)
    return [{"input_ids": ids, "attention_mask": mask, "labels": label} for ids, mask, label in columns]


def arguments(folder, **changes):
    usual = {
        "output_dir": str(folder),
        "max_steps": 20,
        "per_device_train_batch_size": 4,
        "learning_rate": 5e-3,
        "lr_scheduler_type": "constant",
        "save_strategy": "no",
        "logging_steps": 5,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 3,
    }
    return TrainingArguments(**{**usual, **changes})


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_it_learns_and_evaluates(tmp_path):
    model = classifier()
    trainer = Trainer(
        model,
        arguments(tmp_path, max_steps=40, gradient_checkpointing=True),
        train_dataset=texts(),
        eval_dataset=texts(),
        compute_metrics=lambda result: {"accuracy": float((result.predictions.argmax(-1) == result.label_ids).mean())},
    )
    trainer.train()
    assert losses(trainer)[-1] < losses(trainer)[0] / 4
    assert trainer.evaluate()["eval_accuracy"] == 1.0


def test_resuming_gives_the_run_that_was_not_stopped(tmp_path):
    whole = classifier()
    Trainer(whole, arguments(tmp_path / "whole"), train_dataset=texts()).train()
    half = arguments(tmp_path / "half", save_strategy="steps", save_steps=10)
    Trainer(classifier(), half, train_dataset=texts()).train()
    resumed = Trainer(classifier(), half, train_dataset=texts())
    resumed.train(resume_from_checkpoint=str(tmp_path / "half" / "checkpoint-10"))
    assert resumed.state.global_step == 20
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value, msg=name)


@pytest.mark.parametrize("cls", [LFormerForSequenceClassification, LFormerForCausalLM, LFormerForConditionalGeneration])
def test_two_accumulated_batches_are_one_of_twice_the_size(cls, tmp_path):
    batch = tiny.batch(cls, 8, labels=True)
    rows = [{name: value[index] for name, value in batch.items()} for index in range(8)]
    moved = []
    for size, steps in ((8, 1), (4, 2)):
        model = tiny.model(cls)
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, "max_steps": 1}
        trainer = Trainer(model, arguments(tmp_path, optim="sgd", max_grad_norm=0.0, **options), train_dataset=rows)
        trainer.train()
        moved.append(model.state_dict())
    for name, value in moved[0].items():
        torch.testing.assert_close(moved[1][name], value, atol=1e-6, rtol=1e-5, msg=name)
