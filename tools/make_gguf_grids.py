#!/usr/bin/env python3
"""Writes berth/quant/gguf_grids.cc: the look-up tables that define GGUF's IQ1, IQ2 and IQ3 block types.

Usage: make_gguf_grids.py > berth/quant/gguf_grids.cc     (needs PyPI gguf 0.19.0)

A table entry is one 16-bit number with a digit per element, lowest digit first: 2-bit digits (8 elements) for IQ1 and
IQ2, 4-bit digits (4 elements) for IQ3. A digit is an index into the few values an element can take.
"""
import numpy as np
from gguf import quants

TABLES = [("kIQ1Grid", quants.IQ1_S, 2), ("kIQ2XXSGrid", quants.IQ2_XXS, 2), ("kIQ2XSGrid", quants.IQ2_XS, 2),
          ("kIQ2SGrid", quants.IQ2_S, 2), ("kIQ3XXSGrid", quants.IQ3_XXS, 4), ("kIQ3SGrid", quants.IQ3_S, 4)]

print("// quant/gguf_grids.cc — the look-up tables of GGUF's IQ1, IQ2 and IQ3 types. Written by tools/make_gguf_grids.py.")
print('#include "berth/quant/gguf_grids.h"\n\nnamespace berth::quant {\n\n// clang-format off')
for name, cls, bits in TABLES:
    cls.init_grid()
    grid = cls.grid.reshape(cls.grid_shape)
    index = {np.float32(v): i for i, v in enumerate(cls.grid_map)}
    words = [sum(index[v] << (bits * i) for i, v in enumerate(row)) for row in grid]
    print(f"const uint16_t {name}[{len(words)}] = {{")
    for i in range(0, len(words), 14):
        print("    " + ", ".join(f"0x{w:04x}" for w in words[i:i + 14]) + ",")
    print("};")
print("// clang-format on\n\n}  // namespace berth::quant")
