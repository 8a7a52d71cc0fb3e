#!/usr/bin/env python3
"""Quantized checkpoints with random models and random options, beside Transformers + bitsandbytes on the CPU.

    python tests/libraries/random_checkpoints.py --berth build/release/cli/berth [--seeds 1:3] [--files 100] [FAMILY...]

Each golden family with a random config (random_models.py) in a random dtype x a random BitsAndBytesConfig, load dtype and shard size:

1. `berth quantize` and the library write the same tensors, quantization_config and index names;
2. the library loads what Berth wrote, without missing or unexpected tensors, to the same values;
3. `berth plan --compat transformers` counts get_memory_footprint(), on load and of the saved folder;
4. Berth's logits of the library's folder are those of a float32 model with the dequantized weights, and the same bits on the cpu,
   two emulated devices, the disk, quantized on load, and from Berth's own folder.

--files N: N bare .safetensors of odd shapes, values (NaN, infinities, denormals, zeros, outliers) and block sizes, byte for byte.
What both refuse counts as equal, what Berth alone refuses as unsupported is counted apart and shown; what the library cannot build, load or
run is skipped or left out, by name. Exit 77 without the libraries.
"""
import argparse
import ctypes
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import zlib

# The goldens' machine: AVX2. With AVX-512 torch rounds otherwise, and bitsandbytes reads rows that are no whole blocks wrongly.
os.environ["ATEN_CPU_CAPABILITY"] = "avx2"
SOURCE = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.setdefault("BERTH_SHARED", str(SOURCE.parent / "shared")))
sys.path[:0] = [str(SOURCE / "tests/libraries"), str(SHARED / "golden/bitsandbytes")]
try:
    import numpy
    import bitsandbytes.functional as F
    import bitsandbytes.backends.cpu.ops as bnb_cpu
    import make_checkpoints as golden
    import quantized_checkpoints as pairs
    import random_models as rm
    import torch
    import transformers
    from safetensors import safe_open
    from safetensors.torch import save_file
    from transformers import BitsAndBytesConfig
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DTYPES = ("float32", "bfloat16", "float16")
STORAGES = ("uint8", "int8", "float16", "bfloat16", "float32", "float64")
CPU = {"": "cpu"}
BERTH = ""


