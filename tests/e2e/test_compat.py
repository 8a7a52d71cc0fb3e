"""The libraries' planners through the real command: every golden map, module trees, what goes wrong with a map."""
import functools
import gzip
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

from berth_command import SHARED, SOURCE, CommandTest, berth

MAPS = SHARED / "golden/device_maps"
CHECKPOINTS = SHARED / "checkpoints"
CONFIGS = tempfile.TemporaryDirectory(prefix="berth-compat-")
ALL = False
KEYS = ("balanced", "adjusted", "map", "log", "error")


def differences(golden, answer):
    """Keys in which an answer is not the golden, nor one of the others that are as right."""
    wrong = [k for k in KEYS if golden.get(k) != answer.get(k)]
    if any(all(other.get(k) == answer.get(k) for k in KEYS) for other in golden.get("also", [])):
        return []
    return wrong


class InBulk(CommandTest):
    def lines(self, path):
        self.need(path)
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
            return [line for line in file if line.strip()]

    def check_goldens(self, path, least):
        lines = self.lines(path)
        self.assertGreaterEqual(len(lines), least)
        answers = self.succeeds("plan", "--from-jsonl", "-", stdin="".join(lines)).out.splitlines()
        self.assertEqual(len(answers), len(lines))
        for line, text in zip(lines, answers):
            golden, answer = json.loads(line), json.loads(text)
            self.assertEqual(answer["id"], golden["id"])
            self.assertEqual(differences(golden, answer), [], f"{golden['id']}: {text}")

    def test_random_trees(self):
        self.check_goldens(MAPS / "fuzz.jsonl.gz", 3000)

    def test_known_defects(self):
        self.check_goldens(MAPS / "defects.jsonl", 73)

    def test_a_file_and_standard_input_give_the_same(self):
        text = "".join(self.lines(MAPS / "defects.jsonl")[:20])
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write(text)
            file.flush()
            self.assertEqual(self.succeeds("plan", "--from-jsonl", file.name).out, self.succeeds("plan", "--from-jsonl", "-", stdin=text).out)

    def test_what_cannot_be_read_is_answered_in_step(self):
        tree = '{"c": "Net", "m": [["fc", {"c": "Linear", "p": [["weight", [4, 4], "F32"]]}]]}'
        good = f'{{"id": 7, "tree": {tree}, "library": "accelerate", "mode": "sequential", "max_memory": {{"0": 100}}}}'
        bad = ["{", "[]", "null", '"x"', "{}", '{"id": 1}', good.replace("accelerate", "fairscale"), good.replace("sequential", "random"),
               good.replace('{"0": 100}', "[100]"), good.replace("F32", "F31"), good.replace("[4, 4]", "[4, -4]"), good.replace("[4, 4]", "[4611686018427387904, 64]"),
               good.replace('"fc"', '""'), good.replace('"id": 7', '"id": 7, "ties": [["fc.weight", "gc.weight"]]'), "\x00", "[" * 100000]
        ran = berth("plan", "--from-jsonl", "-", stdin="\n".join([good, "", *bad, good]))
        self.assertEqual(ran.status, 1, ran.err)
        answers = [json.loads(line) for line in ran.out.splitlines()]
        self.assertEqual(len(answers), len(bad) + 2)
        self.assertEqual(answers[0], {"id": 7, "map": {"fc": 0}})
        self.assertEqual(answers[-1], answers[0])
        for text, answer in zip(bad, answers[1:]):
            self.assertEqual(answer["error"]["stage"], "read", text[:200])
            self.assertTrue(answer["message"], text[:200])
        self.assertIn(f"{len(bad)} of {len(bad) + 2} lines", ran.err)

    def test_what_is_no_list_of_lines(self):
        self.fails(1, "not_found", "plan", "--from-jsonl", "/no/such.jsonl")
        self.fails(2, "invalid_argument", "plan", "--from-jsonl", os.path.dirname(__file__))
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.write(gzip.compress(b"{}\n"))
            file.flush()
            self.assertIn("gzip", self.fails(2, "invalid_argument", "plan", "--from-jsonl", file.name)["message"])
        self.assertIn("MODEL", self.fails(2, "invalid_argument", "plan", "x", "--from-jsonl", "-")["message"])


