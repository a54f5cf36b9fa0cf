"""What a trained classifier says about texts."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from lformer.data import encode_texts
from lformer.models import LFormerForSequenceClassification


@torch.inference_mode()
def classify(
    model: LFormerForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    texts: Iterable[str],
    batch_size: int = 64,
) -> Iterator[dict[str, Any]]:
    """The class of every text, with the probabilities of all; texts become tokens as they did for training."""
    names: Any = model.config.id2label
    waiting = list(texts)
    for start in range(0, len(waiting), batch_size):
        part = waiting[start : start + batch_size]
        ids = encode_texts(tokenizer, [(text,) for text in part], model.config.max_position_embeddings)
        inputs = tokenizer.pad({"input_ids": ids}, padding=True, return_tensors="pt").to(model.device)
        logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        for text, row in zip(part, logits.float().softmax(-1).cpu(), strict=True):
            best = int(row.argmax())
            probabilities = {names[i]: round(float(value), 6) for i, value in enumerate(row)}
            yield {"text": text, "label": names[best], "probability": float(row[best]), "probabilities": probabilities}
