"""The baseline: a dense post-norm encoder layer as one would write it for speed, and a stack of them.

It shares no code with `lformer.nn`, so that no fault and no slowness of ours can hide on both sides of a ratio. This
is the best that a user would otherwise run: one projection for Q, K and V, torch's fused attention, fused norms, and
torch.compile over the whole, which joins bias, activation, residual and norm. It equals `LEncoderLayer` with
tube_length=1, output and gradients, with copied weights (tests/studies/test_bench_dense.py).
"""

import torch.nn.functional as F
from torch import Tensor, nn


class DenseLayer(nn.Module):
    """x' = LayerNorm(x + MHA(x)), y = LayerNorm(x' + W_2 relu(W_1 x')). Shapes: (B, T, D) -> same."""

    def __init__(
        self, hidden_size: int, num_attention_heads: int, intermediate_size: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.head_shape = (3, num_attention_heads, hidden_size // num_attention_heads)
        self.dropout = dropout
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size)
        self.inner = nn.Linear(hidden_size, intermediate_size)
        self.outer = nn.Linear(intermediate_size, hidden_size)
        self.feed_forward_norm = nn.LayerNorm(hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        projected = F.linear(x, self.query_key_value.weight, self.query_key_value.bias)
        q, k, v = projected.unflatten(-1, self.head_shape).permute(2, 0, 3, 1, 4)  # each (B, H, T, E), views
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout).transpose(1, 2).flatten(-2)
        y = F.linear(y, self.output.weight, self.output.bias)
        x = self._add_and_norm(x, y, self.attention_norm, dropout)
        hidden = F.relu(F.linear(x, self.inner.weight, self.inner.bias))
        y = F.linear(hidden, self.outer.weight, self.outer.bias)
        return self._add_and_norm(x, y, self.feed_forward_norm, dropout)

    @staticmethod
    def _add_and_norm(x: Tensor, y: Tensor, norm: nn.LayerNorm, dropout: float) -> Tensor:
        if dropout:
            y = F.dropout(y, dropout)
        return F.layer_norm(x + y, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


class DenseStack(nn.Module):
    """Dense layers one after the other."""

    def __init__(self, num_layers: int, hidden_size: int, heads: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(hidden_size, heads, inner, dropout) for _ in range(num_layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x