@functools.cache
def config_of(model, with_quantizer):
    """The config that the goldens of `model` were made from; without its quantization unless they are its own quantizer's."""
    folder = Path(CONFIGS.name) / f"{model}-{with_quantizer}"
    folder.mkdir()
    path = CHECKPOINTS / model / ("config.falcon.json" if model == "falcon-40b" else "config.json")
    config = json.loads(path.read_text())
    if not with_quantizer:
        for part in (config, config.get("text_config", {})):
            part.pop("quantization_config", None)
            part.pop("compression_config", None)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def arguments_of(model, case):
    quant = case.get("quant") or "none"
    out = ["plan", config_of(model, quant == "native") / "config.json", "--compat", case["library"], "--device-map", case["mode"],
           "--max-memory", json.dumps(case["max_memory"]), "--json"]
    if quant != "native":
        out += ["--dtype", {"bf16": "bfloat16", "fp32": "float32"}[case["dtype"]]]
    return out + {"nf4": ["--load-in-4bit"], "int8": ["--load-in-8bit"]}.get(quant, [])


def check_case(test, model, case):
    name = f"{model} {case['library']} {case.get('quant')} {case['mode']} {case['label']}"
    ran = berth(*arguments_of(model, case))
    document = ran.json()
    if "map" not in case:
        test.assertEqual(ran.status, 2, name)
        details = document["error"]["details"]
        test.assertEqual((details["stage"], details["type"]), (case["error"]["stage"], case["error"]["type"]), name)
        return
    test.assertEqual(ran.status, 0, name + ran.out[-500:] + ran.err)
    test.assertEqual(document["device_map"], case["map"], name)
    test.assertEqual(document["budgets"], case.get("adjusted", case.get("balanced", case["max_memory"])), name)
    test.assertEqual(document["compat"], case["library"], name)
    refused = case.get("error", {}).get("stage") == "validate"
    test.assertEqual("library_error" in document, refused, name)
    test.assertEqual(any("refuses this map" in w for w in document["warnings"]), refused, name)


def published_cases():
    """(model, case) of every published map; but for those made without the model's own no-split list, which the command always passes."""
    for file in sorted((MAPS / "maps").glob("*.json")):
        golden = json.loads(file.read_text())
        for case in golden["cases"]:
            if case.get("no_split") != []:
                yield golden["model"], case


