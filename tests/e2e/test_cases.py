"""The cases that Berth was started for, through the command: docs/cases.md has what it prints."""
import json
import subprocess
import unittest

from berth_command import BERTH, SHARED, SOURCE, CommandTest, berth

CHECKPOINTS = SHARED / "checkpoints"
GIB = 1 << 30


class Cases(CommandTest):
    def model(self, name):
        return self.need(CHECKPOINTS / name / "config.json")

    def plan(self, name, *options, status=0):
        return self.check(berth("plan", self.model(name), *options, "--json"), status).json()

    def says(self, plan, *words):
        self.assertTrue(any(all(w in line for w in words) for line in plan["warnings"]), f"{words}: {plan['warnings']}")


class MiniMaxM3(Cases):
    """428 billion parameters in 4 bit on 8 x 165 GiB: huggingface/transformers issue 46823."""
    options = ("--load-in-4bit", "--bnb-4bit-use-double-quant", "--max-memory", ",".join(f"{k}=165GiB" for k in range(8)))

    def test_fits_with_experts_left_in_16_bit(self):
        plan = self.plan("MiniMax-M3", *self.options, "--no-offload")
        self.assertAlmostEqual(plan["memory_footprint_bytes"] / GIB, 779.2, delta=0.1)
        self.assertEqual({d for d in plan["device_map"].values()} - set(range(8)), set())

    def test_takes_two_cards_with_experts_quantized(self):
        plan = self.plan("MiniMax-M3", *self.options, "--quantize-experts", "--no-offload")
        self.assertLess(plan["memory_footprint_bytes"] / GIB, 210)
        self.assertLessEqual(sum(d["weights_bytes"] > 0 for d in plan["devices"]), 2)

    def test_transformers_before_and_after_its_repairs(self):
        before = self.plan("MiniMax-M3", "--compat", "transformers-before-47203", *self.options)
        self.assertIn("library_error", before)
        self.says(before, "refuses this map")
        self.says(before, "although everything fits on accelerators")
        for library in ("transformers-before-47211", "transformers"):
            after = self.plan("MiniMax-M3", "--compat", library, *self.options)
            self.assertNotIn("library_error", after)
            self.assertEqual({d for d in after["device_map"].values()} - set(range(8)), set())
            self.assertAlmostEqual(after["memory_footprint_bytes"] / GIB, 779.5, delta=0.05)


class Gemma4E4B(Cases):
    options = ("--load-in-4bit", "--emulate", "1x16GiB", "-c", "8500")

    def test_the_table_leaves_the_card_by_itself(self):
        plan = self.plan("gemma-4-E4B-it", *self.options)
        self.assertEqual(plan["device_map"]["model.language_model.embed_tokens_per_layer"], "cpu")
        card = next(d for d in plan["devices"] if d["id"] == "0")
        resident = sum(card[k] for k in ("weights_bytes", "kv_bytes", "workspace_bytes", "staging_bytes"))
        self.assertLess(resident, 4.48e9)
        kept = self.plan("gemma-4-E4B-it", *self.options, "--pin", "model.language_model.embed_tokens_per_layer=0")
        card = next(d for d in kept["devices"] if d["id"] == "0")
        self.assertGreater(card["weights_bytes"], 9e9)

    def test_transformers_keeps_it_there(self):
        plan = self.plan("gemma-4-E4B-it", "--load-in-4bit", "--compat", "transformers", "--max-memory", "0=16GiB,cpu=32GiB", "-c", "8500")
        table = [v for k, v in plan["device_map"].items() if k in ("", "model", "model.language_model", "model.language_model.embed_tokens_per_layer")]
        self.assertEqual(table[-1], 0)


