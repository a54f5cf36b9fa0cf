"""Labels to class indices: the training split says which classes there are."""

import re
from collections.abc import Callable

from lformer.settings import UserError

INTEGER = re.compile(r"0|-?[1-9]\d*", flags=re.ASCII)


def label_set(train: list[str], where: str) -> list[str]:
    """The classes of the training split, integers by size and others by alphabet; two at least."""
    names = sorted(set(train))
    if len(names) < 2:
        only = f"only one class ({names[0]!r})" if names else "no class"
        raise UserError(f"{where}: there is {only} in the training split; a classifier needs two or more")
    if all(INTEGER.fullmatch(name) for name in names):
        names.sort(key=int)
    return names


def label_indices(keys: list[str], names: list[str], fixed: bool, split: str, where: Callable[[int], str]) -> list[int]:
    """The index of every label. With fixed names, those of a known data set, an integer label is the index itself."""
    index = {name: i for i, name in enumerate(names)}
    if fixed:
        index |= {str(i): i for i in range(len(names))}
    found = []
    for row, key in enumerate(keys):
        if key not in index:
            some = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            known = f"one of {some}" + (f" or 0 to {len(names) - 1}" if fixed else "")
            reason = (
                f"is not {known}" if fixed or split == "train" else f"is not in the training split, which has {some}"
            )
            raise UserError(f"{where(row)}: the label {key[:60]!r} {reason}")
        found.append(index[key])
    return found


def check_every_class(labels: list[int], names: list[str], where: str) -> None:
    """Refuses a training split without a single example of some class."""
    absent = [name for i, name in enumerate(names) if i not in set(labels)]
    if absent:
        raise UserError(f"{where}: the class {absent[0]!r} has no example in the training split")