class Models(CommandTest):
    def test_published_ones_are_planned_as_the_libraries_plan_them(self):
        """Every published map, each model opened once for all its cases: budgets, map, what is logged, errors."""
        self.need(MAPS / "maps")
        cases = list(published_cases())
        self.assertEqual(len(cases), 1940)
        cases.sort(key=lambda c: (c[0], str(c[1].get("quant")), c[1]["dtype"]))  # one opened model after the other
        lines = []
        for number, (model, case) in enumerate(cases):
            quant = case.get("quant") or "none"
            lines.append({"id": number, "model": str(config_of(model, quant == "native") / "config.json"), "library": case["library"], "mode": case["mode"],
                          "max_memory": case["max_memory"], "quant": "none" if quant == "native" else quant,
                          "dtype": None if quant == "native" else {"bf16": "bfloat16", "fp32": "float32"}[case["dtype"]]})
        ran = self.succeeds("plan", "--from-jsonl", "-", stdin="\n".join(json.dumps(line) for line in lines))
        answers = [json.loads(text) for text in ran.out.splitlines()]
        wrong = [f"{model} {case['library']} {case.get('quant')} {case['mode']} {case['label']}: {differences(case, answer)}"
                 for (model, case), answer in zip(cases, answers, strict=True) if differences(case, answer)]
        print(f"golden maps through the command: {len(cases) - len(wrong)}/{len(cases)}", file=sys.stderr)
        self.assertEqual(wrong, [])

    def test_one_at_a_time_the_document_says_the_same(self):
        """`plan --compat` itself: of every model an even choice; all of them, a minute and more: test_compat.py --all."""
        self.need(MAPS / "maps")
        seen = {}
        for number, (model, case) in enumerate(published_cases()):
            kind = (model, case["library"], case.get("quant"), "error" in case)
            seen[kind] = seen.get(kind, 0) + 1
            if ALL or (seen[kind] == 1 and number % 2 == 0):
                check_case(self, model, case)

    def test_lines_that_name_no_model(self):
        good = {"id": 1, "model": str(SOURCE / "tests/data/stories260k"), "library": "accelerate", "mode": "sequential", "max_memory": {"0": "1GiB"}}
        bad = [{**good, "model": "/no/such"}, {**good, "model": 7}, {**good, "tree": {"c": "Net"}}, {**good, "mode": "custom"}, {**good, "library": "deepspeed"},
               {**good, "max_memory": "0=1GiB"}, {**good, "quant": "int3"}, {**good, "quant": "nf4"}, {**good, "dtype": "int8"}]
        ran = berth("plan", "--from-jsonl", "-", stdin="\n".join(json.dumps(line) for line in [good, *bad, good]))
        answers = [json.loads(text) for text in ran.out.splitlines()]
        self.assertEqual((ran.status, len(answers)), (1, len(bad) + 2), ran.err)
        self.assertEqual(answers[0], {"id": 1, "map": {"": 0}})
        self.assertEqual(answers[-1], answers[0])
        for line, answer in zip(bad, answers[1:]):
            self.assertEqual((answer["id"], answer["error"]["stage"]), (1, "read"), line)
            self.assertTrue(answer["message"], line)


class Quantized(CommandTest):
    """Checkpoints that are quantized already, counted as the library counts them."""

    def plan(self, config, *options):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(config))
            return self.succeeds("plan", Path(folder) / "config.json", "--compat", "transformers", "--max-memory", "0=100GiB,1=100GiB,cpu=200GiB", *options, "--json").json()

    def test_awq_by_its_packed_tensors(self):
        for model in ("Llama-2-7B-AWQ", "Qwen3-32B-AWQ"):
            folder = self.need(CHECKPOINTS / model)
            rows = [line.split("\t") for line in (folder / "tensors.tsv").read_text().splitlines()[1:]]
            stored = sum(int(row[3]) for row in rows if "inv_freq" not in row[0])
            counted = self.plan(json.loads((folder / "config.json").read_text()))["memory_footprint_bytes"]
            self.assertLess(abs(counted - stored), 2048, model)  # the rotary tables

    def test_compressed_tensors_by_their_groups(self):
        golden = SOURCE / "tests/data/packed_trees.jsonl"
        for line in golden.read_text().splitlines():
            case = json.loads(line)
            self.assertEqual(self.plan(case["config"])["memory_footprint_bytes"], case["bytes"], case["name"])

    def test_what_the_library_has_no_quantizer_for(self):
        config = json.loads(self.need(CHECKPOINTS / "Qwen3-8B/config.json").read_text())
        wide = self.plan(config)
        for method in ("modelopt", "some_new_one"):
            plan = self.plan({**config, "quantization_config": {"quant_method": method, "quant_algo": "NVFP4"}})
            self.assertEqual(plan["memory_footprint_bytes"], wide["memory_footprint_bytes"])
            self.assertTrue(any(method in w and "skips the quantization" in w for w in plan["warnings"]), plan["warnings"])
        plan = self.plan({**config, "quantization_config": {"quant_method": "hqq", "nbits": 4}})
        self.assertTrue(any("hqq is not followed" in w for w in plan["warnings"]), plan["warnings"])
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "nvfp4"}}))
            error = self.fails(2, "invalid_argument", "plan", Path(folder) / "config.json", "--compat", "transformers", "--max-memory", "0=100GiB")
            self.assertEqual((error["details"]["stage"], error["details"]["type"]), ("validate", "ValueError"))