class UnequalCards(Cases):
    """18 and 10 GiB with 48 GiB of RAM, 8 bit."""
    options = ("--load-in-8bit", "--max-memory", "0=18GiB,1=10GiB,cpu=48GiB")

    def test_a_model_that_fits_is_kept_on_the_cards(self):
        plan = self.plan("gemma-3-27b-it", *self.options)
        for d in plan["devices"]:
            self.assertLessEqual(sum(d[k] for k in ("weights_bytes", "kv_bytes", "workspace_bytes", "staging_bytes", "overhead_bytes", "margin_bytes")), d["budget_bytes"])

    def test_what_transformers_spills_is_refused(self):
        plan = self.plan("gemma-3-27b-it", *self.options, "--compat", "transformers")
        self.assertEqual(plan["budgets"]["0"] <= 0.9 * 18 * GIB, True)
        self.assertTrue(plan["warnings"])


class CustomMap(Cases):
    def test_head_on_the_cpu(self):
        plan = self.plan("Llama-3.1-8B", "--load-in-4bit", "--emulate", "1x16GiB", "--device-map", '{"": 0, "lm_head": "cpu"}')
        self.assertEqual(plan["device_map"]["lm_head"], "cpu")
        head = next(u for u in plan["units"] if u["path"] == "lm_head")
        self.assertEqual((head["device"], head["computed_on"], head["access"]), ("cpu", "cpu", "compute"))
        there = self.plan("Llama-3.1-8B", "--load-in-4bit", "--emulate", "1x16GiB", "--device-map", '{"": 0, "lm_head": "cpu"}', "--compat", "transformers")
        self.assertIn("library_error", there)
        self.says(there, "refuses this map")
        allowed = self.plan("Llama-3.1-8B", "--load-in-4bit", "--emulate", "1x16GiB", "--device-map", '{"": 0, "lm_head": "cpu"}', "--compat", "transformers",
                            "--llm-int8-enable-fp32-cpu-offload")
        self.assertNotIn("library_error", allowed)
        self.says(allowed, "copied to device 0 for every token")

    def test_mistakes(self):
        for device_map, words in (({"": 0, "model.layer.3": 0}, ['"model.layer.3"', 'did you mean "model.layers.3"']),
                                  ({"model.layers": 0, "lm_head": 0, "model.norm": 0}, ['"model.embed_tokens.weight"']),
                                  ({"": 0, "lm_head": 3}, ['"3"', "1 accelerator"]),
                                  ({"base_model.model.model": 0, "base_model.model.lm_head": 0}, ["adapter prefix", "base_model.model."])):
            error = self.fails(2, "invalid_argument", "plan", self.model("Llama-3.1-8B"), "--emulate", "1x16GiB", "--device-map", json.dumps(device_map))
            for word in words:
                self.assertIn(word, error["message"])


class TooLarge(Cases):
    def test_a_leaf_larger_than_any_device_is_named_with_remedies(self):
        ran = self.check(berth("plan", self.model("gemma-3-27b-it"), "--emulate", "4x1GiB", "--no-offload", "--json"), 3)
        details = ran.json()["error"]["details"]
        self.assertEqual(details["proof"], "unit")
        self.assertGreater(details["missing_bytes"], 0)
        there = self.plan("gemma-3-27b-it", "--compat", "transformers", "--max-memory", ",".join(f"{k}=1GiB" for k in range(4)) + ",cpu=100GiB")
        self.says(there, "more than any accelerator holds")


class Training(Cases):
    def test_says_what_inference_maps_do_not_hold_for(self):
        plan = self.plan("Qwen2.5-7B", "--for", "training", "--emulate", "2x80GiB", "-c", "2048")
        self.assertEqual(plan["device_map"], {"": 0})
        self.says(plan, "one process on each")
        refused = self.check(berth("plan", self.model("Qwen2.5-72B-Instruct"), "--for", "training", "--emulate", "2x80GiB", "-c", "2048", "--json"), 3)
        self.assertIn("training on", refused.json()["error"]["message"])


class Page(CommandTest):
    def test_is_what_the_command_prints(self):
        self.need(CHECKPOINTS)
        made = subprocess.run(["python3", SOURCE / "tools/make_cases_page.py", BERTH, CHECKPOINTS], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(made.stdout, (SOURCE / "docs/cases.md").read_text(),
                         "run: tools/make_cases_page.py build/release/cli/berth ../shared/checkpoints > docs/cases.md")


if __name__ == "__main__":
    unittest.main()
