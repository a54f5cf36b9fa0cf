"""A validation split out of the training split, the same on every machine."""

import hashlib

from lformer.data.examples import Examples
from lformer.data.language import character_start, decode, encode
from lformer.settings import UserError


def shuffled(keys: list[str], seed: int) -> list[int]:
    """The indices of the keys in an order that depends on the keys and the seed alone: by their SHA-256."""
    digests = [hashlib.sha256(f"{seed}:{key}".encode("utf-8", "surrogatepass")).digest() for key in keys]
    return sorted(range(len(keys)), key=digests.__getitem__)


def hold_out(train: Examples, fraction: float, seed: int) -> tuple[Examples, Examples]:
    """The rest and the validation split: the fraction of every class, one example of which stays at least."""
    if len(train) == 1 and train.labels is None:
        return _hold_out_end(train, fraction)
    order = shuffled([str(i) for i in range(len(train))], seed)
    classes: dict[int, list[int]] = {}
    for i in order:
        classes.setdefault(0 if train.labels is None else train.labels[i], []).append(i)
    held: set[int] = set()
    for members in classes.values():
        held.update(members[: min(round(fraction * len(members)), len(members) - 1)])
    if not held:
        raise UserError(f"validation_fraction={fraction} of {len(train)} examples holds out none; use a larger one")
    rest = [i for i in range(len(train)) if i not in held]
    return train.take(rest), train.take(sorted(held))


def _hold_out_end(train: Examples, fraction: float) -> tuple[Examples, Examples]:
    """The end of a single text, cut between characters."""
    content = encode(train.texts[0][0])
    cut = character_start(content, round(len(content) * (1 - fraction)))
    if not 0 < cut < len(content):
        raise UserError(f"validation_fraction={fraction} of {len(content)} bytes leaves one split empty")
    return Examples([(decode(content[:cut]),)]), Examples([(decode(content[cut:]),)])
