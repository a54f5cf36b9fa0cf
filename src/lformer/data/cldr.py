"""The embedded data set: tell the language of a name, from the CLDR data inside the babel package."""

import hashlib
import json

from lformer.data.examples import Examples
from lformer.data.holdout import shuffled
from lformer.data.optional import import_optional

# The 16 languages in Latin script whose names of territories, languages, scripts and currencies babel has most
# completely, close relatives (Danish, Norwegian and Swedish; Spanish, Portuguese and Italian) included: with
# babel 2.18.0 they have 12,924 names that belong to one of them alone.
LANGUAGES = ("cs", "da", "de", "en", "es", "fi", "fr", "hu", "it", "nb", "nl", "pl", "pt", "ro", "sv", "tr")
KINDS = ("territories", "languages", "scripts", "currencies")
SEED = 0  # of the split, which is part of the data set
PERCENT = {"train": 80, "validation": 10, "test": 10}


def load_cldr() -> tuple[dict[str, Examples], list[str], str]:
    """The splits, the label names and the fingerprint."""
    core = import_optional("babel.core", "demo", "the data set cldr")
    languages: dict[str, set[int]] = {}
    for label, code in enumerate(LANGUAGES):
        locale = core.Locale.parse(code)
        for kind in KINDS:
            for name in getattr(locale, kind).values():
                if name.strip():
                    languages.setdefault(name.strip(), set()).add(label)
    owned = sorted((name, labels.pop()) for name, labels in languages.items() if len(labels) == 1)
    order = shuffled([name for name, _ in owned], SEED)
    whole = Examples([(name,) for name, _ in owned], [label for _, label in owned])
    splits, start, percent = {}, 0, 0
    for split, share in PERCENT.items():
        percent += share
        end = len(order) * percent // 100
        splits[split] = whole.take(order[start:end])
        start = end
    fingerprint = hashlib.sha256(json.dumps([LANGUAGES, SEED, PERCENT, owned]).encode()).hexdigest()
    return splits, list(LANGUAGES), fingerprint
