"""Which sizes are compared: shapes from the command line, the named lists, and the sweeps."""

import math
from dataclasses import dataclass

from lformer.settings import UserError

ISSUE_SHAPES = {
    "cuda": "128x128x128,128x128x256,64x128x768,64x512x768,32x512x2048",
    "cpu": "1x128x128,8x128x128,1x128x256,8x128x256,1x128x768,8x128x768",
}
SWEEP_SHAPES = {"cuda": "64x128x768", "cpu": "8x128x768"}
SWEEP_WIDTHS = (128, 256, 512, 768, 1024, 1536, 2048)
SWEEP_TUBES = (1, 2, 4, 8, 16)
QUICK_POINTS = 3  # of a sweep


@dataclass(frozen=True)
class Case:
    """One shape at which all candidates are compared: the same for the dense and for the tensor side."""

    kind: str
    """Either "layer" or "model"."""
    batch: int
    length: int
    hidden_size: int
    heads: int
    tube_lengths: tuple[int, ...]
    layers: int = 1
    dropout: float = 0.0

    @property
    def intermediate_size(self) -> int:
        return 4 * self.hidden_size

    @property
    def name(self) -> str:
        return f"{self.batch}x{self.length}x{self.hidden_size}"


def make_cases(
    kind: str,
    device: str,
    *,
    shapes: str | None,
    tubes: str | None,
    heads: int | None = None,
    layers: int = 1,
    dropout: float = 0.0,
    sweep: str | None = None,
    quick: bool = False,
) -> list[Case]:
    """What to compare, from the words of the command line.

    A sweep takes one shape: "d" replaces its width by each of SWEEP_WIDTHS, "p" compares all SWEEP_TUBES at it.
    """
    if sweep not in (None, "d", "p"):
        raise UserError(f"--sweep {sweep}: there are 'd' (width) and 'p' (tube length)")
    if shapes in (None, "standard"):
        shapes = (SWEEP_SHAPES if sweep else ISSUE_SHAPES)[device]
    assert shapes is not None
    sizes = parse_shapes(shapes)
    lengths = parse_tubes(tubes) if tubes is not None else (4,)
    points = QUICK_POINTS if quick else None
    if sweep and len(sizes) > 1:
        raise UserError(f"--sweep {sweep} starts from one shape; --shapes has {len(sizes)}")
    if sweep == "d":
        batch, length, _ = sizes[0]
        sizes = [(batch, length, width) for width in SWEEP_WIDTHS[:points]]
    elif sweep == "p" and tubes is None:
        lengths = SWEEP_TUBES[:points]
    return [
        Case(kind, batch, length, width, _heads(width, heads, lengths), lengths, layers, dropout)
        for batch, length, width in sizes
    ]


def parse_shapes(text: str) -> list[tuple[int, int, int]]:
    """The sizes in a text: "64x128x768,8x128x256" -> [(64, 128, 768), (8, 128, 256)]."""
    found = []
    for word in text.split(","):
        parts = word.strip().split("x")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
            raise UserError(f"--shapes: {word.strip()!r} is not a shape; write BxTxd, as in 64x128x768, or 'standard'")
        found.append((int(parts[0]), int(parts[1]), int(parts[2])))
    return found


def parse_tubes(text: str) -> tuple[int, ...]:
    """Tube lengths, each once, from "4" or "1,2,4"."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise UserError(f"--p {text}: write one tube length or several, as in 4 or 1,2,4")
    return tuple(dict.fromkeys(int(word) for word in words))


def default_heads(width: int) -> int:
    if width <= 256:
        return 4
    return 8 if width <= 1024 else 16


def _heads(width: int, heads: int | None, tubes: tuple[int, ...]) -> int:
    """As many heads as asked for or usual, raised to a multiple of every tube length; the dense side has as many."""
    step = math.lcm(*tubes)
    raised = -(-(heads or default_heads(width)) // step) * step
    if width % raised:
        raise UserError(
            f"d={width} does not divide into {raised} heads, which p={','.join(map(str, tubes))} asks for; "
            "give --heads or another --p"
        )
    return raised
