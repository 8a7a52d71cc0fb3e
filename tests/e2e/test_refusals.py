"""Every refusal offers at least two ways out, and every way out is one: taken, the plan is there.

A property over published checkpoints and machines too small for them. BERTH_ALL_REFUSALS=1 tries every checkpoint (minutes).
"""
import json
import os
import re
import shlex
import tempfile
import unittest
from pathlib import Path

from berth_command import SHARED, CommandTest, berth

MODELS = ("DeepSeek-V3", "gemma-3-27b-it", "gemma-4-E4B-it", "gpt-oss-20b", "Llama-3.1-8B-Instruct-bnb-int8", "SmolLM2-135M")
# Parts of what the model's weights take: accelerators, then the host.
MACHINES = {"one small card": ([0.3], 0.5), "four small cards": ([0.05] * 4, 0.7), "two unequal cards, hardly too small": ([0.3, 0.2], 0.49),
            "no card": ([], 0.6), "cards alone": ([0.31] * 3, 0)}
WIDTHS = ((), ("--load-in-4bit", "-c", "1024"))


def machine(cards, host):
    devices = [{"id": f"emu:{k}", "kind": "emulated", "memory_bytes": size, "read_bytes_per_s": 9e11, "flops_per_s": 6e13,
                "link_bytes_per_s": 2.5e10, "link_latency_s": 1e-5} for k, size in enumerate(cards)]
    return {"devices": devices + [{"id": "cpu", "kind": "cpu", "memory_bytes": host, "read_bytes_per_s": 4e10, "flops_per_s": 5e11}]}


class Refusals(CommandTest):
    def setUp(self):
        self.need(SHARED / "checkpoints")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def plan(self, model, described, *options):
        path = Path(self.folder.name) / "machine.json"
        path.write_text(json.dumps(described))
        ran = berth("plan", SHARED / "checkpoints" / model / "config.json", "--machine", path, "--threads", "4", "--json", "--quiet", *options)
        return ran.status, json.loads(ran.out)

    def changed(self, described, remedy):
        """The machine as the remedy wants it, and the options to add."""
        cards = [d["memory_bytes"] for d in described["devices"] if d["kind"] != "cpu"]
        host = described["devices"][-1]["memory_bytes"]
        if remedy["option"]:
            return described, shlex.split(remedy["option"])
        if match := re.match(r"device (\w+) with ", remedy["change"]):
            if match[1] == "cpu":
                return machine(cards, host + remedy["saves_bytes"]), []
            cards[int(match[1])] += remedy["saves_bytes"]
        elif re.match(r"all \d+ accelerators with ", remedy["change"]):
            cards = [(sum(cards) + remedy["saves_bytes"]) // len(cards)] * len(cards)
        elif match := re.match(r"(\d+) more accelerators? of ", remedy["change"]):
            cards += [remedy["saves_bytes"] // int(match[1])] * int(match[1])
        elif remedy["change"].startswith("an accelerator of "):
            cards = [remedy["saves_bytes"]]
        else:
            self.fail(f"a remedy of a new kind: {remedy}")
        return machine(cards, host), []

    def try_case(self, model, options, name):
        status, document = self.plan(model, machine([1 << 46], 1 << 46), *options)
        self.assertEqual(status, 0, document)
        total = sum(d["weights_bytes"] for d in document["devices"])
        cards, host = MACHINES[name]
        described = machine([int(part * total) for part in cards], max(1, int(host * total)))
        status, document = self.plan(model, described, *options)
        if status == 0:
            return 0
        self.assertEqual(status, 3, document)
        error = document["error"]
        self.assertGreaterEqual(len(error["details"]["remedies"]), 2, error)
        for remedy in error["details"]["remedies"]:
            described_then, added = self.changed(described, remedy)
            status, then = self.plan(model, described_then, *options, *added)
            self.assertEqual(status, 0, (remedy, then))
        return 1

    def test_every_refusal_has_two_ways_out_that_lead_somewhere(self):
        everything = os.environ.get("BERTH_ALL_REFUSALS") == "1"
        models = sorted(p.parent.name for p in (SHARED / "checkpoints").glob("*/config.json")) if everything else MODELS
        cases = [(m, w, k) for m in models for w in WIDTHS for k in MACHINES]
        refused = 0
        for index, (model, options, name) in enumerate(cases):
            if not everything and index % 4:  # every fourth, so that each model, width and machine occurs
                continue
            with self.subTest(model=model, options=options, machine=name):
                refused += self.try_case(model, options, name)
        print(f"{refused} refusals")
        self.assertGreater(refused, 0)


if __name__ == "__main__":
    unittest.main()
