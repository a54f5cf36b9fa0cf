"""Where the time of one layer's training step goes: the kernels of a captured step, by time.

python benchmarks/profile_layer.py 64x128x768 64x512x768
"""

import sys

import torch
from torch.profiler import ProfilerActivity, profile

from lformer.nn import LayerConfig, LEncoderLayer

STEPS = 5


def main() -> None:
    for shape in sys.argv[1:]:
        batch, length, width = map(int, shape.split("x"))
        heads = 4 if width <= 256 else width // 96 if width < 1024 else width // 128
        config = LayerConfig(hidden_size=width, num_attention_heads=heads, tube_length=4, hidden_dropout_prob=0.0)
        layer = LEncoderLayer(config).cuda().bfloat16().eval()
        x = torch.randn(4, batch, length, width // 4, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        gradient = torch.randn_like(x)
        for _ in range(3):
            layer(x)[0].backward(gradient)
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(STEPS):
                layer(x)[0].backward(gradient)
                x.grad = None
                layer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
        rows = sorted(found.key_averages(), key=lambda row: -row.device_time_total)
        total = sum(row.device_time_total for row in rows) / STEPS
        print(f"{shape}: {total:.0f} us of kernels")
        for row in rows[:28]:
            print(f"{row.device_time_total / STEPS:9.1f} us {row.count // STEPS:3d} x  {row.key[:90]}")


if __name__ == "__main__":
    main()
