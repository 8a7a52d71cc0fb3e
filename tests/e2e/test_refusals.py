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

from berth_command import SHARED, STORIES, CommandTest, berth

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

    def follow(self, model, described, options, remedy):
        """Plans again as a remedy wants it: what it sets replaces what was set."""
        described_then, added = self.changed(described, remedy)
        kept, skip = [], False
        for word, value in zip(options, [*options[1:], None]):
            if skip:
                skip = False
            elif word in added and word.startswith("--"):
                skip = value is not None and not value.startswith("--")
            else:
                kept.append(word)
        return self.plan(model, described_then, *kept, *added)

    def check_details(self, details):
        self.assertLessEqual({"device", "module", "needed_bytes", "available_bytes", "missing_bytes", "proof", "remedies"}, details.keys())
        self.assertEqual(details["missing_bytes"], max(0, details["needed_bytes"] - details["available_bytes"]))

    def test_maps_of_the_users_own(self):
        """A map that does not fit: best, changes under which it does, or the same placed anew."""
        refused = 0
        for model, share in (("SmolLM2-135M", 0.6), ("gemma-3-4b-it", 0.3), ("gpt-oss-20b", 0.8)):
            _, whole = self.plan(model, machine([1 << 46], 1 << 46))
            total = sum(d["weights_bytes"] for d in whole["devices"])
            described = machine([int(share * total), int(0.9 * total)], int(0.9 * total))
            layers = sorted({u["path"].rsplit(".", 1)[0] for u in whole["units"] if re.search(r"layers\.\d+\.", u["path"])})
            split = {"": 0, **{layer: "cpu" for layer in layers[::5]}}
            for given in ({"": 0}, {"": "cuda:0"}, {"": "cpu"} if share < 0.5 else {"": 0, "lm_head": "cpu"}, split):
                with self.subTest(model=model, map=given):
                    options = ("--device-map", json.dumps(given), "--ctx-size", "4096")
                    status, document = self.plan(model, described, *options)
                    if status == 0:
                        continue
                    self.assertEqual(status, 3, document)
                    details = document["error"]["details"]
                    self.check_details(details)
                    self.assertGreater(details["missing_bytes"], 0)
                    self.assertGreaterEqual(len(details["remedies"]), 2, document["error"])
                    refused += 1
                    for remedy in details["remedies"]:
                        status, then = self.follow(model, described, options, remedy)
                        self.assertEqual(status, 0, (remedy, then))
        self.assertGreaterEqual(refused, 6)

    def test_maps_of_the_libraries(self):
        """A library's map that does not work here says so, with changes under which its map, or Berth's own, does."""
        failed = 0
        for model, cards, options in (("Llama-3.1-8B", (6, 3), ()), ("Llama-3.1-8B", (16, 16), ("--ctx-size", "131072")), ("SmolLM2-135M", (0.12, 0.2), ()),
                                      ("Qwen3-8B", (5, 4), ("--load-in-8bit",)), ("gemma-3-4b-it", (3, 3, 3), ("--batch", "64"))):
            for library in ("transformers", "accelerate"):
                for mode in ("balanced", "sequential"):
                    if library == "accelerate" and "--load-in-8bit" in options:
                        continue
                    with self.subTest(model=model, cards=cards, options=options, library=library, mode=mode):
                        caps = ",".join(f"{k}={int(size * (1 << 30))}" for k, size in enumerate(cards)) + ",cpu=32GiB"
                        described = machine([1 << 36] * len(cards), 1 << 36)
                        given = ("--compat", library, "--device-map", mode, "--max-memory", caps, *options)
                        status, document = self.plan(model, described, *given)
                        self.assertEqual(status, 0, document)
                        self.assertEqual(document["fits"], "error" not in document)
                        if document["fits"]:
                            continue
                        failed += 1
                        error = document["error"]
                        self.check_details(error["details"])
                        remedies = error["details"]["remedies"]
                        self.assertTrue(len(remedies) >= 2 or any(h.startswith("No ") for h in error["hints"]), error)
                        self.assertLessEqual(set(error["hints"]), set(document["warnings"]))
                        for remedy in remedies:
                            option, own = remedy["option"], remedy["option"].endswith(", without --compat")
                            base = given[2:] if own else given
                            status, then = self.follow(model, described, base, {**remedy, "option": option.removesuffix(", without --compat")})
                            self.assertEqual(status, 0, (remedy, then))
                            self.assertTrue(then["fits"], (remedy, then.get("error")))
        print(f"{failed} of the libraries' maps do not work")
        self.assertGreaterEqual(failed, 6)

    def test_a_librarys_map_that_berth_should_run(self):
        """`run --compat` refuses before it reads weights, and says what would fit."""
        folder = STORIES
        options = ("--compat", "accelerate", "--max-memory", "0=1100KiB,cpu=2MiB", "-c", "512", "--threads", "2")
        ran = berth("run", folder, "-p", "Once", "-n", "2", *options, "--emulate", "1x64MiB", "--json", "--quiet")
        self.assertEqual(ran.status, 3, ran.out + ran.err)
        remedies = ran.json()["error"]["details"]["remedies"]
        self.assertGreaterEqual(len(remedies), 1, ran.out)
        for remedy in remedies:
            option = shlex.split(remedy["option"].removesuffix(", without --compat"))
            base = [*(() if remedy["option"].endswith(", without --compat") else options[:2]), "--threads", "2"]
            for name in ("--max-memory", "-c"):
                if name not in option and not (name == "-c" and "--ctx-size" in option):
                    base += [name, options[options.index(name) + 1]]
            again = berth("run", folder, "-p", "Once", "-n", "2", *base, *option, "--emulate", "1x64MiB", "--json", "--quiet")
            self.assertEqual(again.status, 0, (remedy, again.out, again.err))


