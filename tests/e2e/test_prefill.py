"""What reading a prompt costs where part of a model is off the accelerators: said plainly, with what --prefill-room changes; and such
plans run as they are planned."""
import json
import re
import tempfile
import unittest
from pathlib import Path

from berth_command import SHARED, STORIES, CommandTest

PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her friends. One day she saw a ball"


def machine(cards, host, latency=1e-5, host_flops=5e11):
    devices = [{"id": f"emu:{k}", "kind": "emulated", "memory_bytes": size, "read_bytes_per_s": 9e11, "flops_per_s": 6e13,
                "link_bytes_per_s": 2.5e10, "link_latency_s": latency} for k, size in enumerate(cards)]
    return {"devices": devices + [{"id": "cpu", "kind": "cpu", "memory_bytes": host, "read_bytes_per_s": 4e10, "flops_per_s": host_flops}]}


class Prefill(CommandTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def machine(self, *arguments, **options):
        path = Path(self.folder.name) / "machine.json"
        path.write_text(json.dumps(machine(*arguments, **options)))
        return path

    def test_a_slow_prompt_is_said_with_what_would_change_it(self):
        """Llama-3.1-405B in 16 bit on 8 x 80 GiB: the cards are full, and 118 GiB compute on the cpu."""
        model = self.need(SHARED / "checkpoints/Llama-3.1-405B/config.json")
        options = ("plan", model, "--machine", self.machine([80 << 30] * 8, 1 << 40), "--threads", "4", "--json")
        plain = self.succeeds(*options).json()
        said = [w for w in plain["warnings"] if w.startswith("Reading a prompt")]
        self.assertEqual(len(said), 1, plain["warnings"])
        match = re.search(r"With --prefill-room (\S+) they can be brought to accelerators: about (\S+) tokens/s prefilling instead of (\S+), "
                          r"(\S+) decoding instead of (\S+)\.$", said[0])
        self.assertTrue(match, said)
        roomy = self.succeeds(*options, "--prefill-room", match[1]).json()
        for text, rate in zip(match.groups()[1:], (roomy["estimate"]["prefill_tokens_per_s"], plain["estimate"]["prefill_tokens_per_s"],
                                                   roomy["estimate"]["decode_tokens_per_s"], plain["estimate"]["decode_tokens_per_s"])):
            self.assertEqual(text, f"{rate:.3g}")
        self.assertGreater(roomy["estimate"]["prefill_tokens_per_s"], 5 * plain["estimate"]["prefill_tokens_per_s"])
        self.assertLess(roomy["estimate"]["decode_tokens_per_s"], plain["estimate"]["decode_tokens_per_s"])
        self.assertFalse(any(w.startswith("Reading a prompt") for w in roomy["warnings"]))
        # The way of Transformers: the same budgets, every module that is away brought to the first card for each use.
        theirs = self.succeeds(*options, "--compat", "transformers", "--max-memory", ",".join(f"{k}=80GiB" for k in range(8)) + ",cpu=1024GiB").json()
        for key in ("decode_tokens_per_s", "prefill_tokens_per_s"):
            self.assertGreater(roomy["estimate"][key], theirs["estimate"][key], key)

    def test_all_on_cards_says_nothing(self):
        ran = self.succeeds("plan", STORIES, "--emulate", "1x64MiB", "--json").json()
        self.assertFalse(any(w.startswith("Reading a prompt") for w in ran["warnings"]))

    def test_room_is_kept_and_is_no_reason_to_refuse(self):
        options = ("plan", STORIES, "-c", "128", "--threads", "2", "--no-offload")
        free = lambda plan: min(d["free_bytes"] for d in plan["devices"] if d["id"] not in ("cpu", "disk"))
        roomy = self.succeeds(*options, "--emulate", "2x2MiB", "--prefill-room", "200KiB", "--json").json()
        self.assertGreaterEqual(free(roomy), 200 << 10)
        error = self.fails(3, "does_not_fit", *options, "--emulate", "1x2MiB", "--prefill-room", "1MiB")
        self.assertIn("without --prefill-room", [r["option"] for r in error["details"]["remedies"]])
        self.succeeds(*options, "--emulate", "1x2MiB")
        self.assertIn("--prefill-room", self.fails(2, "invalid_argument", *options, "--emulate", "1x2MiB", "--prefill-room", "much")["message"])

    def test_what_comes_first_is_brought_to_the_first_accelerator(self):
        """The chain begins on the cpu; for a prompt its MLPs go to the card visited later. Bytes as planned, bits as ever."""
        slow = self.machine([2 << 20], 1 << 30, latency=1e-6, host_flops=1e11)
        options = ("--machine", slow, "-c", "128", "--threads", "2", "--pin", "model.layers.0=cpu", "--pin", "model.layers.1=cpu")
        plan = self.succeeds("plan", STORIES, *options, "--json").json()
        first = next(k for k, u in enumerate(plan["units"]) if u["computed_on"] != "cpu")
        brought = [u["path"] for u in plan["units"][:first] if u["access_prefill"] == "stream"]
        self.assertEqual(brought, ["model.layers.0.mlp", "model.layers.1.mlp"])
        self.assertEqual({u["computed_on"] for u in plan["units"][:first]}, {"cpu"})
        ran = self.succeeds("run", STORIES, *options, "-p", PROMPT, "-n", "8", "--json").json()
        for device, tags in ran["memory"].items():
            for tag, bytes_ in tags.items():
                self.assertEqual(bytes_["measured"], bytes_["predicted"], (device, tag))
        self.assertTrue(self.succeeds("verify", STORIES, "cpu", "best", *options, "-p", PROMPT, "-n", "8", "--json").json()["identical"])


if __name__ == "__main__":
    unittest.main()
