"""What scripts rely on: exit statuses, one JSON document, results on stdout and the rest on stderr, messages that name things."""
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from berth_command import BERTH, SOURCE, STORIES, CommandTest, berth, environment

TWO_DEVICES = ("--emulate", "1x1MiB,1x1600KiB", "-c", "128", "--no-offload")


def machine_file():
    """Two unequal emulated devices, and a cpu and a disk that do not depend on what else runs here."""
    device = {"kind": "emulated", "read_bytes_per_s": 9e11, "flops_per_s": 6e13, "link_bytes_per_s": 2.5e10, "link_latency_s": 1e-5}
    file = tempfile.NamedTemporaryFile("w", suffix=".json")
    json.dump({"devices": [{"id": "emu:0", "memory_bytes": 1 << 20, **device}, {"id": "emu:1", "memory_bytes": 1600 << 10, **device},
                           {"id": "cpu", "kind": "cpu", "memory_bytes": 1 << 30, "read_bytes_per_s": 4e10, "flops_per_s": 5e11},
                           {"id": "disk", "kind": "disk", "memory_bytes": 1 << 34, "read_bytes_per_s": 2e9}]}, file)
    file.flush()
    return file


def command_names():
    help_text = berth("--help").out
    return re.findall(r"^  ([a-z]+) {2,}\S", help_text, re.M)


