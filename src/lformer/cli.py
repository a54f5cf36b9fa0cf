"""The command line: verb -> function."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lformer.models import LFormerConfig
from lformer.models.summary import Summary
from lformer.settings import UserError, apply_settings
from lformer.version import __version__

# What --set may change: the fields of the configuration, and the one that Hugging Face derives from its labels.
CONFIG_TYPES = {**LFormerConfig.__annotations__, "num_labels": int}

app = typer.Typer(
    name="lformer",
    help="Tensor Transformers under the L-product.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The entry point: a user's mistake is one line on stderr and exit code 2; a bug keeps its traceback."""
    try:
        app()
    except UserError as error:
        Console(stderr=True, highlight=False).print(f"[red]lformer:[/red] {error}", soft_wrap=True)
        raise SystemExit(2) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lformer {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def info(
    model: Annotated[
        Path | None,
        typer.Argument(help="A folder with a config.json (a saved model or a run); the defaults if left out."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a field of the configuration.")
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=1, help="Tokens in a sequence; the longest input if left out.")
    ] = None,
) -> None:
    """What a model costs: parameters by part, multiply-adds per token, memory, beside the dense model of its width.

    Example: lformer info --set hidden_size=768 --set num_attention_heads=8 --set tube_length=4 --length 128
    """
    Console().print(_summary_table(_load_config(model, settings or []).summary(length)))


def _load_config(folder: Path | None, settings: list[str]) -> LFormerConfig:
    values: dict[str, Any] = {}
    if folder is not None:
        if not (folder / "config.json").is_file():
            raise UserError(f"{folder} has no config.json: give a folder that save_pretrained wrote")
        values = LFormerConfig.get_config_dict(folder)[0]
        if values.get("model_type") != "lformer":
            raise UserError(
                f"{folder / 'config.json'} is of a model of type {values.get('model_type')!r}, not 'lformer'"
            )
    values = apply_settings(values, settings, CONFIG_TYPES)
    try:
        return LFormerConfig.from_dict(values)
    except ValueError as error:
        raise UserError(str(error)) from None


def _summary_table(summary: Summary) -> Table:
    table = Table(title=f"{summary.length} tokens")
    table.add_column("")
    for name in (f"T{summary.config.tube_length} ({summary.config.transform})", "dense", "ratio"):
        table.add_column(name, justify="right")
    for name, tensor, dense in summary.rows():
        form = ",.1f" if "(MB)" in name else ",.0f"
        ratio = f"{tensor / dense:.3f}" if dense else "-"
        table.add_row(name, f"{tensor:{form}}", f"{dense:{form}}", ratio, end_section="total" in name)
    return table


if __name__ == "__main__":
    main()
