"""Dropout without a mask in memory: whether a number is kept follows from the seed and its place, so that the backward
pass finds the same again.

A hash of ten instructions, not the ten rounds of Philox (`tl.rand`), which took four fifths of attention's time.
"""

import triton
import triton.language as tl


@triton.jit
def mix_bits(bits, key):
    """Two rounds of xor-shift and multiply, a key between them. The constants are Chris Wellons's lowbias32, in which
    every bit of the output depends on all bits of the input.
    """
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = bits ^ key
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    return bits ^ (bits >> 16)


@triton.jit
def kept(seed, place, dropout):
    """0 or 1 / (1 - dropout) for every place, an integer below 2^32; seed is 64 bits wide."""
    low, high = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    start, key = mix_bits(low, mix_bits(high, low)), mix_bits(high + 1, mix_bits(low, high))  # of the program, once
    bits = mix_bits(place.to(tl.uint32) * 0x9E3779B9 + start, key)
    return tl.where(bits.to(tl.float32) >= dropout * 4294967296.0, 1.0 / (1.0 - dropout), 0.0)
