"""Train a small tensor Transformer to tell six languages apart by their names for countries, languages and currencies.

The data are real: the Unicode CLDR, inside `babel`. The model is a "T4": 4 slices, a quarter of the encoder's weights.
"""

import random

import torch
from babel import Locale

from lformer import LFormerConfig, LFormerForSequenceClassification

LANGUAGES = ["en", "de", "fr", "es", "fi", "pl"]


def names() -> list[tuple[str, int]]:
    """Pairs of a name and the number of its language; names that two languages share are left out."""
    locales = [Locale(code) for code in LANGUAGES]
    names = [{*lo.territories.values(), *lo.languages.values(), *lo.currencies.values()} for lo in locales]
    return [(name, k) for k, own in enumerate(names) for name in sorted(own) if sum(name in o for o in names) == 1]


def encode(texts: list[str]) -> dict[str, torch.Tensor]:
    """A text as its UTF-8 bytes plus one, so that 0 is padding."""
    rows = [torch.tensor([byte + 1 for byte in text.encode()]) for text in texts]
    input_ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"input_ids": input_ids, "attention_mask": (input_ids > 0).long()}


random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)  # for tensors this small, threads would only wait for each other
data = names()
random.shuffle(data)
train, test = data[500:], data[:500]

config = LFormerConfig(vocab_size=257, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, tube_length=4)
config.id2label = dict(enumerate(LANGUAGES))
model = LFormerForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
print(f"{len(train)} names to learn from, {len(test)} held out, {model.num_parameters():,} parameters")

for epoch in range(1, 9):
    model.train()
    random.shuffle(train)
    for start in range(0, len(train), 32):
        texts, labels = zip(*train[start : start + 32], strict=True)
        model(**encode(list(texts)), labels=torch.tensor(labels)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    texts, labels = zip(*test, strict=True)
    with torch.no_grad():
        predicted = model(**encode(list(texts))).logits.argmax(-1)
    accuracy = (predicted == torch.tensor(labels)).float().mean()
    print(f"epoch {epoch}: {accuracy:.1%} of the held-out names are right")

for text, label, answer in list(zip(texts, labels, predicted, strict=True))[:6]:
    print(f"{text:40s} {LANGUAGES[label]}, predicted {LANGUAGES[answer]}")
