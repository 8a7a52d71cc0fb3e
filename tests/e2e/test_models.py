"""Texts, tokens, logits of real models through the command, against outputs of the real libraries (the goldens)."""
import json
import math
import struct
import tempfile
import unittest
from pathlib import Path

from berth_command import SHARED, SMOLLM2, STORIES, CommandTest, berth

REAL = SHARED / "golden/real_models"


def lines(text):
    """By line feeds alone: JSON strings may hold the other characters that splitlines() ends a line at."""
    return text.removesuffix("\n").split("\n")


def json_lines(path):
    return [json.loads(line) for line in lines(Path(path).read_text())]


def read_safetensors(path):
    """{name: (shape, [floats])} of F32 tensors."""
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    out = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        out[name] = (entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin : 8 + size + end]))
    return out


class Tokens(CommandTest):
    def check_tokenizer(self, model, cases):
        texts = "".join(json.dumps(c["text"], ensure_ascii=False) + "\n" for c in cases)
        plain = self.succeeds("tokenize", model, "--no-special", stdin=texts)
        special = self.succeeds("tokenize", model, stdin=texts)
        for case, without, with_special in zip(cases, lines(plain.out), lines(special.out), strict=True):
            self.assertEqual(json.loads(without), case["ids"], case["text"])
            self.assertEqual(json.loads(with_special), case.get("ids_special", case["ids"]), case["text"])
        kept = self.succeeds("detokenize", model, stdin=special.out)
        skipped = self.succeeds("detokenize", model, "--skip-special", stdin=special.out)
        for case, decoded, skip in zip(cases, lines(kept.out), lines(skipped.out), strict=True):
            self.assertEqual(json.loads(decoded), case["decoded"])
            self.assertEqual(json.loads(skip), case["decoded_skip"])

    def test_stories260k(self):
        self.check_tokenizer(STORIES, json_lines(self.need(SHARED / "golden/tokenizers/stories260k/cases.jsonl")))

    def test_smollm2_from_gguf(self):
        self.check_tokenizer(self.need(SMOLLM2), json_lines(self.need(SHARED / "golden/tokenizers/smollm2/cases.jsonl")))

    def test_a_line_that_is_no_json_is_named(self):
        ran = self.check(berth("tokenize", STORIES, stdin='"a"\nb\n'), 2)
        self.assertEqual(ran.out, "[1, 261]\n")  # what was right before it is there
        self.assertIn("line 2", ran.err)


class Templates(CommandTest):
    def test_smollm2(self):
        self.need(SMOLLM2)
        folder = self.need(SHARED / "golden/chat_templates")
        conversations = {c["case"]: c for c in json.loads((folder / "conversations.json").read_text())}
        cases = json_lines(folder / "smollm2-135m-instruct.jsonl")
        for case in cases[::4]:  # all of them are run in berth/jinja; here the way through the command
            conversation = conversations[case["case"]]
            document = {"messages": conversation["messages"], "add_generation_prompt": case["add_generation_prompt"],
                        "now": "2026-01-15T12:34:56", **conversation["kwargs"]}
            if conversation["tools"] is not None:
                document["tools"] = conversation["tools"]
            ran = berth("template", SMOLLM2, stdin=json.dumps(document))
            if "error" in case:
                self.check(ran, 2 if ran.status == 2 else 1)
                self.assertEqual(ran.out, "")
                if case["error"] == "TemplateError":
                    self.assertIn(case["message"], ran.err)
            else:
                self.check(ran, 0)
                self.assertEqual(ran.out, case["text"])

    def test_a_model_without_one_says_so(self):
        ran = berth("template", STORIES, stdin='{"messages": [{"role": "user", "content": "Hi"}]}')
        self.assertNotEqual(ran.status, 0)
        self.assertIn("template", ran.err)


