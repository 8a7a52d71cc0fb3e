"""Exported plans, read by what they are for: llama.cpp's rules over every tensor name of a GGUF, device maps by the libraries' own
checks, vLLM's options by its own parser.

    BERTH_LIBRARIES_PYTHON  a Python that has gguf, torch, transformers, accelerate, vllm or some of them (default: that of
                            scripts/gates' libraries, else this one)

Tests whose package is missing are skipped by name, with CI=true as well: they are large, and the project does without.
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from berth_command import SHARED, SOURCE, CommandTest

KEPT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "berth/libraries/bin/python"
PYTHON = os.environ.get("BERTH_LIBRARIES_PYTHON", str(KEPT) if KEPT.exists() else sys.executable)
CHECKPOINTS = SHARED / "checkpoints"
GIB = 1 << 30

# The libraries' own views, run in the Python that has them: what they print is compared here.
GGUF_NAMES = """
import json, sys, gguf
arch, layers, names = json.load(sys.stdin)
table = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch], layers)
print(json.dumps([table.get_name(n, try_suffixes=(".weight", ".bias")) for n in names]))
"""
DEVICE_MAPS = """
import json, os, sys
os.environ["CUDA_VISIBLE_DEVICES"], os.environ["HF_HUB_OFFLINE"] = "", "1"
import torch
from accelerate.utils.modeling import check_device_map
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.accelerate import expand_device_map
config, text = json.load(sys.stdin)
names = {}
exec(text.split("\\n\\n")[1], names)  # device_map = {...}, as pasted
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config))
check_device_map(model, names["device_map"])  # raises where a parameter or buffer has no device
expanded = expand_device_map(names["device_map"], [n for n, _ in model.named_parameters()])
print(json.dumps({k: str(v) for k, v in expanded.items()}))
"""
VLLM_OPTIONS = (SOURCE / "tests/libraries/vllm_parser.py").read_text()


def card(number, size):
    return {"id": f"emu:{number}", "kind": "emulated", "memory_bytes": int(size), "read_bytes_per_s": 9e11, "flops_per_s": 6e13,
            "link_bytes_per_s": 2.5e10, "link_latency_s": 1e-5}


class Exports(CommandTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def plan(self, name, shares, target, *options):
        """A plan of a published checkpoint on cards of these shares of its size, and its document's path."""
        config = self.need(CHECKPOINTS / name / "config.json")
        size = 2 * self.succeeds("inspect", config, "--json").json()["model"]["parameters"]  # 16 bit
        machine = Path(self.folder.name) / "machine.json"
        devices = [card(k, share * size + 2 * GIB) for k, share in enumerate(shares)]
        devices.append({"id": "cpu", "kind": "cpu", "memory_bytes": int(4 * size + 8 * GIB), "read_bytes_per_s": 4e10, "flops_per_s": 5e11})
        machine.write_text(json.dumps({"devices": devices}))
        text = self.succeeds("plan", config, "--machine", machine, "--target", target, *options, "--json").out
        path = Path(self.folder.name) / "plan.json"
        path.write_text(text)
        return json.loads(text), path

    def ask(self, package, script, question):
        done = subprocess.run([PYTHON, "-c", script], input=json.dumps(question), capture_output=True, text=True, timeout=300)
        if "No module named" in done.stderr:
            self.skipTest(f"{package} is not installed for {PYTHON} (BERTH_LIBRARIES_PYTHON)")
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return json.loads(done.stdout.strip().splitlines()[-1])

    def tensor_names(self, name):
        rows = self.need(CHECKPOINTS / name / "tensors.tsv").read_text().splitlines()[1:]
        return [row.split("\t")[0] for row in rows]

    # --- llama.cpp ---

    def llama_cpp_device(self, options, layers):
        """Where llama.cpp puts a tensor under these options: the first rule that is found in its name, else its layer's card."""
        words = shlex.split(options.replace("\\\n", " "))
        rules = [words[k + 1].rsplit("=", 1) for k, w in enumerate(words) if w == "--override-tensor"]
        after = lambda option, default: words[words.index(option) + 1] if option in words else default
        devices = after("--device", "CUDA0").split(",")
        split = [float(x) for x in after("--tensor-split", ",".join("1" for _ in devices)).split(",")]
        self.assertEqual(after("--fit", None), "off")
        self.assertEqual(len(split), len(devices))
        total, borders = 0.0, []
        for share in split:
            total += share
            borders.append(total)

        def device(tensor):
            for pattern, buffer in rules:
                if re.search(pattern, tensor):
                    return buffer
            if tensor.startswith("token_embd"):
                return "CPU"
            block = re.match(r"blk\.(\d+)\.", tensor)
            layer = int(block.group(1)) if block else layers
            return devices[sum(1 for b in borders if b / total <= layer / (layers + 1))]

        return device

    def check_llama_cpp(self, name, arch, layers, shares, renamed=lambda n: n):
        document, path = self.plan(name, shares, "llama.cpp", "-c", "2048")
        device = self.llama_cpp_device(self.succeeds("export", path, "--to", "llama.cpp").out, layers)
        names = self.tensor_names(name)
        stored = [renamed(re.sub(r"\.experts\.\d+\.", ".experts.", n)) for n in names]
        gguf = self.ask("gguf", GGUF_NAMES, [arch, layers, stored])
        map_ = document["device_map"]
        checked = 0
        for hf, tensor in zip(names, gguf):
            if tensor is None or "rotary" in hf or "inv_freq" in hf:
                continue
            path_ = hf
            while path_ not in map_ and path_:
                path_ = path_.rpartition(".")[0]
            want = map_[path_]
            self.assertEqual(device(tensor), "CPU" if want == "cpu" else f"CUDA{want}", f"{name}: {hf} is {tensor}")
            checked += 1
        self.assertGreater(checked, layers * 5)
        return checked, {str(v) for v in map_.values()}

    def test_llama_cpp_puts_every_tensor_where_the_plan_has_it(self):
        for name, arch, layers, shares in (
                ("Llama-3.1-70B", "LLAMA", 80, (0.3, 0.2)),
                ("Llama-3.1-70B", "LLAMA", 80, (0.1, 0.3, 0.2)),
                ("Qwen3-8B", "QWEN3", 36, (0.2, 0.3)),
                ("Qwen3-30B-A3B", "QWEN3MOE", 48, (0.2, 0.15))):
            with self.subTest(name=name, shares=shares):
                checked, used = self.check_llama_cpp(name, arch, layers, shares)
                print(f"llama.cpp: {name} on {len(shares)} cards: {checked} tensors where the plan has them, devices {sorted(used)}")
                self.assertIn("cpu", used)

    # --- transformers, accelerate ---

    def test_the_libraries_accept_the_maps(self):
        for name, target in (("Qwen3-8B", "transformers"), ("gemma-3-4b-it", "accelerate"), ("SmolLM2-135M", "transformers")):
            with self.subTest(name=name, target=target):
                document, path = self.plan(name, (0.3, 0.2), "transformers", "-c", "2048")
                text = self.succeeds("export", path, "--to", target).out
                expanded = self.ask("transformers", DEVICE_MAPS, [str(CHECKPOINTS / name / "config.json"), text])
                units = {p: str(u["device"]) for u in document["units"] for p in u["paths"]}
                compared = 0
                for tensor, where in expanded.items():
                    path_ = tensor
                    while path_ not in units and path_:
                        path_ = path_.rpartition(".")[0]
                    if path_:
                        self.assertEqual(where, units[path_], tensor)
                        compared += 1
                self.assertGreater(compared, len(expanded) * 0.5)  # vision towers are no units of a plan
                print(f"{target}: {name}: map accepted, {compared} parameters where the plan has them")

    # --- vLLM ---

    # The options as its documentation has them (0.8 to 0.27), by type.
    VLLM_DOCUMENTED = {"--pipeline-parallel-size": int, "--max-model-len": int, "--max-num-seqs": int, "--cpu-offload-gb": float,
                       "--gpu-memory-utilization": float, "--dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
                       "--quantization": ("awq", "gptq", "fp8", "bitsandbytes", "compressed-tensors")}

    def vllm_options(self, path):
        """Environment and options of an export, parsed as documented: anything else ends the test."""
        words = shlex.split(self.succeeds("export", path, "--to", "vllm").out.replace("\\\n", " "))
        environment = dict(w.split("=", 1) for w in words[:words.index("vllm")])
        words = words[words.index("vllm"):]
        self.assertEqual(words[:2], ["vllm", "serve"])
        parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
        for name, kind in self.VLLM_DOCUMENTED.items():
            parser.add_argument(name, **({"choices": kind} if isinstance(kind, tuple) else {"type": kind}))
        parsed, unknown = parser.parse_known_args(words[3:])
        self.assertEqual(unknown, [])
        return environment, parsed

    VLLM_CASES = (((0.5, 0.4), (), 2, None), ((0.3, 0.3, 0.4), (), 3, None), ((0.3,), (), 1, None), ((0.1, 1.2), ("--pin", "*=1"), 1, "1"),
                  ((0.6, 0.6), ("--load-in-4bit", "--device-map", "balanced"), 2, None), ((0.6,), ("--load-in-8bit",), 1, None))

    def test_vllm_options_are_the_documented_ones(self):
        for shares, options, stages, visible in self.VLLM_CASES:
            with self.subTest(shares=shares):
                document, path = self.plan("Qwen3-8B", shares, "berth", "-c", "2048", *options)
                environment, found = self.vllm_options(path)
                partition = [int(n) for n in environment.get("VLLM_PP_LAYER_PARTITION", "36").split(",")]
                self.assertEqual((sum(partition), len(partition)), (36, stages))  # one number a stage, all layers
                self.assertGreater(min(partition), 0)
                self.assertEqual(found.pipeline_parallel_size or 1, stages)
                self.assertEqual(environment.get("CUDA_VISIBLE_DEVICES"), visible)
                self.assertEqual((found.max_model_len, found.max_num_seqs), (2048, 1))
                self.assertTrue(0 < found.gpu_memory_utilization < 1)
                self.assertEqual(found.quantization, "bitsandbytes" if options[:1] == ("--load-in-4bit",) else None)
                self.assertEqual(found.cpu_offload_gb is not None, any(u["device"] == "cpu" for u in document["units"]))

    def test_vllm_takes_the_options(self):
        """What vLLM's own parser makes of them is what its documentation says."""
        exports = []
        for shares, options, _, _ in self.VLLM_CASES:
            _, path = self.plan("Qwen3-8B", shares, "berth", "-c", "2048", *options)
            ran = self.succeeds("export", path, "--to", "vllm")
            words = shlex.split(ran.out.replace("\\\n", " "))
            words = words[words.index("vllm"):]
            exports.append((["--model", words[2], *words[3:]], self.vllm_options(path)[1], ran.err))
        answers = self.ask("vllm", VLLM_OPTIONS, [words for words, _, _ in exports])
        self.assertEqual(len(answers), len(exports))
        for found, (words, documented, notes) in zip(answers, exports):
            with self.subTest(words=words):
                self.assertEqual(found["model"], words[1])
                for name, value in vars(documented).items():
                    if value is not None:
                        self.assertEqual(found[name], value, name)
                if not found["knows_quantization"]:
                    self.assertIn("vLLM had bitsandbytes", notes)


if __name__ == "__main__":
    unittest.main()
