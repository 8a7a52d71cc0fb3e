"""Public reports of planners that went wrong, through the command: numbers of the collection the project was given.

What needs no command is in berth/plan/bug_reports_test.cc. Each test prints "BR-nnn -> what Berth answers" to stdout;
docs/bug_reports.md is made of these lines (tools/make_bug_reports_page.py).
"""
import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from berth_command import BERTH, SHARED, SOURCE, STORIES, CommandTest, berth

MIB = 1 << 20
COLUMNS = 512  # of every matrix here


def say(number, text):
    print(f"BR-{number:03} -> {' '.join(text.split())}", flush=True)


def matrix(mib, dtype="F32"):
    return ["weight", [mib * MIB // (COLUMNS * {"F32": 4, "BF16": 2}[dtype]), COLUMNS], dtype]


def linear(mib):
    return {"c": "Linear", "p": [matrix(mib)]}


def net(children, **more):
    return {"format": "berth-tree-1", "tree": {"c": "Net", "m": children}, "no_split": ["Block"], **more}


def layers(count, mib):
    return ["layers", {"c": "ModuleList", "m": [[str(i), {"c": "Block", "m": [["fc", linear(mib)]]}] for i in range(count)]}]


class BugReports(CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def tree(self, document):
        path = self.folder / "net.tree.json"
        path.write_text(json.dumps(document))
        return path

    def config(self, **numbers):
        path = self.folder / "config.json"
        base = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 24,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "dtype": "bfloat16", "tie_word_embeddings": False}
        path.write_text(json.dumps({**base, **numbers}))
        return path

    def plan(self, model, *options):
        return self.succeeds("plan", model, "--margin", "0", "-c", "16", *options, "--json").json()

    def held(self, plan):
        return {d["id"]: d["weights_bytes"] // MIB for d in plan["devices"] if d["weights_bytes"]}

    def test_011_what_a_block_owns_itself_is_placed_with_it(self):
        block = {"c": "Block", "p": [["layer_scalar", [2 * MIB // 4], "F32"]], "m": [["attn", linear(6)], ["mlp", linear(8)]]}
        model = self.tree({**net([["layers", {"c": "ModuleList", "m": [["0", block], ["1", block]]}]]), "no_split": []})
        plan = self.plan(model, "--max-memory", f"0={16 * MIB + 4096},1={100 * MIB},2=0,3=0")
        self.assertEqual(sum(self.held(plan).values()), 32)
        named = [u for u in plan["units"] if any("layer_scalar" in p or p == "layers.0" for p in [u["path"], *u["paths"]])]
        self.assertTrue(named)
        self.assertFalse({"2", "3"} & self.held(plan).keys())
        say(11, f"every byte has a device ({self.held(plan)} MiB); layer_scalar is on {named[0]['device']} with {named[0]['path']}")

    def test_013_a_buffer_of_a_container_has_a_device(self):
        document = net([["model", {"c": "Model", "b": [["normalizer", [1], "F32", True]], "m": [layers(4, 10)]}]])
        model = self.tree(document)
        plan = self.plan(model, "--max-memory", f"0={22 * MIB},cpu={100 * MIB}")
        self.assertEqual(plan["memory_footprint_bytes"], 40 * MIB + 4)
        keys = plan["device_map"]
        covering = max((k for k in keys if k == "" or "model.normalizer" == k or "model.normalizer".startswith(k + ".")), key=len)
        say(13, f"entry {json.dumps(covering)} of the map covers model.normalizer: {keys[covering]}; its 4 bytes are counted")

    def test_019_two_tied_pairs_in_one_module(self):
        part = {"c": "Linear", "p": [["weight", [3, 3], "F32"], ["bias", [3], "F32"]]}
        plan = self.plan(self.tree(net([["layer1", part], ["layer2", part]], ties=[["layer2.weight", "layer1.weight"], ["layer2.bias", "layer1.bias"]])), "--emulate", "1x1MiB", "--no-offload")
        self.assertEqual(plan["memory_footprint_bytes"], 48)
        self.assertEqual(plan["device_map"], {"": 0})
        say(19, "48 bytes on device 0")

    def test_029_ties_between_two_stacks(self):
        stack = lambda: {"c": "ModuleList", "m": [[str(i), {"c": "Block", "m": [["fc", linear(10)]]}] for i in range(4)]}  # noqa: E731
        ties = [[f"decoder.layers.{i}.fc.weight", f"encoder.layers.{i}.fc.weight"] for i in range(4)]
        document = net([["encoder", {"c": "Stack", "m": [["layers", stack()]]}], ["decoder", {"c": "Stack", "m": [["layers", stack()]]}]], ties=ties)
        plan = self.plan(self.tree(document), "--max-memory", f"0={25 * MIB},1={25 * MIB}", "--no-offload")
        self.assertEqual(plan["memory_footprint_bytes"], 40 * MIB)
        self.assertEqual(sum(self.held(plan).values()), 40)
        wrong = {**document, "ties": [["decoder.layers.9.fc.weight", "encoder.layers.0.fc.weight"]]}
        error = self.fails(4, "corrupt_data", "plan", self.tree(wrong))
        self.assertIn("decoder.layers.9.fc.weight", error["message"])
        say(29, f"each pair counts once ({self.held(plan)} MiB); a tie that names nothing is refused: {error['message'].split('module tree: ')[-1]}")

    def test_033_experts_that_4_bit_leaves_wide(self):
        experts = {"c": "Experts", "p": [["gate_up_proj", [4, 64, 32], "BF16"], ["down_proj", [4, 32, 32], "BF16"]]}
        block = {"c": "Block", "m": [["attn", {"c": "Linear", "p": [["weight", [64, 64], "BF16"]]}], ["experts", experts]]}
        model = self.tree(net([["layers", {"c": "ModuleList", "m": [["0", block]]}], ["head", {"c": "Linear", "p": [["weight", [64, 64], "BF16"]]}]]))
        plan = self.plan(model, "--load-in-4bit", "--emulate", "1x1MiB")
        wide, packed = 2 * 4 * (64 * 32 + 32 * 32) + 2 * 64 * 64, 64 * 64 // 2 + 64 * 64 // 64 * 4
        self.assertEqual(plan["memory_footprint_bytes"], wide + packed)
        moe = SHARED / "checkpoints/Qwen3-30B-A3B/config.json"
        said = ""
        if moe.exists():
            warnings = self.plan(moe, "--load-in-4bit", "--emulate", "1x80GiB")["warnings"]
            said = next(w for w in warnings if "expert tensors stay wide" in w)
            shrunk = self.plan(moe, "--load-in-4bit", "--quantize-experts", "--emulate", "1x80GiB")
            self.assertLess(shrunk["memory_footprint_bytes"], 20e9)
        say(33, f"{wide + packed} bytes planned, of which {wide} wide; {said}")

    def test_034_a_skip_list_entry_is_one_layer(self):
        model = self.config()
        full = self.plan(model, "--load-in-4bit", "--emulate", "1x1GiB")["memory_footprint_bytes"]
        one = self.plan(model, "--load-in-4bit", "--llm-int8-skip-modules", "model.layers.1,lm_head", "--emulate", "1x1GiB")["memory_footprint_bytes"]
        elements = 128 * 128 * 2 + 2 * 64 * 128 + 3 * 128 * 256
        self.assertEqual(one - full, elements * 2 - elements // 2 - elements // 64 * 4)
        say(34, f"24 layers, layers.1 skipped: {one - full} bytes more, which is one layer")

    def test_036_a_skip_list_and_the_head(self):
        model = self.config()
        typo = self.fails(2, "invalid_argument", "plan", model, "--load-in-4bit", "--llm-int8-skip-modules", "vision_tower", "--emulate", "1x1GiB")
        given = self.plan(model, "--load-in-4bit", "--llm-int8-skip-modules", "model.layers.3", "--emulate", "1x1GiB")
        said = next(w for w in given["warnings"] if "head" in w)
        both = self.plan(model, "--load-in-4bit", "--llm-int8-skip-modules", "model.layers.3,lm_head", "--emulate", "1x1GiB")
        self.assertGreater(both["memory_footprint_bytes"], given["memory_footprint_bytes"])
        self.assertFalse(any("head" in w for w in both["warnings"]))
        say(36, f"as in Transformers the list replaces the automatic one, and the plan says so: {said}; an entry without effect: {typo['message']}")

    def test_043_the_disk_has_a_budget(self):
        model = self.tree(net([layers(10, 10)]))
        error = self.fails(3, "does_not_fit", "plan", model, "--margin", "0", "-c", "16", "--max-memory", f"0={51 * MIB},cpu={21 * MIB},disk=0")
        self.assertAlmostEqual(error["details"]["missing_bytes"] / MIB, 28, delta=2.1)
        plan = self.plan(model, "--max-memory", f"0={51 * MIB},cpu={33 * MIB},disk={40 * MIB}")
        unknown = self.fails(2, "invalid_argument", "plan", model, "--max-memory", "0=50MiB,ram=20MiB")
        self.assertIn("cpu, disk", unknown["message"])
        self.fails(2, "invalid_argument", "plan", model, "--max-memory", "disk=many")
        say(43, f"disk=0: {error['message']}; with a disk: {self.held(plan)} MiB; another key: {unknown['message']}")

    def test_045_what_is_not_named_keeps_its_own_limit(self):
        plan = self.plan(self.tree(net([layers(12, 10)])), "--max-memory", f"0={51 * MIB}")
        self.assertNotIn("disk", self.held(plan))
        self.assertIn("cpu", self.held(plan))
        self.assertIn("cpu", plan["budgets"])
        say(45, f"{self.held(plan)} MiB: cpu not named keeps its own limit; the disk is not used")

    def test_046_names_of_accelerators(self):
        model = self.tree(net([layers(2, 1)]))
        maps = [self.plan(model, "--max-memory", json.dumps({key: "16GB", "cpu": "64GB"})) for key in ("0", "cuda:0")]
        self.assertEqual(maps[0]["device_map"], maps[1]["device_map"])
        for key in (" 0", "00", "0x0", "-1"):
            self.assertIn("no device name", self.fails(2, "invalid_argument", "plan", model, "--max-memory", json.dumps({key: "16GB"}))["message"])
        twice = self.fails(2, "invalid_argument", "plan", model, "--max-memory", '{"0": "16GB", "cuda:0": "16GB"}')["message"]
        seventh = self.plan(model, "--emulate", "2x1GiB", "--max-memory", "7=1GB")
        run = self.fails(2, "invalid_argument", "run", STORIES, "-p", "x", "--device-map", '{"": 7}', "--emulate", "2x1GiB")["message"]
        self.assertEqual(set(self.held(seventh)), {"7"})
        say(46, f'"0" and "cuda:0" are one device; {twice}; 7 of 2: planned as given (planning needs no hardware), in a map: {run}')

    def test_056_058_060_063_maps_of_ones_own(self):
        place = ["plan", STORIES, "--emulate", "2x64MiB", "-c", "64", "--device-map"]
        paths = [m["path"] for m in self.succeeds("inspect", STORIES, "--json").json()["modules"] if m["parameters"]]
        for cut in (paths.index("model.layers.2.mlp.gate_proj"), paths.index("model.layers.2.self_attn.v_proj")):
            device_map = {p: int(k >= cut) for k, p in enumerate(paths)}
            device_map |= {"lm_head": device_map["model.embed_tokens"], "model.norm": device_map["model.embed_tokens"]}
            if "mlp" in paths[cut]:
                self.assertEqual(self.succeeds(*place, json.dumps(device_map), "--json").json()["estimate"]["cuts"], 2)
            else:
                torn = self.fails(4, "unsupported", *place, json.dumps(device_map))
        say(56, f"cut between attention and MLP: planned, its moves counted; cut inside attention: {torn['message']}")
        values = {}
        for value in ("cuda", "CUDA:0", "cuda:9", "gpu", "meta", -1, True, None):
            values[str(value)] = berth(*place, json.dumps({"": value}))
        self.assertEqual(values["cuda"].status, 0, values["cuda"].err)
        for value in ("cuda:9", "gpu", "meta", "-1", "True", "None"):
            self.assertEqual(values[value].status, 2, value)
            self.assertTrue(values[value].err.startswith("berth: invalid_argument"), values[value].err)
        say(58, '"cuda" is device 0; ' + values["cuda:9"].err.splitlines()[0] + "; " + values["True"].err.splitlines()[0])
        error = self.fails(2, "invalid_argument", *place, json.dumps({f"base_model.model.{k}": 0 for k in ("model.embed_tokens", "model.layers", "model.norm", "lm_head")}))
        self.assertIn("cut the prefix off", " ".join([error["message"], *error["hints"]]))
        say(60, " ".join([error["message"], *error["hints"]]))
        for device_map in ({"": "cpu"}, {"model": "cpu", "lm_head": "cpu"}, {"": "cpu", "model.layers.4": "disk"}):
            plan = self.succeeds(*place, json.dumps(device_map), "--json").json()
            self.assertEqual({u["computed_on"] for u in plan["units"]} - {"disk"}, {"cpu"})
        say(63, "all of it computes on the cpu, the part on the disk too")

    def test_066_what_does_not_fit_is_named(self):
        children = [["h", {"c": "ModuleList", "m": [[str(i), {"c": "Block", "m": [["fc", linear(10)]]}] for i in range(70)]}], ["ln_f", {"c": "LayerNorm", "p": [["weight", [64], "F32"]]}]]
        plan = self.plan(self.tree(net(children)), "--compat", "transformers", "--device-map", "sequential", "--load-in-8bit", "--max-memory", f"0={180 * MIB},cpu={1000 * MIB}")
        away = [k for k, d in plan["device_map"].items() if d == "cpu"]
        self.assertIn("ln_f", away)
        line = next(w for w in plan["warnings"] if "bitsandbytes" in w or "refuses this map" in w)
        say(66, f"{line}")

    def test_069_what_is_put_away_leaves_the_card(self):
        model = self.tree(net([layers(6, 10)]))
        loads = []
        for count in (0, 2, 4):
            pins = [x for i in range(count) for x in ("--pin", f"layers.{i}=cpu")]
            plan = self.plan(model, "--emulate", "1x100MiB", *pins)
            loads.append(self.held(plan).get("0", 0))
        self.assertEqual(loads, [60, 40, 20])
        error = self.fails(2, "invalid_argument", "plan", model, "--emulate", "1x100MiB", "--pin", "layer.0=cpu")
        say(69, f"0, 2 and 4 of six layers of 10 pinned to the cpu: {loads} MiB on the card; a pin without effect: {error['message']}")

    def test_071_a_tied_head_on_the_disk(self):
        model = self.config(tie_word_embeddings=True)
        for given in ('{"": 0, "lm_head": "disk"}', '{"": 0, "lm_head": "disk", "model.embed_tokens": "disk", "model.norm": "disk"}'):
            plan = self.plan(model, "--emulate", "1x1GiB", "--device-map", given)
            units = {u["path"]: u["device"] for u in plan["units"]}
            self.assertEqual((units["lm_head"], units["model.embed_tokens"]), ("disk", "disk"), given)
        said = self.plan(model, "--emulate", "1x1GiB", "--device-map", '{"": 0, "lm_head": "disk"}')["warnings"]
        note = next(w for w in said if "same tensor" in w)
        say(71, f"both names on the disk: planned; one of the two: planned alike, {note}")

    def test_080_the_dtype_that_was_asked_for(self):
        path = SHARED / "checkpoints/gemma-3-4b-it/config.json"
        self.need(path)
        sizes = {d: self.plan(path, "--dtype", d, "--emulate", "1x80GiB")["memory_footprint_bytes"] for d in ("bfloat16", "float16", "float32")}
        self.assertEqual(sizes["float16"], sizes["bfloat16"])
        self.assertAlmostEqual(sizes["float32"] / sizes["bfloat16"], 2, delta=0.001)
        say(80, f"a config with a text_config: bfloat16 {sizes['bfloat16']}, float32 {sizes['float32']} bytes")

    def test_135_logits_of_a_long_prompt(self):
        model = self.config(vocab_size=262144, max_position_embeddings=8192)
        peaks = []
        for context in (512, 4096):
            plan = self.succeeds("plan", model, "--emulate", "1x4GiB", "-c", str(context), "--json").json()
            peaks.append(plan["devices"][0]["workspace_bytes"])
        self.assertLess(peaks[1] - peaks[0], 64 * MIB)
        say(135, f"workspace {peaks[0] // MIB} MiB for 512 positions, {peaks[1] // MIB} MiB for 4,096")

    def test_181_messages_name_options_that_there_are(self):
        help_of = lambda *words: subprocess.run([BERTH, *words, "--help"], capture_output=True, text=True, check=True).stdout  # noqa: E731
        known = set(re.findall(r"--[a-z][a-z0-9-]*", help_of()))
        for command in re.findall(r"^  ([a-z]+) ", help_of(), re.M):
            known |= set(re.findall(r"--[a-z][a-z0-9-]*", help_of(command)))
        known.add("--preset")  # of cmake, in a text that says how to build
        texts, unknown = 0, {}
        for source in [*(SOURCE / "berth").rglob("*.cc"), *(SOURCE / "cli").rglob("*.cc")]:
            if source.name.endswith(("_test.cc", "_bench.cc")) or source.name == "export.cc":  # which writes other programs' options
                continue
            for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', source.read_text()):
                for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", literal):
                    texts += 1
                    if option not in known:
                        unknown.setdefault(option, []).append(f"{source.name}: {literal[:80]}")
        self.assertGreater(texts, 50)
        self.assertEqual(unknown, {})
        say(181, "every option that a text of the sources mentions is one the parser knows")

    def test_184_a_misspelt_option_is_refused(self):
        error = self.fails(2, "invalid_argument", "plan", STORIES, "--offload-dir", "x")
        self.assertIn("--offload-folder", error["message"] + " ".join(error["hints"]))
        other = self.fails(2, "invalid_argument", "plan", STORIES, "--max-memroy", "0=1GiB")
        self.assertIn("--max-memory", other["message"] + " ".join(other["hints"]))
        say(184, error["message"] + " " + " ".join(error["hints"]))


if __name__ == "__main__":
    unittest.main()
