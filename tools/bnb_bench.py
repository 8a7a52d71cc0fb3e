#!/usr/bin/env python3
"""tools/bnb_bench.py — quantizing and decoding beside bitsandbytes on the CPU, in one run; prints a table of ratios.

    PYTHON tools/bnb_bench.py --berth build/release/cli/berth MODEL_BF16 [--repeats 3]

PYTHON has torch and bitsandbytes; without them the script says so and ends with 77. MODEL_BF16: any checkpoint in bf16.

GB per CPU second (user and system of all threads), the best of the repeats:

    quantize  bytes of bf16. Library: quantize_4bit, int8_vectorwise_quant of a matrix in memory. Berth: the whole of
              loading the model with --load-in-4bit / --load-in-8bit, files in the page cache: reading, encoding, writing
    decode    bytes of codes and scales. Library: dequantize_4bit, int8_vectorwise_dequant. Berth: what a decode step
              reads, --numerics int8 and exact, one thread: decoding is a part of its products
"""
import argparse
import json
import os
import subprocess
import sys
import time

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
try:
    import bitsandbytes.functional as F
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

FORMATS = {"nf4": ["--load-in-4bit"], "fp4": ["--load-in-4bit", "--bnb-4bit-quant-type", "fp4"], "int8": ["--load-in-8bit"]}


def cpu_seconds(work, repeats):
    best = None
    for _ in range(repeats + 1):  # the first warms
        start = time.process_time()
        work()
        took = time.process_time() - start
        best = took if best is None else min(best, took)
    return best


def library(repeats):
    rows, cols = 2048, 2048
    weight = torch.randn(rows, cols, dtype=torch.bfloat16)
    out = {}
    for name in ("nf4", "fp4"):
        codes, state = F.quantize_4bit(weight, blocksize=64, quant_type=name)
        out[name] = (weight.numel() * 2 / 1e9 / cpu_seconds(lambda: F.quantize_4bit(weight, blocksize=64, quant_type=name), repeats),
                     weight.numel() * (0.5 + 4 / 64) / 1e9 / cpu_seconds(lambda: F.dequantize_4bit(codes, state), repeats))
    half = weight.to(torch.float16)
    codes, scale, _ = F.int8_vectorwise_quant(half)
    out["int8"] = (weight.numel() * 2 / 1e9 / cpu_seconds(lambda: F.int8_vectorwise_quant(weight.to(torch.float16)), repeats),
                   (weight.numel() + 4 * rows) / 1e9 / cpu_seconds(lambda: F.int8_vectorwise_dequant(codes, scale), repeats))
    return out


def berth(a, options, *more):
    result = subprocess.run([a.berth, "bench", a.model, *options, *more, "--json", "--quiet"], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr)
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--berth", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    torch.set_num_threads(1)
    rival = library(a.repeats)
    print("| format | quantize, GB of bf16 per CPU s | ratio | decode `int8`, GB of codes and scales per CPU s | ratio | `exact` | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, options in FORMATS.items():
        load = next(r for r in berth(a, options, "--load", "-t", "1", "-r", str(a.repeats)) if r["what"] == "load" and not r["cold"])
        cells = [(load["quantized_bytes"] / 1e9 / load["cpu_seconds"], rival[name][0])]
        for numerics in ("int8", "exact"):
            step = berth(a, options, "-p", "0", "-n", "16", "-r", str(a.repeats), "-t", "1", "--numerics", numerics)[-1]
            cells.append((step["read_gb_per_s"], rival[name][1]))
        print(f"| {name} | " + " | ".join(f"{x:.2f} / {y:.3f} | {x / y:.0f}" for x, y in cells) + " |")


if __name__ == "__main__":
    main()
