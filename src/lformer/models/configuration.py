"""The configuration of every lformer model: Hugging Face's usual fields, and what makes a Transformer a tensor one."""

import copy
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedConfig

from lformer.nn import LayerConfig
from lformer.nn.config import feed_forward_width
from lformer.nn.fourier import FOR_ENCODERS

if TYPE_CHECKING:
    from lformer.models.summary import Summary


class LFormerConfig(PreTrainedConfig):
    """Sizes and choices of a tensor Transformer. `tube_length=1` is the standard one.

    >>> LFormerConfig(hidden_size=128, num_attention_heads=4, tube_length=4).slice_size
    32

    Args:
        vocab_size: number of token types.
        hidden_size: D, the width of the activations.
        num_hidden_layers: layers of the encoder, or of the decoder-only model.
        share_layers: use the weights of one layer at every depth (one for the encoder, one for the decoder).
        num_decoder_layers: layers of the decoder of an encoder-decoder model; as many as the encoder's if None.
        num_attention_heads: heads in total, over all slices; a multiple of `tube_length`.
        token_mixing: "attention", or for encoders "fourier": a parameter-free DFT over the features and tokens of every
            slice (FNet). It sees how long the padded batch is.
        qk_norm: RMS norm of queries and keys over the features of a head, with a learned scale per slice.
        intermediate_size: feed-forward width over all slices; if None 4 D, or two thirds of it if `gated`.
        hidden_act: "relu", "gelu" or "silu".
        gated: a gated feed-forward: its inner projection is twice as wide, and sigma of one half multiplies the other.
        max_position_embeddings: longest input.
        hidden_dropout_prob, attention_probs_dropout_prob, classifier_dropout: dropout rates.
        layer_norm_eps: added to the variance by the norms.
        initializer_range: factor of the initial weights in the table of `LFormerPreTrainedModel._init_weights`.
        scale_embedding: multiply token embeddings by sqrt(D), as the original Transformer does.
        tie_word_embeddings: the language models' output head shares the embedding matrix.
        output_projection: "dense", W_out on the unfolded activations, or "tensor", an L-product of 1/P of its weights.
        tube_length: P, the number of slices. D need not be a multiple.
        transform: "dct", "dst", "hartley", "hadamard", "haar", "dft", "identity", "random", "learned" or
            "learned-orthogonal".
        transform_scope: "sublayer" (norms in the original domain) or "block" (norms in the transform domain; the slices
            of a stack are then independent of each other).
        activation_domain: "transform" or "original", where the feed-forward's activation acts.
        attention_domain: "transform" or "original", where the heads of the attention are formed.
        positional: "standard", "linear", "exponential", "harmonic", "learned", "learned-alpha", "rope" or "none".
        rope_theta: base of the rotary positions.
        feed_forward_fold: "same", or "shuffled": the feed-forward's slices hold other features than the attention's.
        linear_rank: R, every weight matrix of the layers is a product of two factors of this rank in each slice; full
            matrices if None.
        interleave: shuffle features between slices before the second projection of every sublayer.
        norm_placement: "post" (the paper) or "pre".
        paper_counts: add what the paper's printed parameter counts at d=128 and 256 imply: a second projection of Q, K
            and V in every layer, and for P > 1 one more norm of width D / P after the stack.
        backend: "auto", "torch" or "triton".
        is_decoder: causal self-attention; set by the causal language model.
        is_encoder_decoder: an encoder and a decoder; set by the model for conditional generation.
    """

    model_type = "lformer"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 - the base class types it so

    vocab_size: int = 30_000
    hidden_size: int = 256
    num_hidden_layers: int = 4
    share_layers: bool = False
    num_decoder_layers: int | None = None
    num_attention_heads: int = 4
    token_mixing: str = "attention"
    qk_norm: bool = False
    intermediate_size: int | None = None
    hidden_act: str = "relu"
    gated: bool = False
    max_position_embeddings: int = 128
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float = 0.0
    layer_norm_eps: float = 1e-5
    initializer_range: float = 1.0
    scale_embedding: bool = True
    tie_word_embeddings: bool = True
    output_projection: str = "dense"
    tube_length: int = 4
    transform: str = "dct"
    transform_scope: str = "sublayer"
    activation_domain: str = "transform"
    attention_domain: str = "transform"
    positional: str = "standard"
    rope_theta: float = 10_000.0
    feed_forward_fold: str = "same"
    linear_rank: int | None = None
    interleave: bool = False
    norm_placement: str = "post"
    paper_counts: bool = False
    backend: str = "auto"
    is_decoder: bool = False
    is_encoder_decoder: bool = False
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    decoder_start_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.intermediate_size is None:
            self.intermediate_size = feed_forward_width(self.hidden_size, max(self.tube_length, 1), self.gated)
        if self.num_decoder_layers is None:
            self.num_decoder_layers = self.num_hidden_layers
        super().__post_init__(**kwargs)
        self.layer_config()  # refuses what does not fit together, with the reason
        for name in ("vocab_size", "num_hidden_layers", "num_decoder_layers", "max_position_embeddings"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if not isinstance(self.share_layers, bool):
            raise ValueError(f"share_layers={self.share_layers!r} must be True or False")
        if self.token_mixing == "fourier" and (self.is_decoder or self.is_encoder_decoder):
            raise ValueError(FOR_ENCODERS)
        if self.output_projection not in ("dense", "tensor"):
            raise ValueError(f"output_projection={self.output_projection!r} is not one of 'dense', 'tensor'")
        if self.output_projection == "tensor" and self.tie_word_embeddings:
            raise ValueError(
                "output_projection='tensor' has weights of its own shape and cannot share the embedding matrix; "
                "set tie_word_embeddings=False"
            )

    def layer_config(self) -> LayerConfig:
        """The part that a layer needs to know."""
        return LayerConfig(**{name: getattr(self, name) for name in LayerConfig.__dataclass_fields__})

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> PreTrainedConfig:
        """What `generate` and caches ask for: the decoder's part of an encoder-decoder has the decoder's layers."""
        if decoder and not encoder and self.is_encoder_decoder:
            config = copy.deepcopy(self)
            config.num_hidden_layers = self.num_decoder_layers or self.num_hidden_layers
            return config
        return super().get_text_config(decoder=decoder, encoder=encoder)

    @property
    def slice_size(self) -> int:
        """M = ceil(D / P), the width of a slice."""
        return self.layer_config().slice_size

    @property
    def head_dim(self) -> int:
        """E, the size of a head."""
        return self.layer_config().head_size

    def summary(self, length: int | None = None) -> "Summary":
        """Parameters by part, FLOPs and memory for inputs of the given length, beside the dense model of this width."""
        from lformer.models.summary import summarize  # needs the models, which need this class

        return summarize(self, length)
