#!/usr/bin/env python3
"""Writes tests/data/gguf_blocks/: random blocks of every GGUF type and what PyPI's gguf 0.19.0 decodes them to.

Usage: make_gguf_golden.py tests/data/gguf_blocks     (needs gguf 0.19.0, numpy, safetensors)

blocks.safetensors: "<type>.blocks" U8 [n, bytes] and "<type>.values" F32 [n, elements], lower-case ggml names. All bytes
are random (so scales may be subnormal, infinite or NaN) in the first half; in the second half fp16 scales are ordinary
numbers. A fixed seed; two runs write the same bytes.
"""
import pathlib
import sys

import numpy as np
import safetensors.numpy
import gguf
from gguf import GGML_QUANT_SIZES, quants

# Where the fp16 scales of a block lie, so that half of the blocks can have ordinary ones.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0],
          "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64]}


def main(folder):
    rng = np.random.default_rng(20260914)
    tensors = {}
    for qtype in sorted(quants._type_traits):
        elements, size = GGML_QUANT_SIZES[qtype]
        n = max(8, 4096 // elements) if elements > 1 else 256
        blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
        for at in SCALES.get(qtype.name, []):
            ordinary = rng.normal(0, 0.01, n - n // 2).astype(np.float16)
            blocks[n // 2:, at:at + 2] = ordinary.view(np.uint8).reshape(-1, 2)
        with np.errstate(all="ignore"):
            values = quants.dequantize(blocks, qtype)
        tensors[qtype.name.lower() + ".blocks"] = blocks
        tensors[qtype.name.lower() + ".values"] = np.ascontiguousarray(values, np.float32).reshape(n, elements)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(tensors, folder / "blocks.safetensors", {"made_by": "make_gguf_golden.py, gguf 0.19.0"})
    print(len(tensors) // 2, "types")


if __name__ == "__main__":
    main(sys.argv[1])
