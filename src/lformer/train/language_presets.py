"""Language models and translation. Every preset comes three times: tensor, dense of equal width, dense of equal size.

`NAME` is the tensor model, `NAME-dense` its twin of the same width (P times the layer parameters), and `NAME-matched` a
narrower dense model with as many layer parameters as the tensor one: the comparison that tells what the tensor
structure is worth. Tests check that they match.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lformer.train.preset import DataSettings, Preset
from lformer.train.recipe import Recipe

BYTES = DataSettings(tokenizer_kind="byte", lowercase=False)
TENSOR_ONLY = ("interleave", "attention_domain", "activation_domain", "feed_forward_fold")
GATED = {"gated": True, "hidden_act": "silu"}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def modern() -> dict[str, Any]:
    """What dense and tensor language models share."""
    return {"norm_placement": "pre", "positional": "rope", "hidden_act": "gelu"}


def recommended() -> dict[str, Any]:
    """The tensor block that learns best as far as we have measured (docs/language.md): every linear map is an L-product
    between tensors of the original domain, its transform is learned, and chunks are interleaved between the two
    products of a sublayer. The one place to change it for all presets.
    """
    return {
        **modern(),
        **GATED,
        "tube_length": 4,
        "transform": "learned",
        "interleave": True,
        "attention_domain": "original",
        "activation_domain": "original",
    }


def recommended_preset() -> Preset:
    return Preset(
        about="the tensor block we recommend, for any --task; width and depth by --set",
        model={**recommended(), "num_attention_heads": 8},
        recipe=Recipe(learning_rate=1e-3),
    )


def lm_shakespeare() -> Preset:
    return Preset(
        about="bytes of Shakespeare (--data-dir with input.txt); minutes on a CPU",
        task="causal-lm",
        model={
            **recommended(),
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            **NO_DROPOUT,  # too few epochs to learn by heart; and without it attention takes its fast path on a CPU
        },
        recipe=Recipe(
            epochs=4,
            batch_size=16,
            sequence_length=128,
            learning_rate=3e-3,
            final_learning_rate=1e-4,
            eval_steps=250,
        ),
        data=BYTES,
    )


def lm_enwik8_small() -> Preset:
    return Preset(
        about="bytes of Wikipedia (--data-dir with enwik8.xz), 3.2 M layer parameters; for a GPU",
        task="causal-lm",
        model={
            **recommended(),
            "hidden_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            **NO_DROPOUT,
        },
        recipe=Recipe(
            epochs=1,
            max_steps=2_500,
            batch_size=64,
            sequence_length=256,
            learning_rate=2e-3,
            eval_steps=500,
        ),
        data=BYTES,
    )


def lm_enwik8() -> Preset:
    return Preset(
        about="bytes of Wikipedia, 38 M layer parameters in 12 layers; for a GPU",
        task="causal-lm",
        model={
            **recommended(),
            "hidden_size": 1024,
            "num_hidden_layers": 12,
            "num_attention_heads": 16,
        },
        recipe=Recipe(
            epochs=8,
            max_steps=20_000,
            batch_size=64,
            sequence_length=512,
            learning_rate=1e-3,
            eval_steps=1_000,
            checkpoint_steps=2_000,
            eval_batch_size=64,
        ),
        data=BYTES,
    )


def translate_multi30k() -> Preset:
    return Preset(
        about="English to German captions (--data-dir with Multi30k), encoder-decoder, BPE of 10,000 types",
        task="translation",
        model={**recommended(), "hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8},
        recipe=Recipe(
            epochs=30,
            batch_size=128,
            learning_rate=1e-3,
            label_smoothing=0.1,
            bucket=True,
            eval_batch_size=128,
        ),
        data=DataSettings(max_length=64, vocab_size=10_000, lowercase=False),
    )


def dense(preset: Preset) -> Preset:
    """The twin of equal width: the same model with tube_length=1."""
    plain = {name: value for name, value in preset.model.items() if name not in TENSOR_ONLY}
    plain |= {"tube_length": 1, "transform": "identity"}
    return replace(preset, about=f"{preset.about}: dense, of equal width", model=plain)


def matched(preset: Preset, **narrower: Any) -> Preset:
    """A dense model with as many layer parameters: 1 / sqrt(P) as wide."""
    found = dense(preset)
    about = f"{preset.about}: dense, of equal layer parameters"
    return replace(found, about=about, model={**found.model, **narrower})


def _variants(
    name: str, preset: Callable[[], Preset], hidden_size: int, num_attention_heads: int
) -> dict[str, Callable[[], Preset]]:
    """The three presets; the sizes are those of the narrower dense model."""
    sizes = {"hidden_size": hidden_size, "num_attention_heads": num_attention_heads}
    return {
        name: preset,
        f"{name}-dense": lambda: dense(preset()),
        f"{name}-matched": lambda: matched(preset(), **sizes),
    }


LANGUAGE_PRESETS: dict[str, Callable[[], Preset]] = {
    "recommended": recommended_preset,
    **_variants("lm-shakespeare", lm_shakespeare, 128, 4),
    **_variants("lm-enwik8-small", lm_enwik8_small, 256, 4),
    **_variants("lm-enwik8", lm_enwik8, 512, 8),
    **_variants("translate-multi30k", translate_multi30k, 256, 4),
}
