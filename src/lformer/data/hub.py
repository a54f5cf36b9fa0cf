"""Known data sets from the Hugging Face hub."""

import hashlib
from typing import Any

from lformer.data.examples import Examples
from lformer.data.optional import import_optional
from lformer.settings import UserError

REPOSITORIES = {"imdb": "stanfordnlp/imdb", "ag_news": "fancyzhx/ag_news"}


def load_from_hub(source: str) -> tuple[dict[str, Examples], str]:
    """The train and test split, and a SHA-256 of their texts and labels."""
    datasets = import_optional("datasets", "hub", f"loading {source} from the Hugging Face hub")
    try:
        loaded: Any = datasets.load_dataset(REPOSITORIES[source])
        splits = {
            split: Examples([(text,) for text in loaded[split]["text"]], [int(i) for i in loaded[split]["label"]])
            for split in ("train", "test")
        }
    except Exception as error:  # the hub's client has dozens: no network, a proxy, a full disk, a moved repository
        reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        raise UserError(
            f"{source}: cannot be loaded from the Hugging Face hub ({reason}); without a network, use --data-dir with "
            "a folder that has train.parquet and test.parquet"
        ) from error
    digest = hashlib.sha256()
    for split, examples in splits.items():
        digest.update(f"{split} {len(examples)}\n".encode())
        for (text,), label in zip(examples.texts, examples.labels or [], strict=True):
            content = text.encode("utf-8", "surrogatepass")
            digest.update(f"{label} {len(content)}\n".encode() + content)
    return splits, digest.hexdigest()
