"""BLEU of a translation model on a split, by sacrebleu."""

import time
from itertools import pairwise
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from lformer.data import Prepared
from lformer.data.optional import import_optional
from lformer.models import LFormerForConditionalGeneration
from lformer.settings import UserError
from lformer.studies.generation import Sampling, decode, translate_ids
from lformer.train.batches import evaluation_batches

BEAMS = (1, 4)
EXAMPLES = 3


@torch.inference_mode()
def bleu(
    model: LFormerForConditionalGeneration,
    prepared: Prepared,
    split_name: str = "test",
    *,
    batch_size: int = 64,
    beams: tuple[int, ...] = BEAMS,
) -> dict[str, Any]:
    """Greedy and by beams: score, signature, seconds, and a few examples.

    The references are the target's tokens put together again: the text itself in Unicode's normal form C, as long as
    the tokenizer keeps the case and no target was truncated; the result says how many were.
    """
    try:
        metric = import_optional("sacrebleu.metrics", "translate", "BLEU").BLEU()
    except ImportError as error:
        raise UserError(str(error)) from None
    tokenizer, split = prepared.tokenizer(), prepared.split(split_name)
    assert split.target_tokens is not None
    assert split.target_offsets is not None
    sources = _texts(split.tokens, split.offsets)
    references = [decode(tokenizer, ids) for ids in _texts(split.target_tokens, split.target_offsets)]
    settings = prepared.manifest["settings"]
    result: dict[str, Any] = {
        "sentences": len(sources),
        "truncated_references": prepared.manifest["splits"][split_name]["target_truncated"],
        "lowercase": bool(settings["lowercase"]),
    }
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        for num_beams in beams:
            name = "greedy" if num_beams == 1 else f"beam {num_beams}"
            bar = progress.add_task(name, total=len(sources))
            sampling = Sampling(max_new_tokens=prepared.max_length - 1, num_beams=num_beams)
            hypotheses = [""] * len(sources)
            started = time.perf_counter()
            for rows in evaluation_batches(split.lengths, batch_size):
                found = translate_ids(model, tokenizer, [sources[row] for row in rows], sampling)
                for row, ids in zip(rows, found, strict=True):
                    hypotheses[row] = decode(tokenizer, ids)
                progress.advance(bar, len(rows))
            score = metric.corpus_score(hypotheses, [references])
            result[name.replace(" ", "_")] = {
                "bleu": round(score.score, 3),
                "brevity_penalty": round(score.bp, 4),
                "signature": str(metric.get_signature()),
                "seconds": round(time.perf_counter() - started, 3),
                "examples": [
                    {"source": decode(tokenizer, sources[i]), "reference": references[i], "translation": hypotheses[i]}
                    for i in range(min(EXAMPLES, len(sources)))
                ],
            }
    return result


def _texts(tokens: Any, offsets: Any) -> list[list[int]]:
    return [tokens[start:end].tolist() for start, end in pairwise(offsets)]
