"""Packages that only some sources need are imported where they are used, and named when they are missing."""

import importlib
from typing import Any

from lformer.settings import UserError


class MissingPackage(UserError, ImportError):
    """A package that is not installed; the message names the extra that brings it."""


def import_optional(module: str, extra: str, purpose: str) -> Any:
    """The module; without it an ImportError that is one line for the user."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingPackage(f"{purpose} needs {package}: pip install 'lformer[{extra}]'") from error
