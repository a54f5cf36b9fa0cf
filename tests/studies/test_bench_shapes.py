"""Which shapes, tube lengths and heads a command means."""

from typing import Any

import pytest

from lformer.settings import UserError
from lformer.studies.bench.shapes import make_cases, parse_shapes, parse_tubes


def cases(**options: Any) -> list[tuple[str, int, tuple[int, ...]]]:
    device = options.pop("device", "cuda")
    found = make_cases("layer", device, **{"shapes": None, "tubes": None, **options})
    return [(case.name, case.heads, case.tube_lengths) for case in found]


def test_the_named_lists() -> None:
    wide = [("128x128x128", 4), ("128x128x256", 4), ("64x128x768", 8), ("64x512x768", 8), ("32x512x2048", 16)]
    assert cases(shapes="standard") == cases() == [(name, heads, (4,)) for name, heads in wide]
    assert [name for name, _, _ in cases(device="cpu")][::5] == ["1x128x128", "8x128x768"]


def test_shapes_and_tubes_are_read() -> None:
    assert parse_shapes("64x128x768, 8x16x32") == [(64, 128, 768), (8, 16, 32)]
    assert parse_tubes("4") == (4,)
    assert parse_tubes("1,2, 2") == (1, 2)


@pytest.mark.parametrize(
    ("tubes", "heads", "expected"),
    [("8", None, 8), ("3", None, 6), ("2,3", None, 6), ("2,3,4", None, 12), ("4", 6, 8), ("1", 3, 3)],
)
def test_heads_are_raised_to_a_multiple_of_every_tube_length(tubes: str, heads: int | None, expected: int) -> None:
    assert cases(shapes="1x8x48", tubes=tubes, heads=heads)[0][1] == expected


def test_sweeps() -> None:
    widths = cases(sweep="d")
    assert [name for name, _, _ in widths] == [f"64x128x{d}" for d in (128, 256, 512, 768, 1024, 1536, 2048)]
    assert cases(sweep="p") == [("64x128x768", 16, (1, 2, 4, 8, 16))]
    assert cases(sweep="p", shapes="2x4x64", tubes="1,4") == [("2x4x64", 4, (1, 4))]
    assert [name for name, _, _ in cases(sweep="d", shapes="2x4x64", quick=True)] == ["2x4x128", "2x4x256", "2x4x512"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": "64x128"}, "'64x128' is not a shape; write BxTxd"),
        ({"shapes": "64x128x768,"}, "'' is not a shape"),
        ({"shapes": "0x128x768"}, "is not a shape"),
        ({"shapes": "axbxc"}, "is not a shape"),
        ({"shapes": "1x8x²"}, "is not a shape"),
        ({"tubes": "four"}, "--p four"),
        ({"tubes": "0"}, "--p 0"),
        ({"tubes": "5"}, "d=128 does not divide into 5 heads"),
        ({"sweep": "q"}, "--sweep q"),
        ({"sweep": "d", "shapes": "1x1x8,1x1x16"}, "starts from one shape"),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        cases(**options)