def linear(rows, cols, dtype="BF16"):
    return {"c": "Linear", "p": [["weight", [rows, cols], dtype]]}


def decoder(layers, hidden=64, vocab=1000, tied=False):
    """A small decoder as a module tree: embedding, blocks of two Linears, norm, head."""
    block = {"c": "Block", "m": [["attn", linear(hidden, hidden)], ["mlp", linear(4 * hidden, hidden)]]}
    tree = {"c": "Net", "m": [["embed", {"c": "Embedding", "p": [["weight", [vocab, hidden], "BF16"]]}],
                              ["layers", {"c": "ModuleList", "m": [[str(i), block] for i in range(layers)]}],
                              ["norm", {"c": "RMSNorm", "p": [["weight", [hidden], "BF16"]]}], ["head", linear(vocab, hidden)]]}
    return {"format": "berth-tree-1", "tree": tree, "no_split": ["Block"], **({"ties": [["head.weight", "embed.weight"]]} if tied else {})}


BLOCK = 5 * 64 * 64 * 2
TABLE = 1000 * 64 * 2


class Folder(CommandTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, content):
        path = Path(self.folder.name) / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


class Trees(Folder):
    def test_are_planned_by_every_strategy(self):
        model = self.write("net.tree.json", decoder(12))
        for strategy in ("best", "balanced", "balanced_low_0", "sequential"):
            plan = self.succeeds("plan", model, "--device-map", strategy, "--max-memory", "0=400KiB,1=500KiB,cpu=1MiB", "--margin", "0", "-c", "16", "--json").json()
            self.assertTrue(plan["fits"])
            held = {d["id"]: d["weights_bytes"] for d in plan["devices"]}
            self.assertEqual(sum(held.values()), 12 * BLOCK + 2 * TABLE + 128, strategy)
            for d in plan["devices"]:
                self.assertLessEqual(d["weights_bytes"] + d["workspace_bytes"], d["budget_bytes"])
            self.assertEqual(plan["memory_footprint_bytes"], 12 * BLOCK + 2 * TABLE + 128)
            again = self.succeeds("plan", model, "--device-map", json.dumps(plan["device_map"]), "--max-memory", "0=400KiB,1=500KiB,cpu=1MiB", "--margin", "0", "-c", "16", "--json").json()
            self.assertEqual(again["device_map"], plan["device_map"])

    def test_of_published_models_in_the_goldens(self):
        lines = MAPS / "fuzz.jsonl.gz"
        self.need(lines)
        with gzip.open(lines, "rt") as file:
            for number, line in zip(range(150), file):
                case = json.loads(line)
                case["format"] = "berth-tree-1"
                model = self.write("case.tree.json", case)
                ran = berth("plan", model, "--max-memory", "0=1000GiB", "--json")
                self.assertEqual(ran.status, 0, f"{case['id']}: {ran.out} {ran.err}")
                if number % 3 == 0 and case.get("quant") in (None, "none", "nf4") and "dtype" not in case and not case.get("offload_buffers") and not case.get("fallback_allocation"):
                    ran = berth("plan", model, "--compat", case["library"], "--device-map", case["mode"], "--max-memory", json.dumps(case["max_memory"]), "--json")
                    if case.get("quant") in (None, "none") and "map" in case:
                        self.assertEqual(ran.json()["device_map"], case["map"], case["id"])

    def test_tied_embedding_is_stored_once(self):
        model = self.write("net.tree.json", decoder(2, tied=True))
        plan = self.succeeds("plan", model, "--emulate", "1x1MiB", "-c", "16", "--no-offload", "--json").json()
        self.assertEqual(plan["memory_footprint_bytes"], 2 * BLOCK + TABLE + 128)
        self.assertEqual(sum(d["weights_bytes"] for d in plan["devices"]), 2 * BLOCK + TABLE + 128)
        self.assertEqual(plan["device_map"], {"": 0})

    def test_four_bit_packs_the_linears(self):
        model = self.write("net.tree.json", decoder(4))
        plan = self.succeeds("plan", model, "--load-in-4bit", "--emulate", "1x1MiB", "--json").json()
        elements = 5 * 64 * 64
        self.assertEqual(plan["memory_footprint_bytes"], 4 * (elements // 2 + elements // 64 * 4) + 2 * TABLE + 128)

    def test_are_inspected(self):
        model = self.write("net.tree.json", decoder(3, tied=True))
        modules = {m["path"]: m for m in self.succeeds("inspect", model, "--json").json()["modules"]}
        self.assertEqual(modules["embed"]["touched_bytes"], 128)
        self.assertEqual(modules["head"]["tied_to"], "embed")
        self.assertEqual(modules["layers.0.mlp"]["stored_bytes"], 4 * 64 * 64 * 2)
        self.assertIn("planned, not run", self.succeeds("inspect", model).out)

    def test_cannot_run(self):
        model = self.write("net.tree.json", decoder(1))
        self.assertIn("planned, not run", self.fails(4, "unsupported", "run", model, "-p", "x")["message"])

    def test_malformed_ones_are_refused_by_name(self):
        tree = decoder(1)
        tree["tree"]["m"][0][1]["p"][0][2] = "BF61"
        self.assertIn("embed.weight", self.fails(4, "corrupt_data", "plan", self.write("bad.tree.json", tree))["message"])
        self.fails(4, "corrupt_data", "plan", self.write("bad.tree.json", {"format": "berth-tree-2", "tree": {"c": "X"}}))
        self.fails(4, "corrupt_data", "plan", self.write("bad.tree.json", "{"))


class Warnings(Folder):
    """What goes wrong with a library's map, a line each."""

    def plan(self, tree, *options):
        return self.succeeds("plan", self.write("net.tree.json", tree), "--compat", "transformers", "-c", "16", *options, "--json").json()

    def says(self, plan, *words):
        self.assertTrue(any(all(w in line for w in words) for line in plan["warnings"]), f"{words}: {plan['warnings']}")

    def test_spills_although_one_accelerator_holds_it(self):  # defect D4
        plan = self.plan(decoder(20, vocab=10), "--max-memory", f"0={24 * BLOCK},1={5 * BLOCK},cpu={100 * BLOCK}")
        self.assertIn("cpu", plan["device_map"].values())
        self.says(plan, "although everything fits on accelerator 0")
        self.says(plan, "copied to device 0 for every token")

    def test_leaves_accelerators_empty(self):
        plan = self.plan(decoder(16, vocab=640), "--max-memory", ",".join(f"{k}={10 * BLOCK}" for k in range(8)) + f",cpu={BLOCK}")
        self.says(plan, "empty")

    def test_four_bit_on_the_cpu_is_refused_or_kept(self):
        budgets = ("--load-in-4bit", "--max-memory", f"0={5 * BLOCK},cpu={100 * BLOCK}")
        refused = self.plan(decoder(30, vocab=10), *budgets)
        self.assertEqual(refused["library_error"], {"library": "transformers", "stage": "validate", "type": "ValueError"})
        self.says(refused, "refuses this map", "llm_int8_enable_fp32_cpu_offload is off")
        kept = self.plan(decoder(30, vocab=10), *budgets, "--llm-int8-enable-fp32-cpu-offload")
        self.assertNotIn("library_error", kept)
        self.says(kept, "stay quantized")

    def test_scales_are_not_counted(self):  # 0.5 bytes an element, 0.5625 stored
        tree = decoder(40, vocab=10)
        plan = self.plan(tree, "--load-in-4bit", "--device-map", "sequential", "--max-memory", f"0={int((10 * BLOCK + 2700) / 0.9)},1={BLOCK}")
        self.says(plan, "Device 0", "as stored")

    def test_a_leaf_larger_than_any_device(self):
        plan = self.plan(decoder(2, vocab=100000), "--max-memory", "0=1MiB,1=1MiB,cpu=1GiB")
        self.says(plan, "embed", "more than any accelerator holds")

    def test_lower_case_gb_means_bits_there(self):
        plan = self.plan(decoder(2), "--max-memory", "0=24gb,cpu=1GiB")
        self.assertEqual(plan["budgets"]["0"], 3_000_000_000)
        self.says(plan, "24gb")

    def test_omitted_cpu_is_absent(self):
        plan = self.plan(decoder(20), "--max-memory", f"0={10 * BLOCK}")
        self.assertEqual(list(plan["budgets"]), ["0"])
        self.assertIn("disk", plan["device_map"].values())
        self.says(plan, "max_memory names no", "cpu")

    def test_what_the_library_raises(self):
        model = self.write("net.tree.json", decoder(4))
        for library, memory, mode, kind in (("transformers", "0=1TB", "auto", "ValueError"), ("transformers", "gpu=1GB", "auto", "ValueError"),
                                            ("transformers", "0=infGB", "auto", "OverflowError"), ("transformers", "1=1GB,2=1GB", "balanced_low_0", "KeyError"),
                                            ("accelerate", "0=1GB,disk=1GB", "balanced", "RuntimeError")):
            error = self.fails(2, "invalid_argument", "plan", model, "--compat", library, "--device-map", mode, "--max-memory", memory)
            self.assertEqual(error["details"]["type"], kind, error)

    def test_options_that_mean_nothing(self):
        model = self.write("net.tree.json", decoder(1))
        self.assertIn("transformers", self.fails(2, "invalid_argument", "plan", model, "--compat", "transformer")["message"])
        self.assertIn("sequential", self.fails(2, "invalid_argument", "plan", model, "--compat", "transformers", "--device-map", "sequental")["message"])
        self.fails(4, "unsupported", "plan", model, "--compat", "accelerate", "--load-in-4bit")

    def test_a_map_of_the_users(self):
        plan = self.plan(decoder(4), "--device-map", '{"": 0, "head": "cpu"}', "--emulate", "1x1GiB")
        self.assertEqual((plan["device_map"], plan["strategy"]), ({"": 0, "head": "cpu"}, "custom"))
        self.says(plan, "copied to device 0")

    def test_text_names_the_library_and_what_is_wrong(self):
        text = self.succeeds("plan", self.write("net.tree.json", decoder(20, vocab=10)), "--compat", "accelerate", "-c", "16", "--max-memory",
                             f"0={24 * BLOCK},1={5 * BLOCK},cpu={100 * BLOCK}").out
        self.assertIn("as accelerate plans it", text)
        self.assertIn("although everything fits", text)


class CustomMaps(Folder):
    def refused(self, device_map, *words):
        model = self.write("net.tree.json", decoder(12))
        error = self.fails(2, "invalid_argument", "plan", model, "--emulate", "2x1MiB", "--device-map", json.dumps(device_map))
        for word in words:
            self.assertIn(word, " ".join([error["message"], *error["hints"]]))

    def test_mistakes_are_named(self):
        self.refused({"": 0, "layer.3": 1}, '"layer.3"', 'did you mean "layers.3"')
        self.refused({"layers": 0, "norm": 0, "head": 1}, '"embed.weight"', "no device")
        self.refused({"": 0, "layers.3": 2}, '"2"', "2 accelerators")
        self.refused({"": 0, "layers.3": "meta"}, "meta")
        self.refused({f"base_model.model.{k}": 0 for k in ("embed", "layers", "norm", "head")}, "base_model.model.", "cut the prefix off")
        self.refused({}, "no entries")

    def test_a_child_decides_for_itself(self):
        model = self.write("net.tree.json", decoder(12))
        plan = self.succeeds("plan", model, "--emulate", "2x1MiB", "-c", "16", "--device-map", '{"": 0, "layers": 1, "layers.3": 0}', "--json").json()
        self.assertEqual(plan["device_map"]["layers.3"], 0)
        self.assertTrue(any("decide" in w for w in plan["warnings"]))


class Training(Folder):
    def test_counts_gradients_and_moments(self):
        model = self.write("net.tree.json", decoder(4))
        plan = self.succeeds("plan", model, "--for", "training", "--emulate", "2x8MiB", "-c", "16", "--json").json()
        self.assertEqual(plan["device_map"], {"": 0})
        self.assertEqual(sum(d["weights_bytes"] for d in plan["devices"]), 4 * (4 * BLOCK + 2 * TABLE + 128))
        text = " ".join(plan["warnings"])
        for words in ("gradients", "AdamW", "one process on each", "no KV cache"):
            self.assertIn(words, text)

    def test_spreads_over_accelerators_of_one_process(self):
        plan = self.succeeds("plan", self.write("net.tree.json", decoder(20)), "--for", "training", "--emulate", "3x2MiB", "-c", "16", "--json").json()
        self.assertGreater(len(set(plan["device_map"].values())), 1)
        self.assertNotIn("cpu", plan["device_map"].values())
        self.assertIn("Accelerator.prepare refuses", " ".join(plan["warnings"]))

    def test_does_not_offload(self):
        model = self.write("net.tree.json", decoder(20))
        error = self.fails(3, "does_not_fit", "plan", model, "--for", "training", "--emulate", "1x1MiB", "-c", "16")
        self.assertIn("training on 1 sequence of 16 tokens", error["message"])
        self.assertIn("--load-in-4bit", " ".join(error["hints"]))
        error = self.fails(2, "invalid_argument", "plan", model, "--for", "training", "--emulate", "1x1GiB", "--device-map", '{"": 0, "head": "cpu"}')
        self.assertIn("no gradients", error["message"])

    def test_quantized_weights_are_not_trained(self):
        plan = self.succeeds("plan", self.write("net.tree.json", decoder(4)), "--for", "training", "--load-in-4bit", "--emulate", "1x1MiB", "-c", "16", "--json").json()
        self.assertIn("only adapters", " ".join(plan["warnings"]))

    def test_a_librarys_map_is_judged_for_it(self):
        plan = self.succeeds("plan", self.write("net.tree.json", decoder(20)), "--compat", "transformers", "--for", "training", "--max-memory", "0=600KiB,1=600KiB", "--json").json()
        text = " ".join(plan["warnings"])
        self.assertIn("Accelerator.prepare refuses", text)
        self.assertIn("weights, gradients and AdamW's moments", text)


class Compare(Folder):
    def test_has_the_libraries_beside_ours(self):
        model = self.write("net.tree.json", decoder(20, vocab=10))
        budgets = ("-c", "16", "--max-memory", f"0={24 * BLOCK},1={5 * BLOCK},cpu={100 * BLOCK}")
        rows = self.succeeds("compare", model, *budgets, "--json").json()
        self.assertEqual([(r["compat"], r["strategy"]) for r in rows],
                         [(None, s) for s in ("best", "balanced", "balanced_low_0", "sequential")] +
                         [(lib, s) for lib in ("transformers", "accelerate") for s in ("balanced", "balanced_low_0", "sequential")])
        for row in rows:
            self.assertNotIn("units", row)
            if row["fits"]:
                self.assertIn("decode_tokens_per_s", row["estimate"])
            else:
                self.assertTrue(row["error"]["message"])
        alone = self.succeeds("plan", model, "--compat", "transformers", *budgets, "--json").json()
        self.assertEqual(rows[4]["device_map"], alone["device_map"])
        text = self.succeeds("compare", model, *budgets).out
        self.assertEqual(text.count("\n* "), 1)
        self.assertIn("transformers balanced", text)


if __name__ == "__main__":
    if "--all" in sys.argv:
        ALL = True
        sys.argv.remove("--all")
    unittest.main()
