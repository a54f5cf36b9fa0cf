"""`lformer bench generate`, with models of a moment: every entrant is timed, and the table compares like with like."""

import json
from pathlib import Path

import pytest

from lformer.settings import UserError
from lformer.studies.bench.generate import GenerateOptions, bench_generate, table

TINY = GenerateOptions(
    hidden_size=32, layers=1, vocab_size=40, batches=(1, 2), prompt=4, new=3, device="cpu", dtype="fp32", rounds=2
)


def test_every_entrant_is_timed(tmp_path: Path) -> None:
    found = bench_generate(tmp_path / "generate.json", TINY)
    assert json.loads((tmp_path / "generate.json").read_text())["batches"] == found["batches"]
    assert [batch["batch_size"] for batch in found["batches"]] == [1, 2]
    for batch in found["batches"]:
        rows = {row["name"]: row for row in batch["rows"]}
        assert list(rows) == ["T4", "dense", "GPT-2 (transformers)"]
        assert rows["dense"]["layer_parameters"] > 2 * rows["T4"]["layer_parameters"]
        for row in rows.values():
            assert len(row["seconds"]) == len(row["step_samples"]) == 2
            speeds = sorted(batch["batch_size"] * 3 / seconds for seconds in row["seconds"])
            assert speeds[0] <= row["tokens_per_second"] <= speeds[1]
    assert table(found).row_count == 6
    with pytest.raises(UserError, match="is there already"):
        bench_generate(tmp_path / "generate.json", TINY)


def test_what_is_compiled_is_the_step_alone() -> None:
    rows = [
        {"name": name, "compiled": compiled, "layer_parameters": 9, "tokens_per_second": speed, "step_seconds": step}
        for name, compiled, speed, step in (
            ("T4", True, None, 0.1),
            ("dense", True, None, 0.3),
            ("dense", False, 5.0, 1.0),
        )
    ]
    settings = {"hidden_size": 8, "layers": 1, "dtype": "float32", "device": "cpu", "prompt": 1, "new": 1}
    found = table({"settings": settings, "batches": [{"batch_size": 1, "rows": rows}]})
    cells = [list(column.cells) for column in found.columns]
    assert cells[1] == ["T4 compiled", "dense compiled", "dense"]
    assert cells[3] == ["-", "-", "5.0"]
    assert cells[6] == ["3.00", "1.00", "1.00"]