class FlatDequantizer:
    """bitsandbytes' CPU library, its 4-bit dequantizer fed one row of a length that takes the plain path (as without AVX-512)."""

    def __init__(self, library):
        self.library = library

    def __getattr__(self, name):
        function = getattr(self.library, name)
        if not name.startswith("cdequantize_blockwise_cpu_") or ("nf4" not in name and "fp4" not in name):
            return function
        size = 4 if name.endswith("fp32") else 2

        def call(codes, absmax, out, block, rows, cols):
            count, block = rows.value * cols.value, block.value
            padded = count + (2 if count % 16 == 0 else 0)
            buffers = (ctypes.c_uint8 * (padded // 2 + 16))(), (ctypes.c_float * (padded // block + 2))(), (ctypes.c_uint8 * (padded * size + 64))()
            ctypes.memmove(buffers[0], codes, count // 2)
            ctypes.memmove(buffers[1], absmax, -(-count // block) * 4)
            pointers = (ctypes.cast(b, ctypes.c_void_p) for b in buffers)
            function(*pointers, ctypes.c_longlong(block), ctypes.c_longlong(1), ctypes.c_longlong(padded))
            ctypes.memmove(out, buffers[2], count * size)

        return call


def berth(*arguments):
    return subprocess.run([BERTH, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def said(run):
    return (run.stdout + run.stderr)[-400:]


# --- checkpoints


def make_model(name, r, seed, folder):
    spec = rm.mm.FAMILIES[name]
    sizes = rm.mm.Z(rm.rand_sizes(r))
    config = rm.mutate(name, {"architectures": [spec["cls"]], **spec["make"](sizes)}, r, sizes)
    cls = getattr(transformers, spec["cls"])
    config = cls.config_class.from_dict(json.loads(json.dumps(config)))
    parts = [config] + [p for p in (getattr(config, k, None) for k in ("text_config", "vision_config", "audio_config")) if p is not None]
    for part in parts:
        part._attn_implementation = part._experts_implementation = "eager"
    torch.manual_seed(seed)
    model = cls._from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    rm.mm.fill(model, model.config, seed)
    dtype = r.choice(DTYPES)
    model = model.to(getattr(torch, dtype))
    for part in parts:
        part.dtype = getattr(torch, dtype)
    if r.random() < 0.5:
        g = model.generation_config
        g.temperature, g.top_p, g.do_sample = 0.7, 0.9, True
    model.save_pretrained(folder, **({"max_shard_size": "60KB"} if r.random() < 0.3 else {}))
    return cls, model


def random_options(r, model):
    """(BitsAndBytesConfig's arguments, the command's options)."""
    config, options = {}, []

    def add(key, value):
        options.extend(["--" + key.replace("_", "-")] + ([] if value is True else [str(value).removeprefix("torch.")]))
        config[key] = value

    if r.random() < 0.65:
        add("load_in_4bit", True)
        add("bnb_4bit_quant_type", r.choice(["nf4", "nf4", "fp4"]))
        if r.random() < 0.5:
            add("bnb_4bit_use_double_quant", True)
        if r.random() < 0.5:
            add("bnb_4bit_compute_dtype", getattr(torch, r.choice(DTYPES)))
        if r.random() < 0.4:
            add("bnb_4bit_quant_storage", getattr(torch, r.choice(STORAGES)))
    else:
        add("load_in_8bit", True)
    if r.random() < 0.4:
        add("llm_int8_threshold", r.choice([0.0, 3.0, 4.5, 6.0, 7.25]))
    if r.random() < 0.5:
        names = [n for n, m in model.named_modules() if isinstance(m, (torch.nn.Linear, transformers.pytorch_utils.Conv1D))]
        skip = []
        for _ in range(r.randint(1, 3)):
            parts = r.choice(names).split(".")
            skip.append(r.choice([parts[-1], ".".join(parts), ".".join(parts[: r.randint(1, len(parts))]), ".".join(parts[-r.randint(1, len(parts)) :])]))
        # Without the head of a tied model the library writes what it cannot run.
        skip = list(dict.fromkeys(skip + (["lm_head"] if "lm_head" in names else [])))
        options += ["--llm-int8-skip-modules", ",".join(skip)]
        config["llm_int8_skip_modules"] = skip
    return config, options


def reference_logits(cls, folder, ids):
    golden.eager = lambda path, **k: cls.from_pretrained(path, attn_implementation="eager", device_map=CPU, **k).eval()
    model = golden.dequantized_fp32(folder)
    for part in (model.config, getattr(model.config, "text_config", None)):
        if part is not None:
            part._experts_implementation = "eager"
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def check_checkpoint(name, seed, work):
    """(what differs, what was left out)."""
    r = random.Random(seed * 100003 + zlib.crc32(name.encode()) + 77)
    source, ours, theirs = (f"{work}/{n}" for n in ("source", "berth", "library"))
    cls, model = make_model(name, r, seed, source)
    config, options = random_options(r, model)
    load = r.choice([None, None, None, *DTYPES])
    shard = r.choice([None, None, "40KB", "100KB"])
    options += ["--dtype", load] if load else []
    print(f"    {' '.join(options)}", flush=True)
    refused = None
    try:
        library = cls.from_pretrained(source, quantization_config=BitsAndBytesConfig(**config), device_map=CPU, attn_implementation="eager",
                                      **({"dtype": getattr(torch, load)} if load else {}))
        library.save_pretrained(theirs, **({"max_shard_size": shard} if shard else {}))
    except Exception as error:
        refused = f"{type(error).__name__}: {str(error)[:120]}"
    done = berth("quantize", source, ours, *options, *(["--max-shard-size", shard] if shard else []))
    if done.returncode and refused:
        return [], [f"both refuse: {refused}"]
    if done.returncode and "berth: unsupported" in done.stderr:
        return [], [f"refused: {said(done)}"]
    if done.returncode or refused:
        return [f"only one refuses: {refused or said(done)}"], []
    bad, left_out = pairs.differences(pairs.tensors(ours), pairs.tensors(theirs)), []
    configs = [json.loads(pathlib.Path(f, "config.json").read_text())["quantization_config"] for f in (ours, theirs)]
    if configs[0] != configs[1]:
        bad.append(f"quantization_config: {configs[0]} against {configs[1]}")
    again = None
    try:
        again, report = cls.from_pretrained(theirs, device_map=CPU, attn_implementation="eager", output_loading_info=True)
        if report["missing_keys"] or report["unexpected_keys"]:
            raise RuntimeError(f"missing {sorted(report['missing_keys'])[:1]}")
    except Exception as error:
        again = None
        left_out.append(f"the library does not load what it wrote: {type(error).__name__}: {str(error)[:100]}")
    if again is not None:
        loaded, report = cls.from_pretrained(ours, device_map=CPU, attn_implementation="eager", output_loading_info=True)
        bad += [f"loading: {k}: {sorted(report[k])[:3]}" for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if report.get(k)]
        bad += pairs.weight_differences(loaded, again)
    for arguments, footprint in (((source, *options), library.get_memory_footprint()), ((theirs,), again.get_memory_footprint() if again else None)):
        plan = berth("plan", *arguments, "--json", "--device-map", "cpu", "--compat", "transformers")
        counted = json.loads(plan.stdout).get("memory_footprint_bytes", said(plan))
        if footprint is not None and counted != footprint:
            bad.append(f"footprint: {counted}, the library {footprint}")

    text = model.config.get_text_config()
    high = min(text.vocab_size - 8, getattr(text, "vocab_size_per_layer_input", None) or 10**9)
    ids = [random.Random(seed).randrange(4, high) for _ in range(12)]
    pathlib.Path(work, "ids.json").write_text(json.dumps(ids))
    hashes = {}
    places = {"cpu": (theirs, "--device-map", "cpu", "-t", "1"), "two devices": (theirs, "--emulate", "2x1GiB", "--device-map", "balanced"),
              "disk": (theirs, "--device-map", "disk", "--offload-folder", f"{work}/disk"), "on load": (source, "--device-map", "cpu", *options),
              "ours": (ours, "--device-map", "cpu", "--isa", "ref")}
    for place, arguments in places.items():
        done = berth("eval", *arguments, "--tokens", f"{work}/ids.json", "--logits", f"{work}/{place}.safetensors", "-c", 40, "--kv-dtype", "float32", "--json")
        if done.returncode:
            (left_out if '"unsupported"' in done.stdout else bad).append(f"{place}: {said(done)}")
        else:
            hashes[place] = json.loads(done.stdout)["logits_hash"]
    if len(set(hashes.values())) > 1:
        # A router in 16 bits that the library keeps (and writes) in 32: another storage format, other bits.
        saved = pairs.tensors(theirs)
        stored = {n: t.dtype for n, t in pairs.tensors(source).items()}
        widened = any(n.endswith("gate.weight") and t.dtype == torch.float32 != stored.get(n) for n, t in saved.items())
        hashes.pop("on load" if widened else "", None)
        if len(set(hashes.values())) > 1:
            bad.append(f"other bits: {hashes}")
    if again is not None and "cpu" in hashes:
        try:
            expected = reference_logits(cls, theirs, ids)
        except Exception as error:
            return bad, left_out + [f"the library does not run it: {type(error).__name__}: {str(error)[:100]}"]
        got = safe_open(f"{work}/cpu.safetensors", "pt").get_tensor("logits")
        if not (got - expected).abs().max() <= 2e-4 * expected.abs().max():
            bad.append(f"logits differ by {(got - expected).abs().max():.2e} of {expected.abs().max():.2f}")
    return bad, left_out


# --- bare files


def odd_matrix(r, dtype):
    rows, cols = r.choice([(r.randint(1, 60), r.randint(1, 300)), (r.randint(1, 300), 64 * r.randint(1, 30)), (1, r.randint(1, 5000)), (r.randint(60, 700), r.choice([72, 96, 1076]))])
    n, g = rows * cols, numpy.random.default_rng(r.randrange(2**31))
    values = r.choice([
        lambda: g.standard_normal(n) * 0.04, lambda: g.standard_normal(n) * 0.04,
        lambda: numpy.sign(g.standard_normal(n)) * numpy.exp2(g.uniform(-140, 14 if dtype == "float16" else 100, n)),
        lambda: g.standard_normal(n) * (g.random(n) < 0.02), lambda: g.choice([0.3, -0.3, 0.1, 0.0, -0.0], n),
        lambda: g.integers(-16, 17, n) / 16.0 * g.choice([1, 3, 0.7]), lambda: g.standard_normal(n) * numpy.where(g.random(n) < 0.005, 20, 0.02),
        lambda: g.choice([0.0, -0.0, 1e-45, -1e-45, 1e-38, -1e-38, 1.2e-38, 1e-30], n)])()
    if r.random() < 0.25:
        values[[r.randrange(n) for _ in range(2)]] = [r.choice([numpy.nan, numpy.inf, -numpy.inf]) for _ in range(2)]
    return torch.from_numpy(values.astype(numpy.float32)).to(getattr(torch, dtype)).reshape(rows, cols)


def check_file(r, work):
    dtype, kind = r.choice(DTYPES), r.choice(["nf4", "fp4", "int8"])
    tensors = {f"layers.{i}.x.weight": odd_matrix(r, dtype) for i in range(r.randint(1, 5))}
    tensors["bias"], tensors["ids"] = torch.randn(17).to(getattr(torch, dtype)), torch.arange(6)
    block, nested, storage, load = r.choice([32, 64, 64, 64, 128, 256, 512, 1024, 2048, 4096]), r.random() < 0.5, r.choice(("uint8",) * 6 + STORAGES), r.choice([None, None, *DTYPES])
    options = ["--load-in-8bit"] if kind == "int8" else ["--load-in-4bit", "--bnb-4bit-quant-type", kind, "--bnb-4bit-blocksize", block, "--bnb-4bit-quant-storage", storage]
    options += ["--bnb-4bit-use-double-quant"] * (nested and kind != "int8") + (["--dtype", load] if load else [])
    options += ["--isa", r.choice(["auto", "ref", "avx2"]), "-t", r.randint(1, 3)]
    save_file(tensors, f"{work}/in.safetensors")
    done = berth("quantize", f"{work}/in.safetensors", f"{work}/out.safetensors", *options)
    expected, refused = {}, None
    for name, x in tensors.items():
        x = x.to(getattr(torch, load)) if load and x.is_floating_point() else x
        if x.dim() != 2:
            expected[name] = x
        elif kind == "int8":
            expected[name], expected[name.removesuffix("weight") + "SCB"], _ = F.int8_vectorwise_quant(x.half())
            expected[name + "_format"] = torch.tensor(0, dtype=torch.uint8)
        else:
            try:
                expected[name], state = F.quantize_4bit(x, blocksize=block, quant_type=kind, compress_statistics=nested, quant_storage=getattr(torch, storage))
                expected.update({f"{name}.{k}": v for k, v in state.as_dict(packed=True).items()})
            except Exception as error:
                refused = str(error)
    if done.returncode or refused:
        return [] if done.returncode and refused else [f"{options}: only one refuses: {refused or said(done)}"]
    with safe_open(f"{work}/out.safetensors", "pt") as f:
        got = {k: f.get_tensor(k) for k in f.keys()}
    if got.keys() != expected.keys():
        return [f"{options}: names {sorted(got.keys() ^ expected.keys())[:4]}"]
    bad = []
    for name, a in got.items():
        b = expected[name]
        if ".quant_state." in name:
            same = str(json.loads(bytes(a.tolist()))) == str(json.loads(bytes(b.tolist())))  # NaN as a text
        else:
            same = a.dtype == b.dtype and a.shape == b.shape
            if same and a.dtype == torch.float32:  # any NaN is as good as another
                same, a, b = torch.equal(a.isnan(), b.isnan()), a.nan_to_num(nan=0), b.nan_to_num(nan=0)
            same = same and torch.equal(pairs.raw(a), pairs.raw(b))
        if not same:
            bad.append(f"{options}: {name} of {dtype} {list(tensors.get(name, a).shape)} differs")
    return bad


def main():
    global BERTH
    parser = argparse.ArgumentParser()
    parser.add_argument("--berth", default=str(SOURCE / "build/release/cli/berth"))
    parser.add_argument("--seeds", default="1:2", help="FIRST:END")
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    BERTH = args.berth
    torch.set_num_threads(1)
    bnb_cpu.lib, bnb_cpu._has_avx512 = FlatDequantizer(bnb_cpu.lib), False
    count = {"equal": 0, "different": 0, "refused": 0, "skipped": 0}
    r = random.Random(args.seeds)
    for number in range(args.files):
        with tempfile.TemporaryDirectory() as work:
            bad = check_file(r, work)
        count["different" if bad else "equal"] += 1
        for line in bad[:3]:
            print(f"different  file {number}: {line}", flush=True)
    first, end = map(int, args.seeds.split(":"))
    quantized_already = {"gpt_oss_mxfp4", "qwen3_fp8", "qwen3_fp8_edge"}
    for name in args.families or [f for f in rm.mm.FAMILIES if f not in quantized_already]:
        for seed in range(first, end):
            try:
                with tempfile.TemporaryDirectory() as work:
                    bad, left_out = check_checkpoint(name, seed, work)
            except Exception as error:  # such a config does not exist
                count["skipped"] += 1
                print(f"skipped    {name} {seed}: {type(error).__name__}: {str(error)[:120]}", flush=True)
                continue
            verdict = "different" if bad else "refused" if left_out and left_out[0].startswith("refused") else "equal"
            count[verdict] += 1
            print(f"{verdict:10} {name} {seed}" + "".join(f"\n    {b[:500]}" for b in bad) + "".join(f"\n    . {n[:200]}" for n in left_out), flush=True)
    print(", ".join(f"{n} {k}" for k, n in count.items()))
    return 1 if count["different"] or not count["equal"] else 0


if __name__ == "__main__":
    sys.exit(main())
