#!/usr/bin/env python3
"""The module trees that Transformers plans for compressed-tensors checkpoints, as tests/data/packed_trees.jsonl has them.

    python tests/libraries/packed_trees.py            # prints the lines
    python tests/libraries/packed_trees.py --check    # compares them with the file: status 1 where they differ

Needs transformers, torch and compressed-tensors from PyPI; without them it says so and is skipped (exit 77). A line: `config` (a
small Llama with a quantization_config) and of each module with tensors its class and [name, shape, dtype] of parameters and
buffers, after the library's own quantizer has prepared the model on the meta device; `bytes`: what the planner then counts.
"""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
FILE = pathlib.Path(__file__).resolve().parents[1] / "data/packed_trees.jsonl"
try:
    import compressed_tensors  # noqa: F401: the quantizer needs it
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, LlamaConfig
    from transformers.integrations.accelerate import compute_module_sizes
    from transformers.quantizers import AutoHfQuantizer
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
transformers.logging.set_verbosity_error()

INT4 = dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=128)
INT8 = dict(num_bits=8, type="int", symmetric=True, strategy="channel")
FP8 = dict(num_bits=8, type="float", symmetric=True, strategy="channel")
FP4 = dict(num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16)
TOKEN = dict(strategy="token", dynamic=True)


def group(weights, inputs=None, targets=("Linear",), **more):
    return {"targets": list(targets), "weights": weights, "input_activations": inputs, "output_activations": None, **more}


CASES = {
    "int4 by groups": ("pack-quantized", [group(INT4)]),
    "int4 with zero points": ("pack-quantized", [group({**INT4, "symmetric": False})]),
    "int4 by channels": ("pack-quantized", [group({**INT4, "strategy": "channel", "group_size": None})]),
    "int8 packed": ("pack-quantized", [group(INT8)]),
    "int8": ("int-quantized", [group(INT8, {**INT8, **TOKEN})]),
    "fp8 by channels": ("float-quantized", [group(FP8, {**FP8, **TOKEN})]),
    "fp8 by tensors, inputs too": ("float-quantized", [group({**FP8, "strategy": "tensor"}, {**FP8, "strategy": "tensor", "dynamic": False})]),
    "fp8 by blocks": ("float-quantized", [group({**FP8, "strategy": "block", "block_structure": [128, 128]}, {**FP8, "strategy": "group", "group_size": 128, "dynamic": True})]),
    "nvfp4": ("nvfp4-pack-quantized", [group(FP4, {**FP4, "dynamic": "local"})]),
    "nvfp4, weights only": ("nvfp4-pack-quantized", [group(FP4)]),
    "by pattern": ("pack-quantized", [group(INT4, targets=["re:.*mlp.*"])]),
    "two groups": ("pack-quantized", [group(INT4, targets=["re:.*self_attn.*"]), group(INT8, targets=["re:.*down_proj$"])]),
    "pattern ignored": ("pack-quantized", [group(INT4)]),
}
IGNORE = {"pattern ignored": ["re:.*lm_head", "re:.*[qk]_proj$"]}


def line(name):
    form, groups = CASES[name]
    shape = dict(hidden_size=256, intermediate_size=552, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=1000, attention_bias=True)
    quantization = {"quant_method": "compressed-tensors", "quantization_status": "compressed", "format": form, "ignore": IGNORE.get(name, ["lm_head"]),
                    "kv_cache_scheme": None, "config_groups": {f"group_{i}": g for i, g in enumerate(groups)}}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**shape), dtype=torch.bfloat16)
    quantizer = AutoHfQuantizer.from_config(json.loads(json.dumps(quantization)), pre_quantized=True)
    quantizer.validate_environment(device_map="auto")
    quantizer.preprocess_model(model=model, device_map="auto")
    describe = lambda tensors: [[n, list(t.shape), str(t.dtype).removeprefix("torch.")] for n, t in tensors]  # noqa: E731
    modules = {}
    for path, module in model.named_modules():
        parameters, buffers = describe(module.named_parameters(recurse=False)), describe(module.named_buffers(recurse=False))
        if parameters or buffers:
            modules[path] = {"class": type(module).__name__, "parameters": parameters, "buffers": buffers}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", **shape, "quantization_config": quantization}
    return json.dumps({"name": name, "config": config, "modules": modules, "bytes": compute_module_sizes(model, quantizer)[0][""]})


def main():
    lines = [line(name) for name in CASES]
    if "--check" not in sys.argv:
        print("\n".join(lines))
        return 0
    stored = FILE.read_text().splitlines()
    wrong = [name for name, new, old in zip(CASES, lines, stored) if json.loads(new) != json.loads(old)]
    print(f"packed trees: {len(lines) - len(wrong)} of {len(stored)} as {FILE.name} has them")
    for name in wrong:
        print(f"  differs: {name}")
    return 1 if wrong or len(lines) != len(stored) else 0


if __name__ == "__main__":
    sys.exit(main())
