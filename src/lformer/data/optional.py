"""Packages that only some sources need are imported where they are used, and named when they are missing."""

import importlib
from typing import Any


def import_optional(module: str, extra: str, purpose: str) -> Any:
    """The module, or an ImportError that says which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{purpose} needs {package}: pip install 'lformer[{extra}]'") from error
