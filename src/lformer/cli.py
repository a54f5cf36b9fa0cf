"""The command line: verb -> function."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from transformers.utils.logging import disable_progress_bar

from lformer import verbs
from lformer.cli_bench import bench
from lformer.data_request import DataRequest
from lformer.studies.generation import Sampling
from lformer.version import __version__

app = typer.Typer(
    name="lformer",
    help="Tensor Transformers under the L-product.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench, name="bench")

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be given many times.")
]
DataDir = Annotated[Path | None, typer.Option(help="Folder or file with your data: parquet, csv, tsv, jsonl, text.")]
Source = Annotated[str | None, typer.Option(help="A named data set: imdb, ag_news or cldr.")]
PresetName = Annotated[str | None, typer.Option("--preset", help="A named starting point; see lformer presets.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run, or of a saved model.")]
TextColumns = Annotated[list[str] | None, typer.Option("--text", help="Column with text; may be given many times.")]
LabelColumn = Annotated[str, typer.Option("--label", help="Column with the label.")]
TaskName = Annotated[
    str | None, typer.Option(help="classification, masked-lm, causal-lm or translation; from the data if left out.")
]


def main() -> None:
    """The entry point: a user's mistake is one line on stderr and exit code 2; --debug shows where it came from."""
    debug = "--debug" in sys.argv
    disable_progress_bar()  # transformers shows one for every file that it loads or saves
    try:
        app()
    except verbs.USER_ERRORS as error:
        if debug:
            raise
        Console(stderr=True, highlight=False, markup=False).print(f"lformer: {error}", soft_wrap=True)
        raise SystemExit(verbs.exit_code(error)) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lformer {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


@app.command()
def quickstart(
    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("runs/quickstart"),
) -> None:
    """Train a dense and a tensor Transformer on embedded data and compare them: about two minutes on a CPU.

    The task is to tell the language of a name (of a territory, a language, a script, a currency) among 16 languages.
    """
    verbs.quickstart(out)


@app.command()
def prepare(
    out: Annotated[Path, typer.Option(help="Folder for the token cache.")],
    source: Source = None,
    data_dir: DataDir = None,
    preset: PresetName = None,
    task: TaskName = None,
    text: TextColumns = None,
    label: LabelColumn = "label",
    settings: Settings = None,
) -> None:
    """Read text, train the tokenizer on the training split, and write a token cache that `train --prepared` takes.

    Example: lformer prepare --source imdb --data-dir data/imdb --out cache/imdb --set max_length=128
    """
    verbs.prepare(out, DataRequest(source, data_dir, preset, task, text, label, settings or []))


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    source: Source = None,
    data_dir: DataDir = None,
    prepared: Annotated[Path | None, typer.Option(help="A token cache that `prepare` wrote, in place of data.")] = None,
    preset: PresetName = None,
    task: TaskName = None,
    text: TextColumns = None,
    label: LabelColumn = "label",
    settings: Settings = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
) -> None:
    """Train a model. The recipe is the paper's unless a preset or --set says otherwise.

    Examples:
    lformer train --data-dir data/imdb --source imdb --preset paper-imdb --out runs/imdb
    lformer train --data-dir mine.csv --out runs/mine --set epochs=3 --set learning_rate=1e-3 --set tube_length=8
    torchrun --nproc-per-node 2 -m lformer.cli train --prepared cache/imdb --out runs/imdb
    """
    request = DataRequest(source, data_dir, preset, task, text, label, settings or [])
    result = verbs.train(out, request, prepared=prepared, resume=resume)
    if result is not None:
        Console().print(_result_table(out, result))


@app.command()
def evaluate(
    run: RunPath,
    prepared: Annotated[Path | None, typer.Option(help="A token cache; the run's own if left out.")] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    bleu: Annotated[bool, typer.Option("--bleu", help="Also BLEU: translate greedily and by 4 beams.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences that --bleu translates at a time.")] = 64,
) -> None:
    """Scores of a trained model on a split of prepared data, as JSON.

    Example: lformer evaluate runs/translate --bleu
    """
    found = verbs.evaluate(run, prepared, split, with_bleu=bleu, batch_size=batch_size)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False))


@app.command()
def predict(
    run: RunPath,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts; from standard input, one a line, if left out.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file with one text a line.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with all probabilities.")] = False,
) -> None:
    """Classify texts with a trained model.

    Example: lformer predict runs/quickstart/t4 "Vereinigtes Königreich" "Royaume-Uni"
    """
    for line in verbs.predict(run, verbs.read_texts(texts, file)):
        if as_json:
            typer.echo(json.dumps(line, ensure_ascii=False))
        else:
            typer.echo(f"{line['label']}\t{line['probability']:.3f}\t{line['text']}")