class Help(CommandTest):
    def test_names_every_command_and_each_has_its_own(self):
        names = command_names()
        for wanted in ("inspect", "plan", "run", "eval", "verify", "bench", "tokenize", "detokenize", "template", "devices", "doctor"):
            self.assertIn(wanted, names)
        for name in names:
            ran = self.succeeds(name, "--help")
            self.assertIn(f"berth {name}", ran.out)
            self.assertEqual(ran.err, "")

    def test_of_options_says_what_they_do(self):
        for name in ("plan", "run", "verify", "eval", "bench"):
            for line in re.findall(r"^  (?:-\w,)?--\S.*$", self.succeeds(name, "--help").out, re.M):
                name_and_value = r"(?:-\w,)?--[\w-]+(?: \S+)?"
                if len(line.rstrip()) > 34 and not re.fullmatch(name_and_value, line.strip()):  # long names: text on the next line
                    self.assertRegex(line.strip(), name_and_value + r" +\S", f"{name}: an option without help")

    def test_version(self):
        version = re.search(r"project\(berth VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
        self.assertEqual(self.succeeds("--version").out, f"berth {version}\n")

    def test_page_about_commands_is_what_help_prints(self):
        made = subprocess.run(["python3", SOURCE / "tools/make_cli_page.py", BERTH], capture_output=True, text=True, check=True).stdout
        self.assertEqual(made, (SOURCE / "docs/cli.md").read_text(), "run: tools/make_cli_page.py build/dev/cli/berth > docs/cli.md")


class Usage(CommandTest):
    def test_unknown_option_names_the_nearest(self):
        error = self.fails(2, "invalid_argument", "plan", STORIES, "--emulat", "1x1GiB")
        self.assertIn("--emulat", error["message"])
        self.assertIn('did you mean "--emulate"', error["message"])

    def test_unknown_command_names_the_nearest(self):
        ran = self.check(berth("inspct"), 2)
        self.assertIn('did you mean "inspect"', ran.err)

    def test_missing_arguments(self):
        self.fails(2, "invalid_argument", "plan")
        self.check(berth(), 2)

    def test_values_that_mean_nothing(self):
        for option, value, named in (("--dtype", "float7", "float7"), ("--emulate", "banana", "banana"), ("--numerics", "fast", "fast"),
                                     ("--isa", "mmx", "mmx"), ("--ctx-size", "-3", "-3"), ("--batch", "0", "0"), ("-c", "many", "many"),
                                     ("--kv-dtype", "q4", "q4"), ("--target", "onnx", "onnx"), ("--margin", "lots", "lots"),
                                     ("--machine", "/no/such.json", "/no/such.json")):
            with self.subTest(option=option):
                ran = berth("plan", STORIES, option, value, "--json")
                self.assertIn(ran.status, (1, 2) if option == "--machine" else (2,), ran.out + ran.err)
                self.assertIn(named, ran.json()["error"]["message"])

    def test_unknown_strategy_names_the_nearest(self):
        error = self.fails(2, "invalid_argument", "plan", STORIES, "--device-map", "sequental")
        self.assertIn("sequential", error["message"])

    def test_selectors_that_match_nothing(self):
        error = self.fails(2, "invalid_argument", "plan", STORIES, "--pin", "model.layer.0=0", *TWO_DEVICES)
        self.assertIn("model.layer.0", error["message"])
        self.assertIn("did you mean", error["message"])
        error = self.fails(2, "invalid_argument", "plan", STORIES, "--pin", "model.layers.0=emu:7", *TWO_DEVICES)
        self.assertIn("emu:7", error["message"])
        error = self.fails(2, "invalid_argument", "plan", STORIES, "--load-in-8bit", "--llm-int8-skip-modules", "lm_haed")
        self.assertIn('did you mean "lm_head"', error["message"])
        error = self.fails(2, "invalid_argument", "plan", STORIES, "--device-map", '{"": 0, "model.layer.0": 1}', *TWO_DEVICES)
        self.assertIn("model.layer.0", error["message"])
        error = self.fails(2, "invalid_argument", "plan", STORIES, "--max-memory", "gpu=1GiB")
        self.assertIn("gpu", error["message"])

    def test_contradictions(self):
        self.fails(2, "invalid_argument", "plan", STORIES, "--load-in-4bit", "--load-in-8bit")
        self.fails(2, "invalid_argument", "eval", STORIES)

    def test_later_commands_are_known_and_refused(self):
        for name in ("synth", "pull", "serve"):
            if f"{name} " in berth("--help").out.split("Not in this version")[-1]:
                ran = self.check(berth(name, "x"), 2)
                self.assertIn("berth: unsupported: ", ran.err)

    def test_lower_case_gb_is_bytes_with_a_note(self):
        ran = self.succeeds("plan", STORIES, "--max-memory", "0=1gb", "--json")
        self.assertEqual(ran.json()["budgets"]["0"], 1_000_000_000)
        self.assertEqual((ran.err + "".join(ran.json()["warnings"])).count("a lower-case b means bytes"), 1)


class Failures(CommandTest):
    def test_no_such_model(self):
        self.assertIn("/no/such/model", self.fails(1, "not_found", "plan", "/no/such/model")["message"])

    def test_does_not_fit(self):
        error = self.fails(3, "does_not_fit", "plan", STORIES, "--emulate", "1x600KiB", "--no-offload")
        details = error["details"]
        self.assertLessEqual({"device", "module", "needed_bytes", "available_bytes", "missing_bytes", "proof", "remedies"}, details.keys())
        self.assertEqual(details["device"], "0")
        self.assertEqual(details["needed_bytes"] - details["available_bytes"], details["missing_bytes"])
        self.assertIn(details["proof"], ("unit", "volume", "runs", "none_found"))
        self.assertTrue(error["hints"])

    def test_running_refuses_before_it_reads_weights(self):
        # A checkpoint of the same header with no data behind it could not be read; the refusal must come first.
        self.fails(3, "does_not_fit", "run", STORIES, "-p", "Hi", "--emulate", "1x600KiB", "--no-offload")

    def test_damaged_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy"
            shutil.copytree(STORIES, copy)
            weights = (copy / "model.safetensors").read_bytes()
            for label, data in (("cut short", weights[: len(weights) // 2]), ("no header", b"\xff" * 64), ("empty", b"")):
                with self.subTest(label):
                    (copy / "model.safetensors").write_bytes(data)
                    self.assertIn("model.safetensors", self.fails(4, "corrupt_data", "run", copy, "-p", "Hi")["message"])
            (copy / "model.safetensors").write_bytes(weights)
            config = json.loads((copy / "config.json").read_text())
            (copy / "config.json").write_text(json.dumps({**config, "hidden_size": 128}))
            self.assertEqual(berth("plan", copy, "--json").status, 4)
            (copy / "config.json").write_text(json.dumps({**config, "model_type": "lama", "architectures": ["LamaForCausalLM"]}))
            error = self.fails(4, "unsupported", "plan", copy)
            self.assertIn("lama", error["message"])

    def test_a_file_that_is_no_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.gguf"
            path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 2) + b"\xff" * 100)
            self.assertIn("x.gguf", self.fails(4, "corrupt_data", "inspect", path)["message"])


class Documents(CommandTest):
    def test_plan_keys(self):
        plan = self.succeeds("plan", STORIES, *TWO_DEVICES, "--json").json()
        self.assertEqual(plan["format"], "berth-plan-1")
        self.assertLessEqual({"berth", "inputs", "model", "strategy", "compat", "fits", "device_map", "budgets", "devices", "units", "estimate",
                              "certificate", "memory_footprint_bytes", "warnings"}, plan.keys())
        self.assertLessEqual({"options", "machine", "checkpoint", "ctx_size", "batch", "kv_dtype", "prefill_chunk"}, plan["inputs"].keys())
        self.assertLessEqual({"name", "architecture", "dtype", "parameters", "quantization"}, plan["model"].keys())
        self.assertEqual(plan["model"]["parameters"], 260032)
        self.assertTrue(plan["fits"])
        for device in plan["devices"]:
            items = [device[k] for k in ("weights_bytes", "kv_bytes", "workspace_bytes", "staging_bytes", "overhead_bytes", "margin_bytes")]
            self.assertEqual(device["free_bytes"], device["budget_bytes"] - sum(items))
            self.assertGreaterEqual(device["free_bytes"], 0)
            self.assertIn("machine_id", device)
        for unit in plan["units"]:
            self.assertLessEqual({"path", "paths", "device", "computed_on", "access", "access_prefill", "stored_bytes", "touched_bytes", "kv_bytes",
                                  "reason"}, unit.keys())
        by_device = {}
        for unit in plan["units"]:
            by_device[str(unit["device"])] = by_device.get(str(unit["device"]), 0) + unit["stored_bytes"]
        for device in plan["devices"]:
            self.assertEqual(device["weights_bytes"], by_device.get(device["id"], 0))
        for value in plan["device_map"].values():
            self.assertIn(value, (0, 1, "cpu", "disk"))
        self.assertEqual({0, 1}, set(plan["device_map"].values()), "two devices, neither of which holds it")

    def test_same_inputs_same_bytes(self):
        with machine_file() as machine:
            for arguments in ((), ("--load-in-4bit",), ("--device-map", "balanced"), ("--max-memory", "0=900KiB,1=1500KiB,cpu=1GiB")):
                for form in (("--json",), ()):
                    first, second = (self.succeeds("plan", STORIES, "--machine", machine.name, "-c", "128", *arguments, *form).out for _ in range(2))
                    self.assertEqual(first, second)

    def test_a_plan_map_is_taken_back(self):
        with machine_file() as machine:
            common = ("plan", STORIES, "--machine", machine.name, "-c", "128", "--json")
            plan = self.succeeds(*common).json()
            again = self.succeeds(*common, "--device-map", json.dumps(plan["device_map"])).json()
            self.assertEqual(plan["device_map"], again["device_map"])
            self.assertEqual(plan["devices"], again["devices"])

    def test_run_keys_and_predicted_memory(self):
        report = self.succeeds("run", STORIES, "-p", "Once upon a time", "-n", "8", *TWO_DEVICES, "--json").json()
        self.assertLessEqual({"text", "tokens", "prompt_tokens", "hf_device_map", "memory", "load_s", "prefill_tokens_per_s",
                              "decode_tokens_per_s", "numerics", "logits_hash"}, report.keys())
        self.assertEqual(len(report["tokens"]), 8)
        self.assertRegex(report["logits_hash"], r"^[0-9a-f]{32}$")
        self.assertEqual(set(report["memory"]), {"0", "1"})
        for device, row in report["memory"].items():
            for tag in ("weights", "kv"):
                self.assertEqual(row[tag]["predicted"], row[tag]["measured"], f"{tag} of device {device}")
            self.assertLessEqual(row["peak"]["measured"], row["peak"]["predicted"])
            self.assertGreaterEqual(row["peak"]["measured"], 0.99 * row["peak"]["predicted"])

    def test_inspect_keys(self):
        document = self.succeeds("inspect", STORIES, "--json").json()
        self.assertIn("model", document)
        for module in document["modules"]:
            self.assertLessEqual({"path", "class", "parameters", "stored_bytes", "touched_bytes", "dtype", "tied_to"}, module.keys())
        self.assertEqual({m["path"]: m["tied_to"] for m in document["modules"]}["lm_head"], "model.embed_tokens")

    def test_bench_keys(self):
        rows = self.succeeds("bench", STORIES, "-p", "16", "-n", "4", "-r", "1", "-t", "1,2", "--json").json()
        self.assertEqual([(r["test"], r["threads"]) for r in rows], [("pp16", 1), ("tg4", 1), ("pp16", 2), ("tg4", 2)])
        for row in rows:
            self.assertLessEqual({"tokens_per_s", "stdev", "bytes_per_token", "read_gb_per_s", "read_limit_gb_per_s", "share", "ready_s", "peak_rss_bytes"}, row.keys())

    def test_bench_behind_a_context(self):
        """--depth: tests are named so, the cache of what lies before is counted, and a short context is refused."""
        def decode(*arguments):
            rows = self.succeeds("bench", STORIES, "-n", "4", "-r", "2", "-t", "1", "--json", *arguments).json()
            return {r["test"]: r for r in rows}
        plain, deep, deeper = decode("-p", "8"), decode("-p", "8", "-d", "64"), decode("-p", "0", "--depth", "128")
        self.assertEqual([list(rows) for rows in (plain, deep, deeper)], [["pp8", "tg4"], ["pp8@64", "tg4@64"], ["tg4@128"]])
        read = [rows[test]["bytes_per_token"] for rows, test in ((plain, "tg4"), (deep, "tg4@64"), (deeper, "tg4@128"))]
        self.assertGreater(read[1], read[0])
        self.assertEqual(read[1] - read[0], read[2] - read[1])  # 64 positions each
        refused = berth("bench", STORIES, "-p", "0", "-n", "4", "-d", "64", "--ctx-size", "32")
        self.assertEqual(refused.status, 2, refused.err)
        self.assertIn("68 tokens", refused.err)

    def test_bench_trace(self):
        text = self.succeeds("bench", STORIES, "-p", "0", "-n", "4", "-r", "1", "-t", "2", "--trace").out
        for wanted in ("linear", "attention", "rms_norm", "between operations", "GB/s"):
            self.assertIn(wanted, text)
        row, = self.succeeds("bench", STORIES, "-p", "0", "-n", "4", "-r", "1", "-t", "2", "--trace", "--json").json()
        linears = [r for r in row["timeline"] if r["operation"] == "linear"]
        self.assertGreater(sum(r["bytes"] * r["count"] for r in linears), 0.9 * row["bytes_per_token"] - 40_000)
        for r in row["timeline"]:
            self.assertLessEqual(r["alone"] + r["early"] + r["between"] + r["late"], r["seconds"] * 1.01 + 1e-6)

    def test_devices_prints_a_machine_file_that_plan_takes(self):
        with tempfile.TemporaryDirectory() as cache:  # what it measures is not kept for the other tests
            machine = self.succeeds("devices", "--json", XDG_CACHE_HOME=cache)
        self.assertIn("devices", machine.json())
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(machine.out)
            file.flush()
            self.succeeds("plan", STORIES, "--machine", file.name)

    def test_doctor_runs(self):
        self.assertIn(berth("doctor").status, (0, 1))
        berth("doctor", "--json").json()

    def test_settings_that_are_no_place_do_not_change_bits(self):
        hashes = set()
        for arguments in (("--device-map", "cpu"), TWO_DEVICES, ("-t", "1", "--prefill-chunk", "3"), ("--isa", "ref")):
            hashes.add(self.succeeds("run", STORIES, "-p", "Once upon a time", "-n", "8", "--json", *arguments).json()["logits_hash"])
        self.assertEqual(len(hashes), 1)


class Streams(CommandTest):
    def test_results_on_stdout_the_rest_on_stderr(self):
        ran = self.succeeds("run", STORIES, "-p", "Once upon a time", "-n", "8", "--report", *TWO_DEVICES)
        self.assertEqual(ran.out, ", there was a little girl\n")
        self.assertIn("predicted", ran.err)
        self.assertIn("emu:0", ran.err)

    def test_quiet_is_quiet(self):
        ran = self.succeeds("run", STORIES, "-p", "Once upon a time", "-n", "2", "--load-in-4bit", "--quiet")
        self.assertEqual(ran.err, "")

    def test_prompt_from_standard_input(self):
        ran = self.succeeds("run", STORIES, "-n", "8", stdin="Once upon a time")
        self.assertEqual(ran.out, ", there was a little girl\n")

    def test_no_color_where_it_is_unwanted(self):
        self.assertNotIn("\x1b", self.succeeds("plan", STORIES).out)
        self.assertIn("\x1b", self.succeeds("plan", STORIES, "--color", "always").out)
        self.assertIn("\x1b", on_terminal("plan", STORIES))
        self.assertNotIn("\x1b[3", on_terminal("plan", STORIES, NO_COLOR="1"))
        self.assertNotIn("\x1b[3", on_terminal("plan", STORIES, "--color", "never"))

    def test_man_page_and_completions(self):
        page = self.succeeds("man").out
        self.assertTrue(page.startswith(".TH BERTH 1"))
        for name in command_names():
            self.assertIn(name, page)
        self.assertNotRegex(page, r"(?m)^'", "a line that troff would take for a request")
        script = self.succeeds("completion", "bash").out
        with tempfile.NamedTemporaryFile("w", suffix=".bash") as file:
            file.write(script + "\nCOMP_WORDS=(berth plan --load-in-4); COMP_CWORD=2; _berth; echo \"${COMPREPLY[@]}\"\n")
            file.flush()
            out = subprocess.run(["bash", file.name], capture_output=True, text=True, check=True).stdout
        self.assertEqual(out, "--load-in-4bit\n")
        for shell in ("zsh", "fish"):
            self.assertIn("load-in-4bit", self.succeeds("completion", shell).out)


def on_terminal(*arguments, **env):
    """stdout of the command where stdout is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([BERTH, *map(str, arguments)], stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                               env=environment(TERM="xterm", **env))
    os.close(theirs)
    out = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
    process.wait()
    os.close(ours)
    return out.decode()


if __name__ == "__main__":
    unittest.main()
