"""Plans as files: read back, compared, explained, exported, drawn."""
import json
import os
import tempfile
import unittest
from pathlib import Path

from berth_command import STORIES, CommandTest, berth

SMALL = ("--emulate", "1x1MiB,1x1600KiB", "-c", "128")


class Plans(CommandTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def plan_file(self, name, *options):
        text = self.succeeds("plan", STORIES, *options, "--json").out
        Path(self.path(name)).write_text(text)
        return self.path(name)

    def test_runs_as_recorded(self):
        plan = self.plan_file("plan.json", *SMALL, "--no-offload")
        recorded = json.loads(Path(plan).read_text())
        again = self.succeeds("plan", STORIES, "--plan", plan, "--json").json()
        for key in ("units", "strategy", "certificate"):
            self.assertEqual(again[key], recorded[key])
        ran = self.succeeds("run", STORIES, "--plan", plan, "-p", "Once", "-n", "4", "--json").json()
        by_hand = self.succeeds("run", STORIES, *SMALL, "--no-offload", "-p", "Once", "-n", "4", "--json").json()
        self.assertEqual(ran["logits_hash"], by_hand["logits_hash"])
        self.assertEqual(ran["hf_device_map"], recorded["device_map"])
        verified = self.succeeds("verify", STORIES, plan, "cpu", "-n", "4", "--json").json()
        self.assertTrue(verified["identical"])

    def test_for_another_run_is_refused_by_name(self):
        plan = self.plan_file("plan.json", *SMALL)
        error = self.fails(2, "invalid_argument", "plan", STORIES, "--plan", plan, "-c", "64")
        self.assertIn("context", error["message"])
        self.succeeds("plan", STORIES, "--plan", plan, "-c", "64", "--replan")
        document = json.loads(Path(plan).read_text())
        document["inputs"]["checkpoint"] = "0" * 32
        Path(plan).write_text(json.dumps(document))
        self.assertIn("checkpoint", self.fails(2, "invalid_argument", "plan", STORIES, "--plan", plan)["message"])
        document["format"] = "berth-plan-9"
        Path(plan).write_text(json.dumps(document))
        self.assertIn("berth-plan-9", self.fails(2, "invalid_argument", "plan", STORIES, "--plan", plan)["message"])

    def test_compare_lists_strategies(self):
        rows = self.succeeds("compare", STORIES, *SMALL, "--json").json()
        self.assertEqual([r["strategy"] for r in rows][0], "best")
        self.assertEqual([r["compat"] for r in rows], [None] * 4 + ["transformers"] * 3 + ["accelerate"] * 3)
        for row in rows[:4]:
            self.assertTrue(row["fits"])
            self.assertNotIn("units", row)
            self.assertIn("estimate", row)
        self.assertIn("* best", self.succeeds("compare", STORIES, *SMALL).out)
        refused = self.succeeds("compare", STORIES, "--emulate", "1x600KiB", "--no-offload", "--json").json()
        self.assertFalse(refused[0]["fits"])
        self.assertEqual(refused[0]["error"]["code"], "does_not_fit")

    def test_explain_names_what_moving_costs(self):
        plan = self.plan_file("plan.json", *SMALL)
        answer = self.succeeds("explain", plan, "model.layers.1.mlp", "--json").json()
        self.assertTrue(answer["reason"])
        self.assertGreaterEqual(len(answer["alternatives"]), 2)
        for other in answer["alternatives"]:
            self.assertLessEqual({"device", "fits", "delta_bytes", "delta_decode_s"}, other.keys())
        self.assertIn("model.layers.1.mlp", self.succeeds("explain", plan, "model.layers.1.mlp").out)
        self.assertIn("layer", self.succeeds("explain", plan).out)
        layer = self.succeeds("explain", plan, "model.layers.1", "--json").json()
        self.assertEqual([u["unit"]["path"] for u in layer["units"]], ["model.layers.1.self_attn", "model.layers.1.mlp"])
        text = self.succeeds("explain", plan, "model.layers.1").out
        self.assertEqual(text.count("moved to"), 2)
        self.assertIn("units are below it", self.fails(2, "invalid_argument", "explain", plan, "model.layers")["message"])
        self.assertIn("did you mean", self.fails(2, "invalid_argument", "explain", plan, "model.layers.1.mlq")["message"])

    def test_solve_is_proved_at_the_answer(self):
        for question, unit in (("max-ctx", "tokens"), ("max-batch", "sequences"), ("min-vram", "bytes"), ("min-devices", "accelerators")):
            answer = self.succeeds("solve", STORIES, question, *SMALL, "--max-memory", "cpu=0,0=1MiB,1=1600KiB", "--json").json()
            self.assertEqual((answer["question"], answer["unit"]), (question, unit))
            if answer["binding"] is not None:
                self.assertTrue(answer["binding"]["reason"])
        longest = self.succeeds("solve", STORIES, "max-batch", *SMALL, "--max-memory", "cpu=0,0=1MiB,1=1600KiB", "--json").json()["answer"]
        common = ("plan", STORIES, *SMALL, "--max-memory", "cpu=0,0=1MiB,1=1600KiB")
        self.succeeds(*common, "--batch", str(longest))
        self.check(berth(*common, "--batch", str(longest + 1)), 3)
        self.assertIn("max-ctx", self.fails(2, "invalid_argument", "solve", STORIES, "max-context")["message"])

    def test_diff_lists_what_moved(self):
        before = self.plan_file("before.json", *SMALL, "--pin", "model.layers.0.mlp=0")
        after = self.plan_file("after.json", *SMALL, "--pin", "model.layers.0.mlp=cpu")
        moved = self.succeeds("diff", before, after, "--json").json()
        self.assertTrue(any(m["path"] == "model.layers.0.mlp" and m["to"] == "cpu" for m in moved))
        self.assertEqual(self.succeeds("diff", before, before, "--json").json(), [])

    def test_export_is_what_the_target_reads(self):
        plan = self.plan_file("plan.json", *SMALL)
        for target in ("transformers", "accelerate"):
            text = self.succeeds("export", plan, "--to", target).out
            compile(text, target, "exec")
            self.assertIn("device_map", text)
        self.assertIn("--fit off", self.succeeds("export", plan, "--to", "llama.cpp").out)
        self.assertIn("vllm serve", self.succeeds("export", plan, "--to", "vllm").out)

    def test_pictures_are_complete_documents(self):
        svg, html = self.path("plan.svg"), self.path("plan.html")
        self.succeeds("plan", STORIES, *SMALL, "--svg", svg, "--html", html)
        import xml.etree.ElementTree
        xml.etree.ElementTree.parse(svg)
        self.assertIn("<svg", Path(html).read_text())


class Devices(CommandTest):
    def test_one_device_for_all_in_every_spelling(self):
        for spelling, device in (("0", 0), ("cuda", 0), ("cuda:0", 0), ("emu:0", 0), ("1", 1), ("cuda:1", 1), ("cpu", "cpu"), ('{"": "cuda:1"}', 1)):
            plan = self.succeeds("plan", STORIES, "--emulate", "2x64MiB", "-c", "128", "--device-map", spelling, "--json").json()
            self.assertEqual(plan["device_map"], {"": device}, spelling)
        self.fails(2, "invalid_argument", "plan", STORIES, "--emulate", "2x64MiB", "--device-map", "cuda:2")

    def test_rates_are_measured_once_and_plans_use_them(self):
        with tempfile.TemporaryDirectory() as cache:
            first = self.succeeds("devices", "--json", XDG_CACHE_HOME=cache).json()
            kept = [p for p in Path(cache).rglob("*") if p.is_file()]
            self.assertEqual(len(kept), 1)
            content = kept[0].read_bytes()
            again = self.succeeds("devices", "--json", XDG_CACHE_HOME=cache).json()
            self.assertEqual(kept[0].read_bytes(), content, "the second call measures nothing")
            rates = lambda machine: [{k: v for k, v in d.items() if k.endswith("_per_s")} for d in machine["devices"]]  # noqa: E731
            self.assertEqual(rates(again), rates(first))
            cpu = next(d for d in first["devices"] if d["id"] == "cpu")
            planned = self.succeeds("plan", STORIES, "--json", XDG_CACHE_HOME=cache)
            self.assertNotIn("planning values", planned.err + " ".join(planned.json()["warnings"]))
            used = next(d for d in planned.json()["inputs"]["machine"]["devices"] if d["id"] == "cpu")
            self.assertEqual((used["read_bytes_per_s"], used["flops_per_s"]), (cpu["read_bytes_per_s"], cpu["flops_per_s"]))
            kept[0].unlink()
            self.assertIn("planning values", self.succeeds("plan", STORIES, XDG_CACHE_HOME=cache).err)

    def test_a_machine_file_is_shown_as_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = Path(folder) / "machine.json"
            machine.write_text(self.succeeds("devices", "--emulate", "2x16GiB", "--json", XDG_CACHE_HOME=folder).out)
            self.assertEqual(self.succeeds("devices", "--machine", machine, "--json", XDG_CACHE_HOME=folder).out, machine.read_text())


if __name__ == "__main__":
    unittest.main()
