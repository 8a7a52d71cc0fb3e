#!/usr/bin/env python3
"""What `berth quantize` writes, judged by the real libraries: Transformers + bitsandbytes on the CPU.

    python tests/libraries/quantized_checkpoints.py --berth build/release/cli/berth [MODEL_FOLDER...]

Needs transformers, bitsandbytes, accelerate, torch and safetensors from PyPI (versions: the goldens' README); without them it
says so and is skipped (exit 77). Each folder (default: the goldens' models that the libraries quantize) x each way to quantize:

1. the library quantizes on load and saves; Berth writes the same from the same folder;
2. every tensor has the same name, dtype, shape and bytes, the quant_state texts and quantization_config are equal by value;
3. the library loads Berth's folder without a missing or unexpected tensor, its modules' weights dequantize to the same bits, and
   it computes the same logits, bit for bit (where its 4-bit product can: it fails on rows that are no whole blocks).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
SOURCE = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("BERTH_SHARED", SOURCE.parent / "shared"))

try:
    import logging

    import torch
    import transformers
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    import bitsandbytes
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)
CPU = {"": "cpu"}

# Options of the command -> BitsAndBytesConfig.
WAYS = {
    "nf4": (["--load-in-4bit"], dict(load_in_4bit=True, bnb_4bit_quant_type="nf4")),
    "nf4 double": (["--load-in-4bit", "--bnb-4bit-use-double-quant"],
                   dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)),
    "fp4": (["--load-in-4bit", "--bnb-4bit-quant-type", "fp4"], dict(load_in_4bit=True, bnb_4bit_quant_type="fp4")),
    "int8": (["--load-in-8bit"], dict(load_in_8bit=True)),
}
# Of golden/models: one of each storage variant and kind the libraries load and save by these means.
DEFAULT = ["llama", "llama_tied", "llama_bias", "llama_bf16", "llama_fp16", "llama_sharded", "mistral", "qwen2", "qwen3", "gemma",
           "gemma2", "gemma3_text", "granite", "smollm3", "phi", "phi3", "falcon_7b", "gpt_neox", "stablelm", "olmo2", "cohere2",
           "opt", "mixtral", "qwen3_moe"]


def tensors(folder):
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(file, "pt") as f:
            for name in f.keys():
                found[name] = f.get_tensor(name)
    return found


def raw(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor.view(-1)


def differences(ours, theirs):
    if ours.keys() != theirs.keys():
        return [f"names: only Berth {sorted(ours.keys() - theirs.keys())[:3]}, only the library {sorted(theirs.keys() - ours.keys())[:3]}"]
    found = []
    for name, a in ours.items():
        b = theirs[name]
        if ".quant_state." in name:
            if json.loads(bytes(a.tolist())) != json.loads(bytes(b.tolist())):
                found.append(f"{name}: {bytes(a.tolist())} against {bytes(b.tolist())}")
        elif a.dtype != b.dtype or a.shape != b.shape:
            found.append(f"{name}: {a.dtype} {list(a.shape)} against {b.dtype} {list(b.shape)}")
        elif not torch.equal(raw(a), raw(b)):
            found.append(f"{name}: {(raw(a) != raw(b)).sum().item()} of {raw(a).numel()} bytes differ")
    return found


def values(module):
    """What a quantized module's weight stands for."""
    if isinstance(module, bitsandbytes.nn.Linear4bit):
        return bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
    return bitsandbytes.functional.int8_vectorwise_dequant(module.weight.data, module.weight.SCB)


def weight_differences(ours, theirs):
    kinds = (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)
    a, b = ({n: m for n, m in model.named_modules() if isinstance(m, kinds)} for model in (ours, theirs))
    if a.keys() != b.keys():
        return [f"quantized modules: {len(a)} against {len(b)}"]
    return [f"{n}: other values once loaded" for n in a if not torch.equal(values(a[n]), values(b[n]))]


def logits(model):
    ids = [t % model.config.get_text_config().vocab_size for t in (1, 17, 99, 3, 64, 127, 0, 42, 8, 101, 55, 23)]
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def check(berth, folder, way):
    options, bnb = WAYS[way]
    with tempfile.TemporaryDirectory() as work:
        out, saved = os.path.join(work, "berth"), os.path.join(work, "library")
        done = subprocess.run([berth, "quantize", str(folder), out, *options], capture_output=True, text=True)
        if done.returncode:
            return [f"berth quantize: exit {done.returncode}: {done.stderr.strip()[-400:]}"]
        library = AutoModelForCausalLM.from_pretrained(folder, quantization_config=BitsAndBytesConfig(**bnb), device_map=CPU, attn_implementation="eager").eval()
        library.save_pretrained(saved)
        found = differences(tensors(out), tensors(saved))
        config = [json.loads(pathlib.Path(f, "config.json").read_text()).get("quantization_config", {}) for f in (out, saved)]
        if config[0] != config[1]:
            found.append(f"quantization_config: {config[0]} against {config[1]}")
        loaded, report = AutoModelForCausalLM.from_pretrained(out, device_map=CPU, attn_implementation="eager", output_loading_info=True)
        for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            if report.get(key):
                found.append(f"loading: {key}: {sorted(report[key])[:3]}")
        again = AutoModelForCausalLM.from_pretrained(saved, device_map=CPU, attn_implementation="eager").eval()
        found += weight_differences(loaded, again)
        try:
            expected = logits(again)
        except RuntimeError:  # rows that are no whole blocks
            return found
        if not torch.equal(logits(loaded.eval()), expected):
            found.append("logits of the loaded checkpoints differ")
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--berth", default=str(SOURCE / "build/release/cli/berth"))
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    print(f"transformers {transformers.__version__}, bitsandbytes {bitsandbytes.__version__}, torch {torch.__version__}")
    good = bad = 0
    for folder in args.folders or [SHARED / "golden/models" / name for name in DEFAULT]:
        for way in args.ways:
            try:
                found = check(args.berth, folder, way)
            except Exception as error:  # the library's own failure is reported as such
                found = [f"the library: {type(error).__name__}: {str(error)[:300]}"]
            good, bad = (good + 1, bad) if not found else (good, bad + 1)
            print(f"{'ok' if not found else 'NOT EQUAL'}  {folder.name}  {way}" + "".join(f"\n      {f}" for f in found[:4]), flush=True)
    print(f"{good} of {good + bad} equal")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