@app.command()
def generate(
    run: RunPath,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[PROMPT]", help="The text to go on from, or to translate; - reads standard input."),
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="The same as an option.")] = None,
    file: Annotated[Path | None, typer.Option(help="A file with the prompt, or one sentence a line.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 100,
    temperature: Annotated[
        float | None,
        typer.Option(min=0.0, help="0 takes the likeliest token. 0.8 if left out; 0 to translate and with beams."),
    ] = None,
    top_k: Annotated[int, typer.Option(min=0, help="Sample from this many likeliest tokens; 0 from all.")] = 50,
    top_p: Annotated[float, typer.Option(help="Sample from the likeliest tokens of this total probability.")] = 1.0,
    num_beams: Annotated[int, typer.Option(min=1, help="Search for the likeliest text with so many candidates.")] = 1,
    seed: int = 0,
) -> None:
    """Continue a text with a trained language model, or translate with an encoder-decoder.

    On a terminal the text appears as it is made. Without a prompt a language model begins a new line.

    Examples:
    lformer generate runs/shakespeare "ROMEO:" --max-new-tokens 300 --temperature 0.7
    lformer generate runs/translate --file captions.en --num-beams 4
    """
    sampling = Sampling(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        num_beams=num_beams,
        seed=seed,
    )
    given = verbs.read_prompt([text, prompt], file)
    verbs.generate(run, given, sampling, lambda piece: typer.echo(piece, nl=False), stream=sys.stdout.isatty())


@app.command()
def reproduce(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="paper, controls, language or language-small.")],
    out: Annotated[Path | None, typer.Option(help="Folder for runs and results; runs/STUDY if left out.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with a folder for each data set: imdb, ag_news, enwik8. Else the hub.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the token caches; those that are there need no --data-dir.")
    ] = None,
    scale: Annotated[str, typer.Option(help="full, or smoke: every row in miniature, on any machine.")] = "full",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs side by side; 4 on a GPU and 1 on a CPU if left out.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Runs whose name matches, such as 'imdb*/T4*'; may be given again."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Stop after so many, write results and report of what is finished, and leave the rest to a"
            " later call.",
        ),
    ] = None,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Only write the token caches: to train where there is no text.")
    ] = False,
) -> None:
    """Run a whole study: every run that is not finished, then the results and the report.

    A study that was stopped goes on with the same command. Without --data-dir the miniature uses embedded data.

    Examples:
    lformer reproduce paper --data-dir data --out runs/paper
    lformer reproduce paper --data-dir data --cache cache --prepare-only
    lformer reproduce paper --cache cache --minutes 9
    """
    folder = out or Path("runs") / study
    verbs.reproduce(study, folder, data_dir, cache, scale, workers, only or ["*"], minutes, prepare_only)


@app.command()
def export(
    run: RunPath, out: Annotated[Path, typer.Option(help="The ONNX file to write.")] = Path("model.onnx")
) -> None:
    """Write a trained model as ONNX, checked against PyTorch in onnxruntime."""
    typer.echo(f"wrote {verbs.export(run, out)}")


@app.command()
def info(
    model: Annotated[
        Path | None, typer.Argument(help="Folder of a saved model or a run; the default configuration if left out.")
    ] = None,
    settings: Settings = None,
    length: Annotated[
        int | None, typer.Option(min=1, help="Tokens in a sequence; the longest input if left out.")
    ] = None,
) -> None:
    """What a model costs: parameters by part, multiply-adds per token, memory, beside the dense model of its width.

    Example: lformer info --set hidden_size=768 --set num_attention_heads=8 --set tube_length=4 --length 128
    """
    Console().print(_summary_table(verbs.load_config(model, settings or []).summary(length)))


@app.command()
def presets() -> None:
    """The named starting points for --preset."""
    table = Table()
    table.add_column("preset")
    table.add_column("")
    for name, about in verbs.preset_descriptions().items():
        table.add_row(name, about)
    Console().print(table)


@app.command()
def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Studies (folders with results.json), or runs.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to; report/ in the study, or here for runs, if left out.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write the tables of the studies to this one Markdown file; more only with --out."),
    ] = None,
) -> None:
    """Make tables, figures and a page to read from the results of studies, or a page that compares runs.

    Examples:
    lformer report runs/paper
    lformer report runs/paper runs/controls --markdown docs/results.md
    lformer report runs/quickstart/std runs/quickstart/t4 --out comparison
    """
    for path in verbs.report(paths, out, title, markdown):
        typer.echo(f"wrote {path}")


def _summary_table(summary: Any) -> Table:
    table = Table(title=f"{summary.length} tokens")
    table.add_column("")
    for name in (f"T{summary.config.tube_length} ({summary.config.transform})", "dense", "ratio"):
        table.add_column(name, justify="right")
    for name, tensor, dense in summary.rows():
        form = ",.1f" if "(MB)" in name else ",.0f"
        ratio = f"{tensor / dense:.3f}" if dense else "-"
        table.add_row(name, f"{tensor:{form}}", f"{dense:{form}}", ratio, end_section="total" in name)
    return table


def _result_table(out: Path, result: dict[str, Any]) -> Table:
    table = Table(title=str(out))
    table.add_column("")
    table.add_column("", justify="right")
    for split in ("validation", "test"):
        for name, value in result.get(split, {}).items():
            table.add_row(f"{split} {name.replace('_', ' ')}", f"{value:.4f}")
    for name in ("parameters", "layer_parameters", "steps", "train_seconds", "tokens_per_second"):
        table.add_row(name.replace("_", " "), f"{result[name]:,}")
    return table


if __name__ == "__main__":
    main()
