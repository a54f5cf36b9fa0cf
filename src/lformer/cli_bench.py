"""The command line of `lformer bench`: speed on this machine."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lformer.settings import UserError

Shapes = Annotated[
    str | None,
    typer.Option(metavar="BxTxd,...", help="Shapes, as in 64x128x768,8x128x256; a standard list if left out."),
]
Tubes = Annotated[
    str | None, typer.Option("--p", metavar="P,...", help="Tube length, or several: 4 or 1,2,4; 4 if left out.")
]
Heads = Annotated[
    int | None, typer.Option(min=1, help="Heads, raised to a multiple of p; 4 to 16 by the width if left out.")
]
Dropout = Annotated[float, typer.Option(min=0.0, max=0.9)]
Dtype = Annotated[str | None, typer.Option(help="bf16, fp16 or fp32; bf16 on a GPU, fp32 on a CPU if left out.")]
Device = Annotated[str | None, typer.Option(help="cuda or cpu; the GPU if there is one.")]
Backends = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="torch, triton, auto; all that the device has if left out.")
]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="The tensor side, compiled or not; both if left out.")
]
DenseModes = Annotated[
    str, typer.Option(metavar="MODE,...", help="eager, default, max-autotune-no-cudagraphs; the fastest is 'dense'.")
]
Peers = Annotated[bool, typer.Option("--peers/--no-peers", help="Also time torch.nn's encoder and BERT.")]
Sweep = Annotated[str | None, typer.Option(metavar="d|p", help="Vary the width or the tube length.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="Samples of every candidate.")]
Quick = Annotated[bool, typer.Option("--quick", help="A few short samples: to see that it works.")]
SideBySide = Annotated[
    bool, typer.Option("--side-by-side", help="Prepare all shapes at once, in a process each; time one at a time.")
]
Out = Annotated[Path | None, typer.Option(help="JSON file to write; the plots stand beside it.")]

bench = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@bench.command()
def loop(
    hidden_size: Annotated[int, typer.Option(min=4)] = 256,
    tube_length: Annotated[int, typer.Option(min=1)] = 4,
    steps: Annotated[int, typer.Option(min=1)] = 8,
    batch_size: Annotated[int, typer.Option(min=1)] = 128,
) -> None:
    """The share of the training loop's time that is forward, backward and optimizer, at T=128."""
    import torch

    from lformer.studies.bench.loop import bench_loop

    ways = [False, True] if torch.cuda.is_available() else [False]  # a captured step beside the ordinary one
    rows = [bench_loop(hidden_size, tube_length, steps, batch_size, captured=captured) for captured in ways]
    typer.echo(json.dumps(rows, indent=2))
    plain, *captured = rows
    typer.echo(f"{plain['share']:.1%} of the loop is forward, backward and optimizer")
    for found in captured:
        faster = plain["loop_seconds_per_step"] / found["loop_seconds_per_step"]
        typer.echo(f"captured in a CUDA graph, a step of the loop is {faster:.1f} times faster")


@bench.command()
def layer(
    shapes: Shapes = None,
    p: Tubes = None,
    heads: Heads = None,
    dropout: Dropout = 0.0,
    dtype: Dtype = None,
    device: Device = None,
    backends: Backends = None,
    compile_tensor: Compile = None,
    dense_modes: DenseModes = "eager,default",
    peers: Peers = True,
    sweep: Sweep = None,
    rounds: Rounds = None,
    quick: Quick = False,
    side_by_side: SideBySide = False,
    out: Out = None,
) -> None:
    """Dense against tensor for one encoder layer: forward pass and training step, memory, and the machine's limit.

    Examples:
    lformer bench layer --p 4 --out results/layer.json
    lformer bench layer --shapes 8x128x768 --p 2,4,8 --no-peers
    lformer bench layer --sweep d --out results/widths.json
    """
    options = {**locals()}
    _compare("layer", **options)


@bench.command()
def model(
    layers: Annotated[int, typer.Option(min=1, help="Layers of the stack.")] = 4,
    shapes: Shapes = None,
    p: Tubes = None,
    heads: Heads = None,
    dropout: Dropout = 0.0,
    dtype: Dtype = None,
    device: Device = None,
    backends: Backends = None,
    compile_tensor: Compile = None,
    dense_modes: DenseModes = "eager,default",
    peers: Peers = True,
    sweep: Sweep = None,
    rounds: Rounds = None,
    quick: Quick = False,
    side_by_side: SideBySide = False,
    out: Out = None,
) -> None:
    """Dense against tensor for a stack of encoder layers, folding and unfolding included.

    Example: lformer bench model --layers 6 --p 4 --out results/model.json
    """
    options = {**locals()}
    _compare("model", **options)


@bench.command()
def generate(
    hidden_size: Annotated[int, typer.Option(min=4)] = 768,
    layers: Annotated[int, typer.Option(min=1)] = 12,
    p: Annotated[int, typer.Option("--p", min=2, help="Tube length.")] = 4,
    vocab_size: Annotated[int, typer.Option(min=8)] = 260,
    batches: Annotated[str, typer.Option(metavar="N,...", help="Texts that are continued together.")] = "1,32",
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 128,
    new: Annotated[int, typer.Option(min=2, help="Tokens that are generated.")] = 128,
    device: Device = None,
    dtype: Dtype = None,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Also time transformers' GPT-2.")] = True,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Also both sides compiled, with a static cache.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Tokens per second of a language model that generates from its cache: tensor against dense of equal width.

    Example: lformer bench generate --hidden-size 768 --out results/generate.json
    """
    options = {**locals()}
    from lformer.studies.bench.generate import GenerateOptions, bench_generate

    options["compile"] = options.pop("compiled")
    options["batches"] = _sizes(batches)
    bench_generate(options.pop("out"), GenerateOptions(**options))


@bench.command()
def plot(
    result: Annotated[Path, typer.Argument(metavar="JSON", help="What bench layer or bench model wrote.")],
) -> None:
    """Draw the result of a bench again, as PNG and SVG beside it."""
    from lformer.studies.bench.plots import write_plots

    for path in write_plots(result):
        typer.echo(f"wrote {path}")


def _compare(kind: str, *, out: Path | None, **options: Any) -> None:
    """The options are those of `BenchOptions`."""
    from lformer.studies.bench.command import BenchOptions, run

    run(kind, out, BenchOptions(**options))


def _sizes(text: str) -> tuple[int, ...]:
    """Of batches, as --batches has them."""
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise UserError(f"--batches {text}: write sizes of at least 1, as in 1,32")
    return sizes