class Messages(CommandTest):
    """What is said where something cannot be had names the right thing."""
    def config(self, model):
        return self.need(SHARED / "checkpoints" / model / "config.json")

    def test_a_pin_to_a_card_too_small_names_that_card(self):
        options = ("--emulate", "1x100MiB,1x20GiB", "--pin", "lm_head=0", "--threads", "4")
        error = self.fails(3, "does_not_fit", "plan", self.config("gemma-4-E4B-it"), *options)
        details = error["details"]
        self.assertEqual((details["device"], details["module"], details["available_bytes"]), ("0", "lm_head", 100 << 20))
        self.assertGreater(details["missing_bytes"], 1 << 30)
        self.assertTrue(any(r["change"].startswith("device 0 with ") for r in details["remedies"]), details)

    def test_every_device_left_out(self):
        error = self.fails(3, "does_not_fit", "plan", self.config("SmolLM2-135M"), "--max-memory", "0=0,cpu=0")
        self.assertIn("no device may hold or compute it", error["message"])
        self.assertGreater(error["details"]["missing_bytes"], 0)

    def test_a_table_that_nothing_can_gather_from(self):
        error = self.fails(3, "does_not_fit", "plan", self.config("gemma-4-E4B-it"), "--emulate", "1x4GiB", "--max-memory", "0=4GiB,cpu=0")
        self.assertGreater(error["details"]["missing_bytes"], 0, error)
        self.assertNotEqual(error["details"]["device"], "disk")

    def test_nothing_is_offloaded_for_training(self):
        for options in ((), ("--load-in-4bit",)):
            error = self.fails(3, "does_not_fit", "plan", self.config("gemma-4-E4B-it"), "--emulate", "1x4GiB,1x10GiB", "--for", "training", *options)
            self.assertFalse([r for r in error["details"]["remedies"] if "cpu" in r["option"] or "disk" in r["option"]], error)
            self.assertTrue(error["details"]["remedies"])

    def test_numbers_are_the_ones_given(self):
        config = self.config("SmolLM2-135M")
        self.assertIn("99999999999999999999", self.fails(2, "invalid_argument", "plan", config, "-c", "99999999999999999999")["message"])
        self.assertIn("--plan-effort", self.fails(2, "invalid_argument", "plan", config, "--plan-effort=-3")["message"])

    def test_a_misspelt_question_or_strategy(self):
        config = self.config("SmolLM2-135M")
        for order in (("max-cxt", config), (config, "max-cxt")):
            self.assertIn('did you mean "max-ctx"', self.fails(2, "invalid_argument", "solve", *order)["message"])
        self.assertTrue(any("cuda:0" in hint for hint in self.fails(2, "invalid_argument", "plan", config, "--device-map", "gpu")["hints"]))

    def test_a_tied_head_goes_where_the_map_names_the_head(self):
        """{"model": 0, "lm_head": 1} on a model whose head is its embedding: one tensor, stored where the head computes."""
        ran = self.succeeds("plan", self.config("SmolLM2-135M"), "--emulate", "2x1GiB", "--device-map", '{"model": 0, "lm_head": 1}', "--json")
        units = {u["path"]: u["device"] for u in ran.json()["units"]}
        self.assertEqual((units["lm_head"], units["model.embed_tokens"], units["model.layers.3.mlp"]), (1, 1, 0))
        self.assertTrue(any("model.embed_tokens is the same tensor as lm_head" in w for w in ran.json()["warnings"]))

    def test_why_on_the_cpu_although_cards_are_empty(self):
        units = self.succeeds("plan", STORIES, "--emulate", "2x40KiB", "--json").json()["units"]
        self.assertTrue(any("even when empty" in u["reason"] for u in units), units)


if __name__ == "__main__":
    unittest.main()