class Stories260K(CommandTest):
    def setUp(self):
        self.expected = json.loads(Path(self.need(REAL / "stories260k/expected.json")).read_text())

    def test_greedy_tokens(self):
        for prompt in self.expected["prompts"]:
            ran = self.succeeds("run", STORIES, "-p", prompt["text"], "-n", "48", "--ignore-eos", "--json").json()
            self.assertEqual(ran["prompt_tokens"], len(prompt["ids"]))
            self.assertEqual(ran["tokens"], prompt["greedy48"])

    def test_logits_and_perplexity(self):
        reference = read_safetensors(REAL / "stories260k/logits.safetensors")
        with tempfile.TemporaryDirectory() as folder:
            for prompt in self.expected["prompts"]:
                ids, out = Path(folder) / "ids.json", Path(folder) / "logits.safetensors"
                ids.write_text(json.dumps(prompt["ids"]))
                self.succeeds("eval", STORIES, "--tokens", ids, "--logits", out)
                shape, found = read_safetensors(out)["logits"]
                self.assertEqual(shape, [len(prompt["ids"]), 512])
                _, wanted = reference[f"{prompt['id']}.logits"]
                self.assertEqual(len(found), len(wanted))
                worst = max(abs(a - b) for a, b in zip(found, wanted))
                self.assertLessEqual(worst, 2e-4 * max(map(abs, wanted)))
                print(f"stories260k {prompt['id']}: largest difference of a logit {worst:.2e}")
            ids = Path(folder) / "ids.json"
            ids.write_text(json.dumps(self.expected["perplexity"]["ids"]))
            document = self.succeeds("eval", STORIES, "--tokens", ids, "--json").json()
            self.assertAlmostEqual(document["nll"], self.expected["perplexity"]["mean_nll"], delta=1e-4)
            self.assertAlmostEqual(document["perplexity"], math.exp(document["nll"]), delta=1e-9 * document["perplexity"])

    def test_one_token_has_logits_and_predicts_nothing(self):
        reference = read_safetensors(REAL / "stories260k/logits.safetensors")
        prompt = self.expected["prompts"][0]
        with tempfile.TemporaryDirectory() as folder:
            ids, out = Path(folder) / "ids.json", Path(folder) / "logits.safetensors"
            ids.write_text(json.dumps(prompt["ids"][:1]))
            document = self.succeeds("eval", STORIES, "--tokens", ids, "--logits", out, "--json").json()
            self.assertEqual((document["tokens"], document["nll"], document["perplexity"]), (1, None, None))
            shape, found = read_safetensors(out)["logits"]
            self.assertEqual(shape, [1, 512])
            wanted = reference[f"{prompt['id']}.logits"][1][:512]
            self.assertLessEqual(max(abs(a - b) for a, b in zip(found, wanted)), 2e-4 * max(map(abs, wanted)))
            ids.write_text("[]")
            self.fails(2, "invalid_argument", "eval", STORIES, "--tokens", ids)

    def test_text_file_is_tokenized_first(self):
        with tempfile.TemporaryDirectory() as folder:
            text, ids = Path(folder) / "text.txt", Path(folder) / "ids.json"
            text.write_text("Once upon a time, there was a")
            ids.write_text(json.dumps(self.expected["prompts"][0]["ids"]))
            self.assertEqual(self.succeeds("eval", STORIES, "--text", text, "--json").json()["logits_hash"],
                             self.succeeds("eval", STORIES, "--tokens", ids, "--json").json()["logits_hash"])


