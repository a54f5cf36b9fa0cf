"""`lformer bench layer` and `bench model`: tables, JSON and plots of tiny shapes, and what becomes of failures."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lformer.cli import main
from lformer.studies.bench import candidates as candidates_module
from lformer.studies.bench import entrants, machine
from lformer.studies.bench.candidates import Candidate
from lformer.studies.bench.command import BenchOptions, make_request
from lformer.studies.bench.compare import compare, summarise
from lformer.studies.bench.machine import Machine
from lformer.studies.bench.plots import write_plots
from lformer.studies.bench.table import console, shape_table

EAGER = ("--quick", "--device", "cpu", "--dense-modes", "eager", "--no-compile")
MEASURES = ("forward", "training")
Bench = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs `lformer bench`; returns exit code, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lformer", "bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return call


def request_for(kind: str = "layer", **options: Any) -> Any:
    defaults: dict[str, Any] = {"shapes": "2x6x16", "dense_modes": "eager", "compile_tensor": False, "peers": False}
    return make_request(kind, BenchOptions(**{**defaults, "device": "cpu", "quick": True, **options}))


def check_result(result: dict[str, Any]) -> None:
    """Every field is there, and ratios and rates follow from the medians."""
    assert set(result) == {"format", "kind", "sweep", "environment", "settings", "shapes"}
    facts = result["environment"]
    assert {"date", "command", "commit", "device", "cpu", "threads", "packages", "load_before"} <= set(facts)
    for found in result["shapes"]:
        rows = found["rows"]
        for measure in MEASURES:
            dense = min(row[measure]["seconds"]["median"] for row in rows if row["family"] == "dense")
            for row in rows:
                timed = row[measure]
                if timed["seconds"] is None:
                    assert timed["reason"]
                    assert timed["ratio"] is None
                    continue
                median = timed["seconds"]["median"]
                assert set(timed["seconds"]) == {"median", "min", "max", "count"}
                assert timed["seconds"]["min"] <= median <= timed["seconds"]["max"]
                assert timed["seconds"]["count"] == result["settings"]["plan"]["rounds"]
                assert timed["ratio"] == pytest.approx(dense / median)
                assert timed["flops_per_second"] == pytest.approx(timed["flops"] / median)
                assert timed["bytes_per_second"] == pytest.approx(timed["bytes"] / median)
                ceilings = found["ceilings"]
                least = max(
                    timed["flops"] / ceilings["flops_per_second"], timed["bytes"] / ceilings["bytes_per_second"]
                )
                assert timed["share_of_limit"] == pytest.approx(least / median)
            for p, best in found["headlines"].items():
                auto = [
                    row[measure]["seconds"]["median"]
                    for row in rows
                    if (row["family"], row["backend"], row["tube_length"]) == ("tensor", "auto", int(p))
                ]
                assert best[measure]["ratio"] == pytest.approx(dense / min(auto))


@pytest.mark.parametrize(("kind", "options"), [("layer", []), ("model", ["--layers", "2", "--dropout", "0.1"])])
def test_the_command_prints_tables_and_writes_json_and_plots(
    bench: Bench, tmp_path: Path, kind: str, options: list[str]
) -> None:
    out = tmp_path / "results" / "found.json"
    code, printed, progress = bench(kind, *EAGER, *options, "--shapes", "2x6x16,1x4x24", "--p", "1,4", "--out", out)
    assert code == 0
    assert f"{kind} 2x6x16" in printed
    assert "p=4 against dense: forward" in printed
    assert "2x6x16" in progress
    result = json.loads(out.read_text())
    check_result(result)
    names = {(row["name"], row["backend"]) for row in result["shapes"][0]["rows"]}
    tensors = {(f"tensor p={p}", backend) for p in (1, 4) for backend in ("torch", "auto")}
    assert names == {("dense", "torch"), ("torch.nn", "torch"), ("BERT", "torch"), *tensors}
    assert all(row[measure]["seconds"] for row in result["shapes"][1]["rows"] for measure in MEASURES)
    assert {path.name for path in out.parent.iterdir()} == {"found.json", "found.png", "found.svg"}
    layers = 2 if kind == "model" else 1
    counts = {row["name"]: row["parameters"] for row in result["shapes"][0]["rows"]}
    dense = layers * (12 * 16 * 16 + 13 * 16)
    assert counts["dense"] == counts["tensor p=1"] == counts["torch.nn"] == counts["BERT"] == dense
    assert counts["tensor p=4"] == layers * (3 * 16 * 16 + 13 * 16)


@pytest.mark.parametrize("sweep", ["d", "p"])
def test_a_sweep_is_drawn_from_the_json_alone(bench: Bench, tmp_path: Path, sweep: str) -> None:
    out = tmp_path / "sweep.json"
    shapes = "1x2x128" if sweep == "d" else "1x2x32"
    assert bench("layer", *EAGER, "--no-peers", "--sweep", sweep, "--shapes", shapes, "--out", out)[0] == 0
    result = json.loads(out.read_text())
    check_result(result)
    points = [found["shape"]["hidden_size"] for found in result["shapes"]]
    assert (points, list(result["shapes"][0]["headlines"])) == (
        ([128, 256, 512], ["4"]) if sweep == "d" else ([32], ["1", "2", "4"])
    )
    drawn = (tmp_path / "sweep.svg").read_text()
    assert ("width d" if sweep == "d" else "tube length p") in drawn
    for name in ("sweep.svg", "sweep.png"):
        (tmp_path / name).unlink()
    assert bench("plot", out)[0] == 0
    assert (tmp_path / "sweep.svg").read_text() == drawn
    assert (tmp_path / "sweep.png").stat().st_size > 1000


def test_a_compiled_candidate_computes_the_same() -> None:
    (found,) = compare(request_for(backends="torch", compile_tensor=None), None, lambda found: None)["shapes"]
    modes = [(row["family"], row["mode"]) for row in found["rows"]]
    assert modes == [("dense", "eager"), ("tensor", "eager"), ("tensor", "default")]
    assert all(row[measure]["seconds"] for row in found["rows"] for measure in MEASURES)
    assert found["rows"][1]["output_difference"] == 0 < found["rows"][2]["output_difference"] < 1e-6


def fake_row(family: str, backend: str, mode: str, forward: float, training: float) -> dict[str, Any]:
    found: dict[str, Any] = {"family": family, "backend": backend, "mode": mode, "tube_length": 4}
    for measure, median in (("forward", forward), ("training", training)):
        found[measure] = {"seconds": {"median": median}, "ratio": None}
    return found


def test_the_baseline_is_the_fastest_dense_and_the_headline_the_fastest_auto() -> None:
    rows = [
        fake_row("dense", "torch", "eager", 6.0, 8.0),
        fake_row("dense", "torch", "default", 4.0, 10.0),
        fake_row("tensor", "torch", "eager", 1.0, 1.0),
        fake_row("tensor", "auto", "eager", 2.0, 5.0),
        fake_row("tensor", "auto", "default", 3.0, 4.0),
        fake_row("peer", "torch", "eager", 0.5, 0.5),
    ]
    found = summarise(request_for().cases[0], rows)
    assert [found["baseline"][measure]["row"] for measure in MEASURES] == [1, 0]
    assert [found["headlines"]["4"][measure]["row"] for measure in MEASURES] == [3, 4]
    assert [found["headlines"]["4"][measure]["ratio"] for measure in MEASURES] == [4 / 2, 8 / 4]
    assert [row["forward"]["ratio"] for row in rows] == [4 / 6, 1, 4, 2, 4 / 3, 8]


def test_failures_are_rows_and_never_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    real = candidates_module._tensor

    def sometimes(case: Any, machine: Any, p: int, backend: str, mode: str) -> Any:
        if backend == "triton":
            raise ValueError("backend='triton': no kernels here\nand more")
        return real(case, machine, p, backend, mode)

    monkeypatch.setattr(candidates_module, "_tensor", sometimes)
    (found,) = compare(request_for(backends="torch,triton,auto"), None, lambda found: None)["shapes"]
    failed = next(row for row in found["rows"] if row["backend"] == "triton")
    for measure in MEASURES:
        assert failed[measure]["seconds"] is None
        assert failed[measure]["reason"] == "ValueError: backend='triton': no kernels here"
    assert [bool(row["forward"]["seconds"]) for row in found["rows"]] == [True, True, False, True]
    assert found["headlines"]["4"]["forward"]["backend"] == "auto"
    printer = console()
    with printer.capture() as text:
        printer.print(shape_table(found, {"dtype": "float32", "dropout": 0.0}))
    assert "tensor p=4 [1]" in text.get()
    assert "[1] ValueError: backend='triton': no kernels here" in text.get()


def test_a_training_step_may_fail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        def step() -> None:
            raise RuntimeError("no backward pass")

        return step

    monkeypatch.setattr(entrants, "_training", broken)
    (found,) = compare(request_for(), None, lambda found: None)["shapes"]
    assert all(row["training"]["reason"] == "RuntimeError: no backward pass" for row in found["rows"])
    assert all(row["forward"]["seconds"] for row in found["rows"])
    assert found["baseline"]["training"] is None
    assert found["headlines"]["4"]["training"] is None


def test_a_fast_wrong_kernel_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    real = candidates_module._tensor

    def wrong(case: Any, machine: Any, p: int, backend: str, mode: str) -> Any:
        built = real(case, machine, p, backend, mode)
        if backend == "auto":
            with torch.no_grad():
                next(built.module.parameters()).add_(0.5)
        return built

    monkeypatch.setattr(candidates_module, "_tensor", wrong)
    (found,) = compare(request_for(), None, lambda found: None)["shapes"]
    (row,) = [row for row in found["rows"] if row["backend"] == "auto"]
    assert row["forward"]["seconds"] is row["training"]["seconds"] is None
    assert "the output differs by" in row["training"]["reason"]


@pytest.mark.parametrize("factor", [1.01, float("nan")])
def test_a_fast_wrong_backward_pass_is_no_result(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    real = candidates_module._tensor

    def wrong(case: Any, machine: Any, p: int, backend: str, mode: str) -> Any:
        built = real(case, machine, p, backend, mode)
        if backend == "auto":
            next(built.module.parameters()).register_hook(lambda gradient: factor * gradient)
        return built

    monkeypatch.setattr(candidates_module, "_tensor", wrong)
    (found,) = compare(request_for(), None, lambda found: None)["shapes"]
    (row,) = [row for row in found["rows"] if row["backend"] == "auto"]
    assert row["forward"]["seconds"] is row["training"]["seconds"] is None
    what = "is not finite" if factor != factor else "differs by 0.01 from"
    assert f"the gradient of attention.query_key_value.weight {what}" in row["training"]["reason"]


def test_gradients_are_compared_without_dropout() -> None:
    (found,) = compare(request_for(peers=True), None, lambda found: None)["shapes"]
    assert [row["gradient_difference"] is None for row in found["rows"]] == [False, False, False, True, True]
    assert all(row["gradient_difference"] < 1e-6 for row in found["rows"][:3])
    (found,) = compare(request_for(dropout=0.1), None, lambda found: None)["shapes"]
    assert all(row["gradient_difference"] is None for row in found["rows"])
    assert all(row["training"]["seconds"] for row in found["rows"])


def test_products_in_tensorfloat_are_compared_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu, on_cpu = (Machine(torch.device(name), torch.float32) for name in ("cuda", "cpu"))
    assert on_gpu.product_dtype == on_cpu.product_dtype == torch.float32
    monkeypatch.setattr(machine, "allows_tf32", lambda: True)
    assert (on_gpu.product_dtype, on_cpu.product_dtype) == (torch.float16, torch.float32)
    assert Machine(torch.device("cuda"), torch.bfloat16).product_dtype == torch.bfloat16


def test_a_compiled_candidate_without_a_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    (found,) = compare(request_for(dense_modes="eager,default"), None, lambda found: None)["shapes"]
    assert "C++ compiler" in found["rows"][1]["forward"]["reason"]
    assert found["baseline"]["forward"]["mode"] == "eager"


def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    shown = []

    def stop_at_the_second(found: dict[str, Any]) -> None:
        shown.append(found)
        if len(shown) == 1:
            assert len(json.loads(out.read_text())["shapes"]) == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(request_for(shapes="2x6x16,1x4x24"), out, stop_at_the_second)
    check_result(json.loads(out.read_text()))
    assert len(write_plots(out)) == 2


def test_bfloat16_on_a_cpu() -> None:
    result = compare(request_for(dtype="bf16"), None, lambda found: None)
    check_result(result)
    assert result["settings"]["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["layer", "--shapes", "64x128"], "write BxTxd"),
        (["model", "--p", "x"], "--p x"),
        (["layer", "--sweep", "p"], "give --out"),
        (["layer", "--dtype", "int8"], "--dtype int8"),
        (["layer", "--device", "tpu"], "--device tpu"),
        (["layer", "--device", "cpu", "--dtype", "fp16"], "fp32 or bf16"),
        (["layer", "--backends", "torch,cuda"], "--backends cuda"),
        (["layer", "--dense-modes", "reduce-overhead"], "--dense-modes reduce-overhead"),
        (["layer", "--out", "result"], "ends in .json"),
        (["layer", "--out", "mine.json"], "not a result of lformer bench"),
        (["plot", "nowhere.json"], "cannot read nowhere.json"),
        (["plot", "broken.json"], "not JSON"),
    ],
)
def test_mistakes_are_one_line(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.json").write_text('{"my": "data"}')
    (tmp_path / "broken.json").write_text("{")
    code, printed, error = bench(*arguments)
    assert (code, printed) == (2, "")
    assert message in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.json", "mine.json"]


def test_every_candidate_has_a_distinct_row() -> None:
    request = request_for(peers=True, compile_tensor=None, dense_modes="eager,default", p="1,2")
    found: list[Candidate] = candidates_module.candidates(request.cases[0], request.machine, request.choice)
    keys = [(each.name, each.backend, each.mode, each.capture) for each in found]
    assert len(set(keys)) == len(keys) == 2 + 2 * 4 + 2
