"""What one layer needs to know. Models have a larger configuration and hand this part of it down."""

import math
from dataclasses import dataclass
from typing import Any

from lformer.algebra import get_transform
from lformer.kernels import ACTIVATIONS, BACKENDS
from lformer.nn.folding import slice_width
from lformer.nn.positions import STRATEGIES
from lformer.nn.tube_transform import LEARNED, num_complex_slices

SCOPES = ("sublayer", "block")
DOMAINS = ("transform", "original")
PLACEMENTS = ("post", "pre")
MIXINGS = ("attention", "fourier")
FOLDS = ("same", "shuffled")


def feed_forward_width(hidden_size: int, tube_length: int, gated: bool) -> int:
    """The usual width: 4 D, or if gated as many parameters, about 8/3 D.

    A slice of that is cut down to a multiple of P, for `interleave`, and of 8, which Hopper's copy engine needs, unless
    that would be less than 15/16 of it.

    >>> [feed_forward_width(512, tube_length, gated=True) for tube_length in (1, 3, 4)]
    [1360, 1296, 1344]
    """
    if not gated:
        return 4 * hidden_size
    width = 8 * hidden_size // (3 * tube_length)
    aligned = math.lcm(8, tube_length)
    unit = aligned if 16 * (width % aligned) <= width else tube_length
    return tube_length * (width // unit * unit or max(1, width))


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """Sizes and choices of an encoder or decoder layer."""

    hidden_size: int = 256
    """D, the width of the activations at every boundary."""
    num_attention_heads: int = 4
    """Heads in total, over all slices: a multiple of the tube length."""
    intermediate_size: int | None = None
    """Width of the feed-forward's hidden activations over all slices; if None 4 D, or as many parameters if `gated`."""
    token_mixing: str = "attention"
    """How tokens meet in an encoder layer: "attention", or "fourier" (FNet), the real part of a DFT over the features
    and tokens of every slice, which has no parameters."""
    qk_norm: bool = False
    """RMS norm of queries and keys over the features of a head, with a learned scale per slice."""
    hidden_act: str = "relu"
    """The feed-forward's sigma: "relu", "gelu" or "silu"."""
    gated: bool = False
    """Two inner projections in place of one, the second multiplied by sigma of the first."""
    tube_length: int = 4
    """P, the number of slices; 1 is the standard Transformer."""
    transform: str = "dct"
    """A name that `get_transform` knows, "learned" or "learned-orthogonal"."""
    transform_scope: str = "sublayer"
    """L and L^-1 around every sublayer, norms in the original domain ("sublayer"), or around the whole block, norms in
    the transform domain ("block")."""
    activation_domain: str = "transform"
    """Where sigma acts: on the slices ("transform", the theorem) or between L^-1 and L ("original", the equation)."""
    attention_domain: str = "transform"
    """Where the heads are: in the slices ("transform", the paper) or between L^-1 and L ("original")."""
    positional: str = "standard"
    """How positions enter; a layer needs to know only whether it is "rope"."""
    feed_forward_fold: str = "same"
    """Which features the slices of the feed-forward hold: those of the attention's ("same"), or ("shuffled") after a
    perfect shuffle of P x P chunks in the original domain, so that the two sublayers see different slices."""
    linear_rank: int | None = None
    """R: every weight matrix of a slice is a product of two factors, N x R and R x M; full matrices if None."""
    interleave: bool = False
    """Shuffle features between slices before the second projection of every sublayer."""
    norm_placement: str = "post"
    """Norm after the residual sum ("post", the paper) or before the sublayer ("pre")."""
    paper_counts: bool = False
    """Project Q, K and V twice, as the paper's printed parameter counts imply."""
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-5
    backend: str = "auto"
    """"auto" takes the Triton kernels where they can run, "torch" never, "triton" always (an error where it cannot)."""

    def __post_init__(self) -> None:
        _positive(self, "hidden_size", "num_attention_heads", "tube_length")
        _flag(self, "qk_norm", "gated")
        if self.intermediate_size is None:
            width = feed_forward_width(self.hidden_size, self.tube_length, self.gated)
            object.__setattr__(self, "intermediate_size", width)
        _positive(self, "intermediate_size")
        _one_of(self, "token_mixing", MIXINGS)
        _one_of(self, "hidden_act", tuple(ACTIVATIONS))
        _one_of(self, "transform_scope", SCOPES)
        _one_of(self, "activation_domain", DOMAINS)
        _one_of(self, "attention_domain", DOMAINS)
        if self.attention_domain == "original" and self.transform_scope == "block":
            raise ValueError(
                "attention_domain='original' needs the L of its own that attention has with transform_scope='sublayer'"
            )
        _one_of(self, "feed_forward_fold", FOLDS)
        _one_of(self, "positional", STRATEGIES)
        _one_of(self, "norm_placement", PLACEMENTS)
        _one_of(self, "backend", BACKENDS)
        if self.tube_length > self.hidden_size:
            raise ValueError(
                f"tube_length={self.tube_length} is larger than hidden_size={self.hidden_size}: "
                f"every slice needs at least one feature; use a tube_length of at most {self.hidden_size}"
            )
        if self.transform not in LEARNED:
            try:
                get_transform(self.transform, self.tube_length)
            except ValueError as error:
                raise ValueError(
                    f"transform={self.transform!r}: {error}; or {' or '.join(map(repr, LEARNED))}"
                ) from None
        self._check_heads()
        if self.linear_rank is not None:
            self._check_rank()
        if self.token_mixing == "fourier":
            self._check_fourier()
        if self.qk_norm and self.num_complex and self.attention_domain == "transform":
            raise ValueError(
                f"qk_norm=True is for real queries and keys, and those of transform={self.transform!r} are complex; "
                "use a real transform such as 'dct' or 'hartley', attention_domain='original', or qk_norm=False"
            )
        if self.positional == "rope":
            self._check_rope()
        if self.interleave:
            off = "interleave=False"
            self._check_chunks("interleave=True", "attention", "hidden_size", self.slice_size, off)
            self._check_chunks(
                "interleave=True", "feed-forward", "intermediate_size", self.slice_intermediate_size, off
            )
        if self.feed_forward_fold == "shuffled":
            self._check_shuffled()

    @staticmethod
    def of(config: Any) -> "LayerConfig":
        """The layer configuration of a model's configuration, or the thing itself."""
        return config if isinstance(config, LayerConfig) else config.layer_config()

    @property
    def slice_size(self) -> int:
        """M, the features of a slice."""
        return slice_width(self.hidden_size, self.tube_length)

    @property
    def padded_size(self) -> int:
        """P M: the hidden size, rounded up to a multiple of the tube length."""
        return self.slice_size * self.tube_length

    @property
    def slice_intermediate_size(self) -> int:
        """F, the feed-forward width of a slice."""
        assert self.intermediate_size is not None
        return slice_width(self.intermediate_size, self.tube_length)

    @property
    def heads_per_slice(self) -> int:
        """H."""
        return self.num_attention_heads // self.tube_length

    @property
    def head_size(self) -> int:
        """E."""
        return self.slice_size // self.heads_per_slice

    @property
    def num_complex(self) -> int:
        """C: slices kept as a real and an imaginary part (the DFT); 0 for a real transform."""
        return num_complex_slices(self.tube_length, self.transform)

    def _check_heads(self) -> None:
        p, heads, width = self.tube_length, self.num_attention_heads, self.slice_size
        valid = [p * h for h in range(1, width + 1) if width % h == 0]
        if heads in valid:
            return
        nearest = sorted(sorted(valid, key=lambda value: (abs(value - heads), value))[:2])
        choices = " or ".join(str(value) for value in nearest)
        if heads % p:
            reason = f"is not divisible by tube_length={p}: every slice gets the same number of heads"
        else:
            reason = (
                f"gives {heads // p} heads to every slice, which do not divide its {width} features "
                f"(hidden_size={self.hidden_size}, tube_length={p})"
            )
        raise ValueError(f"num_attention_heads={heads} {reason}; use {choices}")

    def _check_rank(self) -> None:
        _positive(self, "linear_rank")
        assert self.linear_rank is not None
        largest = min(self.slice_size, self.slice_intermediate_size)
        if self.linear_rank > largest:
            raise ValueError(
                f"linear_rank={self.linear_rank} is more than the rank that a slice's matrices can have, which are "
                f"{self.slice_size} or {self.slice_intermediate_size} wide; use at most {largest}, or None"
            )

    def _check_fourier(self) -> None:
        for setting, given, remedy in (
            ("positional='rope'", self.positional == "rope", "another positional, such as 'standard'"),
            ("paper_counts=True", self.paper_counts, "paper_counts=False"),
            ("qk_norm=True", self.qk_norm, "qk_norm=False"),
        ):
            if given:
                raise ValueError(
                    f"{setting} is about queries and keys, and token_mixing='fourier' has none; "
                    f"use {remedy}, or token_mixing='attention'"
                )

    def _check_rope(self) -> None:
        if self.head_size % 2 == 0:
            return
        p, width = self.tube_length, self.slice_size
        valid = [p * h for h in range(1, width + 1) if width % h == 0 and (width // h) % 2 == 0]
        nearest = sorted(valid, key=lambda value: (abs(value - self.num_attention_heads), value))[:2]
        choices = " or ".join(f"num_attention_heads={value}" for value in sorted(nearest))
        raise ValueError(
            f"positional='rope' rotates pairs of features, but a head has {self.head_size} "
            f"(hidden_size={self.hidden_size}, tube_length={p}, num_attention_heads={self.num_attention_heads}); use "
            f"{choices or f'a hidden_size that is a multiple of {2 * p}'}"
        )

    def _check_shuffled(self) -> None:
        if self.transform_scope == "block":
            raise ValueError(
                "feed_forward_fold='shuffled' folds the features anew before the feed-forward's own L, which "
                "transform_scope='block' does not have; use transform_scope='sublayer', or feed_forward_fold='same'"
            )
        same = "feed_forward_fold='same'"
        self._check_chunks("feed_forward_fold='shuffled'", "residual", "hidden_size", self.slice_size, same)

    def _check_chunks(self, setting: str, what: str, name: str, width: int, off: str) -> None:
        p = self.tube_length
        if width % p == 0:
            return
        step = p * p
        lower, upper = width * p // step * step, -(-width * p // step) * step
        choices = " or ".join(str(value) for value in (lower, upper) if value)
        raise ValueError(
            f"{setting} cuts the {what} features of a slice into tube_length={p} equal chunks, "
            f"but a slice has {width}; use {name}={choices}, or {off}"
        )


def _positive(config: LayerConfig, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r} must be a whole number of at least 1")


def _flag(config: LayerConfig, *names: str) -> None:
    for name in names:
        if not isinstance(getattr(config, name), bool):
            raise ValueError(f"{name}={getattr(config, name)!r} must be True or False")


def _one_of(config: LayerConfig, name: str, choices: tuple[str, ...]) -> None:
    value = getattr(config, name)
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}")
