"""Text in, token arrays out: sources, tokenizer, prepared folder."""

from lformer.data.encoding import encode_texts
from lformer.data.examples import Examples, TextData
from lformer.data.load import SOURCES, load_data
from lformer.data.preparation import prepare
from lformer.data.prepared import Prepared, TokenSplit
from lformer.data.tokenizer import train_tokenizer

__all__ = [
    "SOURCES",
    "Examples",
    "Prepared",
    "TextData",
    "TokenSplit",
    "encode_texts",
    "load_data",
    "prepare",
    "train_tokenizer",
]
