#!/usr/bin/env python3
"""GGUF files that llama.cpp's own converter makes of the golden models, run by Berth against the goldens' logits.

    python tests/libraries/gguf_converter.py --llama.cpp CHECKOUT --test build/release/tests/models/gguf_models_test

CHECKOUT is a source tree of llama.cpp (convert_hf_to_gguf.py and its package `conversion`, gguf-py); needs torch and transformers
from PyPI. Without them it says so and is skipped (exit 77). The goldens have no tokenizer, so none is written.

Their constants are unusual on purpose, and some have no key in GGUF because all published models of the family share them. Those are
added below, by the key that Berth reads, or the folder is left out with the reason.
"""
import argparse
import json
import logging
import math
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("BERTH_SHARED", SOURCE.parent / "shared"))
MODELS = SHARED / "golden/models"

LEFT_OUT = {
    "falcon_7b": "the converter takes num_kv_heads where the model has one key for all",
    "falcon_rw_alibi": "the converter knows no name for its second norm",
    "gemma3n_text": "the converter wants four altup inputs, the golden has three",
    "gptj": "the converter has no GPT-J", "opt": "the converter has no OPT", "opt_350m": "the converter has no OPT",
    "llama_dynamic": "dynamic rope has no key", "mistral": "the window of the llama architecture has no key",
    "qwen2_sliding": "the window of qwen2 has no key", "smollm3": "the list of layers without rope has no key",
    "qwen3_moe": "the converter knows no dense layer among its experts",
    "qwen3_next": "gated delta nets are not read from GGUF", "qwen3_5_moe": "gated delta nets are not read from GGUF",
    "llama4": "not read from GGUF", "llama4_text": "not read from GGUF", "minimax_m3": "not read from GGUF",
}


def missing_keys(name, config):
    """What the converter does not write of this golden: key -> number."""
    rope = config.get("rope_parameters", {})
    rope = rope.get("full_attention", rope)
    keys = {}
    if name in ("gemma", "gemma2", "stablelm", "gpt_neox", "falcon_40b", "phi") and rope.get("rope_theta"):
        keys["rope.freq_base"] = float(rope["rope_theta"])
    if name == "gemma2":
        keys["attention.scale"] = config["query_pre_attn_scalar"] ** -0.5
    if name in ("gemma3", "gemma3_text"):
        keys["attention.scale"] = config["query_pre_attn_scalar"] ** -0.5
    if name.startswith("gpt_oss"):
        keys["swiglu_clamp_exp"] = float(config["swiglu_limit"])
    if name == "qwen3_moe_raw":
        keys["expert_weights_norm"] = False
    if name == "deepseek_v3":  # mscale has no key where it differs from mscale_all_dim
        m = lambda a: 0.1 * a * math.log(rope["factor"]) + 1
        keys["rope.scaling.attn_factor"] = m(rope["mscale"]) / m(rope["mscale_all_dim"])
    return keys


def convert(folder, out, work):
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    config = json.loads((folder / "config.json").read_text())
    text = {**config, **config.get("text_config", {})}
    copy = work / folder.name
    copy.mkdir()
    for file in folder.iterdir():
        if not file.name.startswith("expected"):
            (copy / file.name).symlink_to(file)
    (copy / "tokenizer.json").write_text(json.dumps(
        {"model": {"vocab": {f"t{i}": i for i in range(text["vocab_size"])}}, "added_tokens": []}))
    architecture = get_model_architecture(ModelBase.load_hparams(copy, False), ModelType.TEXT)
    found = get_model_class(architecture, mmproj=False)
    body = {"set_vocab": lambda self: None, "model_arch": found.model_arch, "__module__": found.__module__}
    model = type(found.__name__, (found,), body)(copy, gguf.LlamaFileType.ALL_F32, out, eager=True)
    model.hparams.setdefault("n_ctx", text.get("n_positions"))  # as the published GPT-2's config has it
    rope = getattr(model, "rope_parameters", {})
    model.hparams.setdefault("rotary_pct", text["head_dim"] / (text["hidden_size"] // text["num_attention_heads"])
                             if folder.name == "cohere2" else rope.get("partial_rotary_factor", 1.0))
    for key, value in missing_keys(folder.name, text).items():
        name = f"{model.gguf_writer.arch}.{key}"
        add = model.gguf_writer.add_bool if isinstance(value, bool) else model.gguf_writer.add_float32
        add(name, value)
    if folder.name == "gemma3":  # the runtime's rule is every sixth
        model.gguf_writer.add_sliding_window_pattern([t == "sliding_attention" for t in text["layer_types"]])
    if folder.name in ("phi", "gpt2"):  # written as four times the width, which only published models have
        wide = model.gguf_writer.add_feed_forward_length
        model.gguf_writer.add_feed_forward_length = lambda _: wide(text.get("n_inner") or text["intermediate_size"])
    model.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama.cpp", dest="checkout", required=True)
    parser.add_argument("--test", required=True)
    args = parser.parse_args()
    for folder in (args.checkout, args.checkout + "/gguf-py"):
        sys.path.insert(0, folder)
    try:
        import gguf, torch, transformers  # noqa: F401
        import conversion  # noqa: F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        return 77
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as temporary:
        out, work = pathlib.Path(temporary, "out"), pathlib.Path(temporary, "work")
        out.mkdir(), work.mkdir()
        made = 0
        for folder in sorted(p for p in MODELS.iterdir() if p.is_dir()):
            if folder.name in LEFT_OUT:
                print(f"left out: {folder.name}: {LEFT_OUT[folder.name]}")
                continue
            convert(folder, out / f"{folder.name}.gguf", work)
            made += 1
        print(f"{made} files made by the converter", flush=True)
        return subprocess.run([args.test, "--gtest_filter=GgufModels.OfTheConverterItself"],
                              env={**os.environ, "BERTH_GGUF_FOLDER": str(out)}).returncode


if __name__ == "__main__":
    sys.exit(main())