class AnyClone(CommandTest):
    """Needs no goldens: what the checkpoint in the repository must answer anywhere."""

    def test_the_story_begins(self):
        ran = self.succeeds("run", STORIES, "-p", "Once upon a time", "-n", "32")
        self.assertEqual(ran.out, ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw\n")

    def test_places_give_the_same_bits(self):
        for numerics in ("exact", "int8"):
            ran = self.succeeds("verify", STORIES, "cpu", "0", "best", "balanced", '{"": "cpu", "model.layers.1": 0, "model.layers.3": 1}',
                                "--emulate", "1x4MiB,1x8MiB", "-c", "64", "-p", "Once upon a time", "-n", "8", "--numerics", numerics,
                                "--load-in-8bit", "--json").json()
            self.assertTrue(ran["identical"])
            self.assertEqual(len(ran["runs"]), 5)
            self.assertEqual(len({run["logits_hash"] for run in ran["runs"]}), 1)
            self.assertLessEqual({"plan", "logits_hash", "tokens", "peak"}, ran["runs"][0].keys())

    def test_what_is_wrong_with_the_text_shows_before_weights_are_placed_or_read(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = Path(folder)
            for name in ("config.json", "model.safetensors"):
                (broken / name).symlink_to(STORIES / name)
            ask = ("run", broken, "-p", "hi", "--max-memory", "cpu=1KB")  # fits nowhere
            self.assertIn("tokenizer.json", self.fails(4, "unsupported", *ask)["message"])
            (broken / "tokenizer.json").write_text("{")
            self.assertIn("tokenizer.json", self.fails(4, "corrupt_data", *ask)["message"])
            story = ("run", STORIES, "-p", "hi", "--max-memory", "cpu=1KB")
            self.assertIn("chat template", self.fails(4, "unsupported", *story, "--chat")["message"])
            self.fails(3, "does_not_fit", *story)

    def test_token_ids_are_a_prompt_and_need_no_tokenizer(self):
        text = self.succeeds("run", STORIES, "-p", "Once upon a time", "-n", "8", "--ignore-eos", "--json").json()
        (line,) = lines(self.succeeds("tokenize", STORIES, stdin='"Once upon a time"\n').out)
        with tempfile.TemporaryDirectory() as folder:
            ids = Path(folder) / "ids.json"
            ids.write_text(line)
            ran = self.succeeds("run", STORIES, "--prompt-tokens", ids, "-n", "8", "--ignore-eos", "--json").json()
            self.assertEqual(ran["logits_hash"], text["logits_hash"])
            self.assertEqual(ran["text"], text["text"])
            bare = Path(folder) / "bare"
            bare.mkdir()
            for name in ("config.json", "model.safetensors"):
                (bare / name).symlink_to(STORIES / name)
            ran = self.succeeds("run", bare, "--prompt-tokens", ids, "-n", "8", "--ignore-eos")
            self.assertEqual(json.loads(ran.out), text["tokens"])
            self.fails(4, "unsupported", "run", bare, "-p", "Once", "-n", "1")
            self.fails(2, "invalid_argument", "run", STORIES, "--prompt-tokens", ids, "-p", "Once", "-n", "1")

    def test_a_seed_makes_sampling_repeatable(self):
        sampled = ("run", STORIES, "-p", "Once", "-n", "24", "--temp", "1.0", "--top-k", "40", "--json", "--seed")
        one, again, other = (self.succeeds(*sampled, seed).json()["tokens"] for seed in ("7", "7", "8"))
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)

    def test_stop_text_ends_the_answer_before_it(self):
        ran = self.succeeds("run", STORIES, "-p", "Once upon a time", "-n", "64", "--stop", "girl", "--json").json()
        self.assertEqual(ran["text"], ", there was a little ")
        self.assertEqual(ran["stop_reason"], "stop_string")


class SmolLM2(CommandTest):
    def test_answers_and_says_what_it_does_to_the_weights(self):
        self.need(SMOLLM2)
        arguments = ("-p", "What is the capital of France?", "--chat", "-n", "16", "--emulate", "1x40MiB,1x100MiB", "-c", "128")
        published = self.succeeds("run", SMOLLM2, *arguments)
        self.assertIn("Paris", published.out)
        quantized = self.succeeds("run", SMOLLM2, *arguments, "--load-in-4bit")
        self.assertRegex(quantized.err, "nf4.* on load")
        self.assertIn("dequantized first", quantized.err)

    def test_greedy_tokens(self):
        self.need(SMOLLM2)
        for prompt in json.loads(Path(self.need(REAL / "smollm2-135m/expected.json")).read_text())["prompts"][:1]:
            ran = self.succeeds("run", SMOLLM2, "-p", prompt["text"], "-n", "16", "--ignore-eos", "--kv-dtype", "float32", "--json").json()
            self.assertEqual(ran["prompt_tokens"], len(prompt["ids"]))
            self.assertEqual(ran["tokens"], prompt["greedy48"][:16])


if __name__ == "__main__":
    unittest.main()
