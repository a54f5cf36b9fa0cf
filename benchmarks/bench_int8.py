"""int8 against float32 and bfloat16 on the CPU: the time of a stack, and the accuracy of a trained classifier.

python benchmarks/bench_int8.py                 # speed
python benchmarks/bench_int8.py --accuracy      # also trains a classifier of width 512 on the embedded names
"""

import argparse
import copy
import statistics
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from harness import RESULTS, facts, interleave, write

from lformer import LFormerConfig, LFormerForSequenceClassification, LFormerModel
from lformer.data import load_data, prepare
from lformer.nn.quantized import quantize_
from lformer.train import PRESETS, train
from lformer.train.evaluation import evaluate
from lformer.train.tasks import make_task

SHAPES = [(1, 128, 768), (8, 128, 768), (1, 128, 1024), (1, 128, 2048)]


def speed(batch: int, length: int, width: int, repeats: int) -> dict[str, Any]:
    torch.manual_seed(0)
    heads = {768: 8, 1024: 16, 2048: 16}[width]
    config = LFormerConfig(
        vocab_size=8, hidden_size=width, num_attention_heads=heads, num_hidden_layers=2, max_position_embeddings=length
    )
    exact = LFormerModel(config).eval()
    whole = quantize_(copy.deepcopy(exact), narrowest=128)
    half = copy.deepcopy(exact).bfloat16()
    x = torch.randn(batch, length, width) * width**-0.5  # as token embeddings are
    with torch.inference_mode():
        samples = interleave(
            {
                "float32": lambda: exact(inputs_embeds=x),
                "int8": lambda: whole(inputs_embeds=x),
                "bfloat16": lambda: half(inputs_embeds=x.bfloat16()),
            },
            repeats,
        )
        wanted = exact(inputs_embeds=x).last_hidden_state
        found = whole(inputs_embeds=x).last_hidden_state
        rounded = half(inputs_embeds=x.bfloat16()).last_hidden_state
    row = {name: statistics.median(values) * 1e3 for name, values in samples.items()}
    return {
        "shape": f"{batch}x{length}x{width}",
        "milliseconds": row,
        "int8_speedup": row["float32"] / row["int8"],
        "bfloat16_speedup": row["float32"] / row["bfloat16"],
        "output_error": float((found - wanted).norm() / wanted.norm()),
        "bfloat16_output_error": float((rounded - wanted).norm() / wanted.norm()),
    }


def accuracy(folder: Path, epochs: int) -> dict[str, Any]:
    """A classifier whose slices are wide enough to be quantised, on the language of names; test accuracy of both."""
    preset = PRESETS["quickstart"]()
    assert preset.source is not None
    options = {name: value for name, value in asdict(preset.data).items() if name != "validation_fraction"}
    prepared = prepare(load_data(preset.source), folder / "data", **options)
    model = {**preset.model, "hidden_size": 512, "tube_length": 2}
    recipe = replace(preset.recipe, epochs=epochs, learning_rate=5e-4)
    train(prepared, folder / "run", model=model, recipe=recipe, quiet=True)
    exact = LFormerForSequenceClassification.from_pretrained(folder / "run" / "model").eval()
    task = make_task("classification", prepared, recipe)
    accelerator = Accelerator(cpu=True)
    exactly = evaluate(exact, task, prepared.split("test"), accelerator)
    roughly = evaluate(quantize_(copy.deepcopy(exact)), task, prepared.split("test"), accelerator)
    assert exactly.predictions is not None
    assert roughly.predictions is not None
    return {
        "test_accuracy": {"float32": exactly.scores["accuracy"], "int8": roughly.scores["accuracy"]},
        "same_prediction": float((exactly.predictions == roughly.predictions).mean()),
        "epochs": epochs,
        "hidden_size": 512,
        "tube_length": 2,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS / "int8-cpu.json")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"facts": facts(("torch",)), "speed": []}
    for shape in SHAPES:
        row = speed(*shape, arguments.repeats)
        result["speed"].append(row)
        print(
            f"{row['shape']:>12}: int8 {row['int8_speedup']:.2f}x, bf16 {row['bfloat16_speedup']:.2f}x of float32, "
            f"output error {row['output_error']:.2%}, bf16 {row['bfloat16_output_error']:.2%}"
        )
    if arguments.accuracy:
        with tempfile.TemporaryDirectory() as folder:
            result["accuracy"] = accuracy(Path(folder), arguments.epochs)
        print(result["accuracy"])
    write(arguments.out, result)


if __name__ == "__main__":
    main()
