"""Plans of published checkpoints, kept in tests/data/plans: a change of strategy shows as a difference to look at, and every
compiler must make the same ones.

    python3 tests/e2e/test_golden_plans.py --rewrite     writes them anew (BERTH and BERTH_SHARED as in berth_command.py)

NAME@MACHINE.txt is the picture that people see. digests.txt has a digest of the whole JSON document for more of them: numbers,
certificate and reasons, byte for byte.
"""
import hashlib
import json
import sys
import tempfile
import unittest
from pathlib import Path

from berth_command import SHARED, SOURCE, CommandTest, berth

PLANS = SOURCE / "tests/data/plans"
MACHINES = {"1x24": [24], "18+10": [18, 10], "24+16+12+8": [24, 16, 12, 8], "4x24": [24] * 4, "8x80": [80] * 8}
PICTURES = (
    ("Llama-3.1-70B", "24+16+12+8", ()),
    ("Qwen3-8B", "18+10", ()),
    ("Qwen3-30B-A3B", "1x24", ()),
    ("gemma-3-27b-it", "18+10", ("--load-in-8bit",)),
    ("gemma-4-E4B-it", "1x24", ("--load-in-4bit", "-c", "8500")),
    ("gpt-oss-120b", "4x24", ()),
    ("MiniMax-M3", "8x80", ("--load-in-4bit", "--quantize-experts")),
    ("DeepSeek-V3", "8x80", ("--load-in-4bit", "--quantize-experts")),
)
DIGESTS = ("Llama-3.1-70B", "Meta-Llama-3-8B", "Mixtral-8x7B-v0.1", "Qwen3-235B-A22B-FP8", "Qwen3-30B-A3B", "Qwen3-Next-80B-A3B", "SmolLM2-135M",
           "gemma-3-27b-it", "gemma-3n-E4B-text", "gemma-4-31B-it", "gpt-oss-20b", "phi-2")


def machine_file(folder, name):
    devices = [{"id": f"emu:{k}", "kind": "emulated", "memory_bytes": size << 30, "read_bytes_per_s": 9e11, "flops_per_s": 6e13,
                "link_bytes_per_s": 2.5e10, "link_latency_s": 1e-5} for k, size in enumerate(MACHINES[name])]
    devices.append({"id": "cpu", "kind": "cpu", "memory_bytes": 512 << 30, "read_bytes_per_s": 4e10, "flops_per_s": 5e11})
    path = Path(folder) / f"{name}.json"
    path.write_text(json.dumps({"devices": devices}))
    return path


def plan(folder, model, machine, *options):
    return berth("plan", SHARED / "checkpoints" / model / "config.json", "--machine", machine_file(folder, machine), "--threads", "4", "--color", "never",
                 *options)


def picture(folder, model, machine, options):
    ran = plan(folder, model, machine, *options)
    return f"$ berth plan {model} on {machine} {' '.join(options)}".rstrip() + f"\n{ran.out or ran.err}exit status {ran.status}\n"


def digest(folder, model, machine):
    document = json.loads(plan(folder, model, machine, "--json").out)
    document.pop("inputs", None)  # names this machine's paths
    document.pop("berth", None)   # the version
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def all_digests(folder):
    return "".join(f"{digest(folder, model, machine)}  {model}@{machine}\n" for model in DIGESTS for machine in ("1x24", "18+10", "24+16+12+8"))


class GoldenPlans(CommandTest):
    def setUp(self):
        self.need(SHARED / "checkpoints")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_pictures(self):
        for model, machine, options in PICTURES:
            with self.subTest(model=model, machine=machine):
                self.assertEqual(picture(self.folder.name, model, machine, options), (PLANS / f"{model}@{machine}.txt").read_text())

    def test_documents_byte_for_byte(self):
        self.assertEqual(all_digests(self.folder.name).splitlines(), (PLANS / "digests.txt").read_text().splitlines())


def rewrite():
    PLANS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for model, machine, options in PICTURES:
            (PLANS / f"{model}@{machine}.txt").write_text(picture(folder, model, machine, options))
        (PLANS / "digests.txt").write_text(all_digests(folder))


if __name__ == "__main__":
    if "--rewrite" in sys.argv:
        rewrite()
    else:
        unittest.main()
