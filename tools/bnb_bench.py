#!/usr/bin/env python3
"""tools/bnb_bench.py — quantizing and decoding beside bitsandbytes on the CPU, in one run; prints two tables with ratios.

    PYTHON tools/bnb_bench.py --berth build/release/cli/berth FOLDER [--repeats 3] [--formats nf4 fp4 int8]

PYTHON has torch, bitsandbytes, transformers and accelerate; without them the script says so and ends with 77. FOLDER: a checkpoint in
bf16 that both can run (`berth synth tools/rival_1b FOLDER` makes one). Everything on one thread; GB per CPU second (user and system of
all threads of the process), the best of the repeats; each side's own bytes:

    quantize  bytes of bf16 that became codes. Library, op: quantize_4bit or Int8Params' cast and int8_vectorwise_quant of matrices in
              memory. Library, load: from_pretrained with a BitsAndBytesConfig, files in the page cache. Berth: the whole of loading with
              --load-in-4bit / --load-in-8bit, files in the page cache: reading, encoding, writing
    decode    bytes of codes and scales. Library: forward of every quantized module of the loaded model for one row, in bf16 and in fp32
              (BitsAndBytesConfig's default); `dequantize + matmul` is what a CPU without AVX512-BF16 does in 4 bit, its own kernel for 4 bit
              asked not to serve; `dequantize alone` multiplies nothing. Berth: what a decode step reads by the time of the whole step,
              --numerics int8 and exact
"""
import argparse
import json
import os
import subprocess
import sys
import time

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import logging

    import accelerate  # noqa: F401: from_pretrained with a device map needs it
    import bitsandbytes as bnb
    import bitsandbytes.functional as F
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

FORMATS = {"nf4": (["--load-in-4bit"], dict(load_in_4bit=True, bnb_4bit_quant_type="nf4")),
           "fp4": (["--load-in-4bit", "--bnb-4bit-quant-type", "fp4"], dict(load_in_4bit=True, bnb_4bit_quant_type="fp4")),
           "int8": (["--load-in-8bit"], dict(load_in_8bit=True))}
KINDS = (bnb.nn.Linear4bit, bnb.nn.Linear8bitLt)


def cpu_seconds(work, repeats):
    best = None
    for _ in range(repeats + 1):  # the first warms
        start = time.process_time()
        work()
        took = time.process_time() - start
        best = took if best is None else min(best, took)
    return best


def quantize_op(name, repeats):
    weight = torch.randn(2048, 2048, dtype=torch.bfloat16)
    work = (lambda: F.int8_vectorwise_quant(weight.to(torch.float16))) if name == "int8" else (lambda: F.quantize_4bit(weight, blocksize=64, quant_type=name))
    return weight.numel() * 2 / 1e9 / cpu_seconds(work, repeats)


def scales(module):
    return module.weight.quant_state.absmax.numel() * 4 if isinstance(module, bnb.nn.Linear4bit) else module.out_features * 4


def dequantize(module):
    if isinstance(module, bnb.nn.Linear4bit):
        return F.dequantize_4bit(module.weight.data, module.weight.quant_state)
    return F.int8_vectorwise_dequant(module.weight.data, module.weight.SCB)


def forwards(modules, dtype, repeats):
    """CPU seconds of one row through every module."""
    rows = {width: torch.randn(1, 1, width, dtype=dtype) for width in {m.in_features for m in modules}}
    for m in modules:
        if isinstance(m, bnb.nn.Linear4bit):
            m.compute_dtype, m.compute_type_is_set = dtype, True

    def step():
        with torch.no_grad():
            for m in modules:
                m(rows[m.in_features])

    return cpu_seconds(step, repeats)


def library(name, folder, repeats):
    """(GB/s of bf16 by the op, by from_pretrained; {what: GB/s of codes and scales})."""
    op = quantize_op(name, repeats)
    start = time.process_time()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=transformers.BitsAndBytesConfig(**FORMATS[name][1]), device_map={"": "cpu"},
                                                              dtype=torch.bfloat16).eval()
    took = time.process_time() - start
    modules = [m for m in model.modules() if isinstance(m, KINDS)]
    weights = sum(m.in_features * m.out_features for m in modules)
    gb = (weights * (1 if name == "int8" else 0.5) + sum(map(scales, modules))) / 1e9
    ways = {"dequantize alone": gb / cpu_seconds(lambda: sum(dequantize(m).shape[0] for m in modules), repeats)}  # one result at a time
    own_kernel = name != "int8" and modules[0].support_avx512bf16_for_cpu
    for m in modules if own_kernel else ():
        m.support_avx512bf16_for_cpu = False
    way = "`Linear8bitLt`" if name == "int8" else "`Linear4bit`, dequantize + matmul"
    dtypes = {"bf16": torch.bfloat16, "fp32": torch.float32}
    ways.update({f"{way}, {short}": gb / forwards(modules, dtype, repeats) for short, dtype in dtypes.items()})
    for m in modules if own_kernel else ():
        m.support_avx512bf16_for_cpu = True
    if own_kernel:
        ways.update({f"`Linear4bit`, its AVX512-BF16 kernel, {short}": gb / forwards(modules, dtype, repeats) for short, dtype in dtypes.items()})
    return op, weights * 2 / 1e9 / took, ways


def berth(a, options, *more):
    result = subprocess.run([a.berth, "bench", a.folder, *options, *more, "-t", "1", "-r", str(a.repeats), "--json", "--quiet"], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr)
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--berth", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=list(FORMATS))
    a = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    quantizing, decoding = [], []
    for name in a.formats:
        options = FORMATS[name][0]
        op, load, ways = library(name, a.folder, a.repeats)
        ours = next(r for r in berth(a, options, "--load") if r["what"] == "load" and not r["cold"])
        ours = ours["quantized_bytes"] / 1e9 / ours["cpu_seconds"]
        quantizing.append(f"| {name} | {ours:.2f} | {op:.3f} | {ours / op:.0f} | {load:.3f} | {ours / load:.0f} |")
        steps = [berth(a, options, "-p", "0", "-n", "16", "--numerics", numerics)[-1]["read_gb_per_s"] for numerics in ("int8", "exact")]
        decoding += [f"| {name} | {way} | {rate:.2f} | " + " | ".join(f"{x:.1f} | {x / rate:.1f}" for x in steps) + " |" for way, rate in ways.items()]
    print("| format | quantize: Berth's load, GB of bf16 per CPU s | the library's op | ratio | the library's load | ratio |")
    print("| --- | --- | --- | --- | --- | --- |", *quantizing, sep="\n")
    print("\n| format | decode: the library's way | GB of codes and scales per CPU s | Berth `int8` | ratio | `exact` | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |", *decoding, sep="\n")


if __name__ == "__main__":
    main()
