"""Train a tiny byte-level language model on the Zen of Python and docstrings, then let it write.

python examples/03_generate.py
"""

import codecs
import contextlib
import inspect
import io
import math

import torch

from lformer import LFormerConfig, LFormerForCausalLM

MODULES = ["bisect", "functools", "heapq", "random", "textwrap"]
STEPS, BATCH, LENGTH = 600, 8, 128


def corpus() -> bytes:
    """The Zen of Python, ten times, and the docstrings of some modules of the standard library."""
    with contextlib.redirect_stdout(io.StringIO()):  # it prints itself
        import this
    parts = 10 * [codecs.decode(this.s, "rot13")]
    for module in map(__import__, MODULES):
        members = [module, *(value for _, value in inspect.getmembers(module, inspect.isroutine))]
        parts += [inspect.getdoc(member) or "" for member in members]
    return "\n\n".join(parts).encode()


torch.manual_seed(0)
torch.set_num_threads(1)  # for tensors this small, threads would only wait for each other
data = torch.frombuffer(bytearray(corpus()), dtype=torch.uint8).long()
config = LFormerConfig(
    vocab_size=256, hidden_size=96, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256,
    tube_length=4, norm_placement="pre", positional="rope", interleave=True, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0, pad_token_id=None,
)  # fmt: skip
model = LFormerForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
print(f"{len(data):,} bytes, {model.num_parameters():,} parameters")

for step in range(STEPS + 1):
    places = torch.randint(len(data) - LENGTH, (BATCH, 1)) + torch.arange(LENGTH)
    loss = model(data[places], labels=data[places]).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 100 == 0:
        print(f"step {step:3d}: {loss.item() / math.log(2):.2f} bits per byte")

model.eval()
prompt = torch.tensor([list(b"Beautiful is better than")])
for sampled in (False, True):
    options = {"do_sample": True, "temperature": 0.7} if sampled else {"do_sample": False}
    text = model.generate(prompt, max_new_tokens=100, **options)[0]  # type: ignore[misc]
    print(f"\n--- {'sampled' if sampled else 'greedy'} ---\n{bytes(text.tolist()).decode(errors='replace')}")
