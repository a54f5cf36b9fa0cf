"""`--set key=value`: changes to the fields of a configuration, checked, with the nearest valid name suggested."""

import difflib
import json
from collections.abc import Iterable
from types import NoneType
from typing import Any, get_args


class UserError(ValueError):
    """A mistake of the user's that one line explains."""


def apply_settings(values: dict[str, Any], settings: list[str], types: dict[str, Any]) -> dict[str, Any]:
    """The values with every `key=value` of the settings put in; `types` has the keys there are and their types."""
    changed = dict(values)
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise UserError(f"--set {setting}: write it as KEY=VALUE, for example --set tube_length=4")
        if key not in types:
            raise UserError(f"--set {setting}: there is no setting {key!r}{did_you_mean(key, types)}")
        changed[key] = _parse(setting, text, types[key])
    return changed


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about a name that does not exist; empty where none is near."""
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _parse(setting: str, text: str, hint: Any) -> Any:
    """The text as a value of one of the types that the hint allows."""
    allowed = get_args(hint) or (hint,)
    try:
        value = json.loads(text.lower() if text in ("True", "False") else "null" if text == "None" else text)
    except json.JSONDecodeError:
        value = text
    if type(value) is int and float in allowed and int not in allowed:
        value = float(value)
    if type(value) in allowed:
        return value
    if str in allowed:
        return text
    names = " or ".join("none" if kind is NoneType else getattr(kind, "__name__", str(kind)) for kind in allowed)
    raise UserError(f"--set {setting}: {text!r} is not of the type {names}")
