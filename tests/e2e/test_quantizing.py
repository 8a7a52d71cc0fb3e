"""Quantized checkpoints made and read by the command, small ones made here: what the real libraries' answers on random
checkpoints brought up (each case was compared with them once; tests/libraries repeats that)."""
import json
import shutil
import struct
import tempfile
import unittest
from pathlib import Path

from berth_command import STORIES, CommandTest

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I8": 1, "U8": 1, "I32": 4, "I64": 8, "F8_E4M3": 1}


def write_safetensors(path, tensors):
    """{name: (dtype, shape)} zeros, or (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, *content) in tensors.items():
        count = 1
        for n in shape:
            count *= n
        body = content[0] if content else bytes(count * SIZES[dtype])
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(body)]}
        data += body
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    raw = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    return {k: (v["dtype"], v["shape"], raw[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]])
            for k, v in header.items() if k != "__metadata__"}


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32, "max_position_embeddings": 64, "tie_word_embeddings": False,
         "rms_norm_eps": 1e-5, "dtype": "bfloat16"}
LINEARS = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64),
           "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64), "mlp.down_proj": (64, 128)}


def llama(linear):
    """A model whose Linears are stored as `linear(out, in)` says: {suffix: (dtype, shape)}."""
    tensors = {"model.embed_tokens.weight": ("BF16", [32, 64]), "model.norm.weight": ("BF16", [64]), "lm_head.weight": ("BF16", [32, 64]),
               "model.layers.0.input_layernorm.weight": ("BF16", [64]), "model.layers.0.post_attention_layernorm.weight": ("BF16", [64])}
    for name, (rows, cols) in LINEARS.items():
        for suffix, tensor in linear(rows, cols).items():
            tensors[f"model.layers.0.{name}.{suffix}"] = tensor
    return tensors


def plain(rows, cols):
    return {"weight": ("BF16", [rows, cols])}


class Folders(CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def model(self, tensors, **config):
        folder = self.folder / "model"
        folder.mkdir(exist_ok=True)
        write_safetensors(folder / "model.safetensors", tensors)
        (folder / "config.json").write_text(json.dumps({**LLAMA, **config}))
        return folder

    def hash(self, *arguments):
        tokens = self.folder / "tokens.json"
        tokens.write_text("[1, 403, 407, 261, 378, 432]")
        return self.succeeds("eval", *arguments, "--tokens", tokens, "-c", "32", "--kv-dtype", "float32", "--json").json()["logits_hash"]


class OnLoadAndStored(Folders):
    """Weights of another dtype than the checkpoint's: quantized on load or into a folder first, the bits are the same."""

    def test_dtype_holds_for_norms_too(self):
        for dtype in ("bfloat16", "float16"):
            for way in ("--load-in-4bit", "--load-in-8bit"):
                out = self.folder / f"{dtype}{way}"
                self.succeeds("quantize", STORIES, out, way, "--dtype", dtype)
                stored = self.hash(out)
                self.assertEqual(self.hash(STORIES, way, "--dtype", dtype), stored)
                self.assertEqual(self.hash(STORIES, way, "--dtype", dtype, "--device-map", "disk", "--offload-folder", self.folder / "disk"), stored)
                self.assertNotEqual(self.hash(STORIES, way), stored)

    def test_dtype_holds_for_norms_joined_from_a_list(self):
        config = {"model_type": "stablelm", "architectures": ["StableLmForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                  "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 64, "qk_layernorm": True,
                  "tie_word_embeddings": False, "dtype": "float32"}
        (self.folder / "config.json").write_text(json.dumps(config))
        model, out = self.folder / "wide", self.folder / "narrow"
        self.succeeds("synth", self.folder / "config.json", model)
        self.succeeds("quantize", model, out, "--load-in-4bit", "--dtype", "bfloat16")
        self.assertEqual(self.hash(model, "--load-in-4bit", "--dtype", "bfloat16"), self.hash(out))

    def test_made_up_checkpoints_state_the_dtype_they_have(self):
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
                  "num_attention_heads": 4, "vocab_size": 32, "dtype": "bfloat16"}
        (self.folder / "config.json").write_text(json.dumps(config))
        for ways, dtype, stored in (((), "bfloat16", {"BF16"}), (("--dtype", "float16"), "float16", {"F16"}),
                                    (("--dtype", "float16", "--load-in-8bit"), "float16", {"F16", "F32", "I8", "U8"})):
            out = self.folder / "_".join(("made", *ways))
            self.succeeds("synth", self.folder / "config.json", out, *ways)
            self.assertEqual(json.loads((out / "config.json").read_text())["dtype"], dtype)
            self.assertLessEqual({tensor[0] for tensor in read_safetensors(out / "model.safetensors").values()}, stored)

    def test_a_bare_file_is_cast_whole(self):
        one = struct.pack("<4f", 1, 1 + 2**-10, -3.14159274, 0)
        write_safetensors(self.folder / "in.safetensors", {"a.weight": ("F32", [2, 64]), "a.bias": ("F32", [4], one), "n": ("I32", [2])})
        self.succeeds("quantize", self.folder / "in.safetensors", self.folder / "out.safetensors", "--load-in-4bit", "--dtype", "bfloat16")
        out = read_safetensors(self.folder / "out.safetensors")
        self.assertEqual(out["a.bias"], ("BF16", [4], struct.pack("<4H", 0x3F80, 0x3F80, 0xC049, 0)))
        self.assertEqual(out["n"][0], "I32")


class Foreign(Folders):
    """Formats that are not run: refused by name, and planned with the bytes of the file."""

    FORMATS = {
        "hqq": lambda o, i: {"W_q": ("U8", [o * i // 128, 64]), "scale": ("F16", [o * i // 64, 1]), "zero": ("F16", [o * i // 64, 1])},
        "quanto": lambda o, i: {"weight._data": ("I8", [o, i]), "weight._scale": ("BF16", [o, 1]), "input_scale": ("F32", []), "output_scale": ("F32", [])},
        "torchao": lambda o, i: {"_weight_qdata": ("I8", [o, i]), "_weight_scale": ("BF16", [o])},
        "aqlm": lambda o, i: {"codes": ("I8", [o, i // 8, 1]), "codebooks": ("F16", [1, 256, 1, 8]), "scales": ("F16", [o, 1, 1, 1])},
        "eetq": lambda o, i: {"weight": ("I8", [i, o]), "weight_scales": ("F16", [o])},
        "vptq": lambda o, i: {"indices": ("I32", [1, o, i // 8]), "centroids.weight": ("F16", [1, 2048])},
        "spqr": lambda o, i: {"dense_weights": ("I64", [o * i // 16]), "row_offsets": ("I32", [o + 1])},
        "gptq": lambda o, i: {"qweight": ("I32", [i // 8, o]), "qzeros": ("I32", [i // 32, o // 8]), "scales": ("F16", [i // 32, o]), "g_idx": ("I32", [i])},
        "fp8": lambda o, i: {"weight": ("F8_E4M3", [o, i]), "weight_scale_inv": ("F32", [-(-o // 32), -(-i // 32)])},
    }
    MORE = {"fp8": {"weight_block_size": [32, 32]}, "gptq": {"bits": 4, "group_size": 32}}

    def test_named_and_counted(self):
        for method, linear in self.FORMATS.items():
            with self.subTest(method):
                tensors = llama(linear)
                folder = self.model(tensors, quantization_config={"quant_method": method, **self.MORE.get(method, {})})
                self.assertIn(f"weights stored as {method}", self.fails(4, "unsupported", "run", folder, "--prompt-tokens", "/dev/null", "-n", "1")["message"])
                plan = self.succeeds("plan", folder, "--json").json()
                stored = sum(t["data_offsets"][1] - t["data_offsets"][0] for t in self.header(folder).values())
                self.assertLess(abs(plan["memory_footprint_bytes"] - stored), 2048, "vectors are fp32 in memory")

    @staticmethod
    def header(folder):
        raw = (folder / "model.safetensors").read_bytes()
        return json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])

    def test_fp8_without_its_scales_is_damaged(self):
        folder = self.model(llama(lambda o, i: {"weight": ("F8_E4M3", [o, i])}), quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
        self.assertIn("weight_scale_inv", self.fails(4, "corrupt_data", "plan", folder)["message"])


class Damaged(Folders):
    def test_fp8_scales_as_exponents_are_named(self):
        folder = self.model(llama(lambda o, i: {"weight": ("F8_E4M3", [o, i]), "weight_scale_inv": ("U8", [1, 1])}),
                            quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
        self.assertIn("fp8 in blocks of [128, 128] with scales in u8", self.fails(4, "unsupported", "run", folder, "--prompt-tokens", "/dev/null", "-n", "1")["message"])

    def test_fp8_scales_that_are_no_numbers_are_named(self):
        bad = struct.pack("<f", float("nan"))
        folder = self.model(llama(lambda o, i: {"weight": ("F8_E4M3", [o, i]), "weight_scale_inv": ("F32", [1, 1], bad)}),
                            quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
        (self.folder / "tokens.json").write_text("[1, 2]")
        message = self.fails(4, "corrupt_data", "eval", folder, "--tokens", self.folder / "tokens.json")["message"]
        self.assertIn('loading tensor "model.layers.0', message)
        self.assertIn("scales of a fp8 matrix: expected finite values, found NaN", message)

    def test_a_weight_that_is_no_number_is_named_before_anything_is_given_out(self):
        ones = lambda rows, cols: {"weight": ("BF16", [rows, cols], struct.pack("<H", 0x3C00) * (rows * cols))}
        tensors = llama(ones)
        rows, cols = tensors["model.layers.0.mlp.down_proj.weight"][1]
        data = bytearray(tensors["model.layers.0.mlp.down_proj.weight"][2])
        struct.pack_into("<H", data, 2 * (5 * cols + 7), 0x7FC0)
        folder = self.model({**tensors, "model.layers.0.mlp.down_proj.weight": ("BF16", [rows, cols], bytes(data))})
        (self.folder / "tokens.json").write_text("[1, 2]")
        named = 'loading tensor "model.layers.0.mlp.down_proj.weight": expected finite weights, found NaN at row 5, column 7'
        for command in [["eval", folder, "--tokens", self.folder / "tokens.json"], ["run", folder, "--prompt-tokens", self.folder / "tokens.json", "-n", "1"]]:
            for how in [[], ["--no-mmap"]]:
                self.assertIn(named, self.fails(4, "corrupt_data", *command, *how)["message"])

    def test_scales_that_are_no_floats(self):
        tensors = llama(lambda o, i: {"weight": ("I8", [o, i]), "SCB": ("I32", [o])})
        folder = self.model(tensors, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
        message = self.fails(4, "corrupt_data", "plan", folder)["message"]
        self.assertIn('"model.layers.0.self_attn.q_proj.SCB" is i32, expected f32', message)

    def test_two_states_of_one_weight(self):
        source = self.model(llama(plain))
        self.succeeds("quantize", source, self.folder / "nf4", "--load-in-4bit")
        tensors = read_safetensors(self.folder / "nf4/model.safetensors")
        weight = "model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__"
        tensors[weight + "fp4"] = tensors[weight + "nf4"]
        write_safetensors(self.folder / "nf4/model.safetensors", tensors)
        self.assertIn("has two quant_states", self.fails(4, "corrupt_data", "plan", self.folder / "nf4")["message"])


class Skipped(Folders):
    def test_a_tied_head_must_be_on_the_list(self):
        tensors = llama(plain)
        del tensors["lm_head.weight"]
        folder = self.model(tensors, tie_word_embeddings=True)
        error = self.fails(4, "unsupported", "quantize", folder, self.folder / "out", "--load-in-4bit", "--llm-int8-skip-modules", "q_proj")
        self.assertIn("--llm-int8-skip-modules q_proj,lm_head", error["hints"][0])
        self.succeeds("quantize", folder, self.folder / "out", "--load-in-4bit", "--llm-int8-skip-modules", "q_proj,lm_head")

    def test_a_subclass_of_linear_may_be_named(self):
        config = {"model_type": "falcon", "architectures": ["FalconForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
                  "vocab_size": 32, "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True, "bias": False}
        (self.folder / "config.json").write_text(json.dumps(config))
        self.succeeds("plan", self.folder / "config.json", "--load-in-4bit", "--llm-int8-skip-modules", "dense_4h_to_h,lm_head")
        error = self.fails(2, "invalid_argument", "plan", self.folder / "config.json", "--load-in-4bit", "--llm-int8-skip-modules", "dense_4h_to_x,lm_head")
        self.assertIn("dense_4h_to_h", error["message"])


class Scales(Folders):
    """Scales in a narrower float type than bitsandbytes writes today are widened, wherever the weights are."""

    NARROW = {"BF16": lambda x: x[2:4], "F16": lambda x: struct.pack("<e", struct.unpack("<f", x)[0]), "F32": lambda x: x}

    def stored(self, name, options, dtype):
        """The stories' model quantized, its scales cut to what `dtype` can hold and stored as that, and the same as F32."""
        made = self.folder / "made"
        if not made.exists():
            self.succeeds("quantize", STORIES, made, *options)
        out = self.folder / name
        out.mkdir(exist_ok=True)
        tensors = read_safetensors(made / "model.safetensors")
        for key, (was, shape, data) in tensors.items():
            if was == "F32" and key.endswith(("absmax", ".SCB")):
                wide = [data[i : i + 2] for i in range(2, len(data), 4)]  # bf16's digits; their last 3 bits go for fp16
                wide = [struct.pack("<f", max(struct.unpack("<f", b"\0\0" + w)[0], 2.0**-14)) for w in wide]
                tensors[key] = (dtype, shape, b"".join(map(self.NARROW[dtype], wide)))
        write_safetensors(out / "model.safetensors", tensors)
        (out / "config.json").write_text((made / "config.json").read_text())
        return out

    def test_of_narrow_types(self):
        for options in (["--load-in-4bit"], ["--load-in-8bit"], ["--load-in-4bit", "--bnb-4bit-use-double-quant"]):
            with self.subTest(options):
                want = self.hash(self.stored("wide", options, "F32"))
                for dtype in ("BF16", "F16"):
                    narrow = self.stored(dtype, options, dtype)
                    self.assertEqual(self.hash(narrow), want)
                    self.assertEqual(self.hash(narrow, "--device-map", "disk", "--offload-folder", self.folder / f"disk{dtype}"), want)
                    self.assertEqual(self.hash(narrow, "--no-mmap"), want)
            for child in ("made", "wide", "BF16", "F16"):
                shutil.rmtree(self.folder / child)


class Counted(Folders):
    def test_packed_weights_of_odd_sizes_end_in_a_whole_byte(self):
        config = {**LLAMA, "hidden_size": 63, "intermediate_size": 97, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 16}
        (self.folder / "config.json").write_text(json.dumps(config))
        plan = self.succeeds("plan", self.folder / "config.json", "--load-in-4bit", "--compat", "transformers", "--device-map", "cpu", "--json").json()
        self.assertEqual(plan["memory_footprint_bytes"], 23722)  # get_memory_footprint() of Transformers 5.24.0


    def footprint(self, folder, *options):
        return self.succeeds("plan", folder, "--compat", "transformers", "--device-map", "cpu", "--json", *options).json()["memory_footprint_bytes"]

    def test_eight_bit_modules_that_keep_wide_weights(self):
        folder = self.model(llama(plain))
        linears = sum(rows * cols for rows, cols in LINEARS.values())
        eight, wide = self.footprint(folder, "--load-in-8bit"), self.footprint(folder, "--load-in-8bit", "--llm-int8-has-fp16-weight")
        self.assertEqual((wide - eight, wide), (linears, self.footprint(folder)))

    def test_a_head_of_its_own_counts_although_the_config_ties_it(self):
        tied = self.footprint(self.model(llama(plain), tie_word_embeddings=True))
        tensors = llama(plain)
        tensors["lm_head.weight"] = ("BF16", [32, 64], b"\x80\x3f" * (32 * 64))
        folder = self.model(tensors, tie_word_embeddings=True)
        self.assertEqual(self.footprint(folder) - tied, 2 * 32 * 64)


class AskedForAgain(Folders):
    """4 or 8 bit asked for of a checkpoint that bitsandbytes made: what it says counts, as in Transformers, with a warning."""

    def test_nothing_changes(self):
        made = self.folder / "made"
        self.succeeds("quantize", STORIES, made, "--load-in-4bit", "--llm-int8-skip-modules", "down_proj,lm_head")
        plan = ("plan", made, "--compat", "transformers", "--device-map", "cpu", "--json")
        own = self.succeeds(*plan).json()
        for options in (["--load-in-8bit"], ["--load-in-8bit", "--llm-int8-has-fp16-weight"], ["--load-in-4bit", "--bnb-4bit-quant-type", "fp4"], ["--load-in-4bit", "--llm-int8-skip-modules", "up_proj"]):
            with self.subTest(options):
                self.assertEqual(self.hash(made, *options), self.hash(made))
                ran = self.succeeds(*plan, *options)
                self.assertIn("quantized by bitsandbytes already", ran.err)
                self.assertEqual(ran.json()["memory_footprint_bytes"], own["memory_footprint_bytes"])
                self.assertEqual(ran.json()["model"], own["model"])


class Written(Folders):
    """What `berth quantize` writes of sources that are not as save_pretrained leaves them."""

    def quantized(self, folder, *options):
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        self.succeeds("quantize", folder, out, *(options or ["--load-in-4bit"]))
        return read_safetensors(out / "model.safetensors")

    def test_the_configs_dtype_is_quantized_from(self):
        """Stored as float32 under a config that says bfloat16: what Transformers casts to first."""
        folder = self.folder / "stories"
        shutil.copytree(STORIES, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
        for way in ("--load-in-4bit", "--load-in-8bit"):
            plainly = self.quantized(folder, way)
            self.assertEqual(json.loads((self.folder / "out/config.json").read_text())["dtype"], "bfloat16")
            self.assertEqual(self.hash(self.folder / "out"), self.hash(folder, way))
            self.assertEqual(plainly, self.quantized(STORIES, way, "--dtype", "bfloat16"))

    def test_float64(self):
        tensors = llama(plain)
        one = struct.pack("<d", 1.0) + bytes(8 * (32 * 64 - 1))
        tensors["model.embed_tokens.weight"] = ("F64", [32, 64], one)
        folder = self.model(tensors)
        self.assertEqual(self.quantized(folder)["model.embed_tokens.weight"], ("BF16", [32, 64], b"\x80\x3f" + bytes(2 * (32 * 64 - 1))))
        self.model(tensors, dtype="float64")
        for way in ("--load-in-4bit", "--load-in-8bit"):
            self.assertIn("to be f64", self.fails(4, "unsupported", "quantize", folder, self.folder / "none", way)["message"])

    def test_a_head_that_differs_from_the_table_it_is_tied_to(self):
        tensors = llama(plain)
        tensors["lm_head.weight"] = ("BF16", [32, 64], b"\x80\x3f" * (32 * 64))
        folder = self.model(tensors, tie_word_embeddings=True)
        self.assertEqual(self.quantized(folder)["lm_head.weight"], tensors["lm_head.weight"])
        same = {**tensors, "model.embed_tokens.weight": tensors["lm_head.weight"]}
        self.assertNotIn("lm_head.weight", self.quantized(self.model(same, tie_word_embeddings=True)))

    def test_names_are_the_models(self):
        tensors = llama(plain)
        head = tensors.pop("lm_head.weight")
        want = self.quantized(self.model(tensors, tie_word_embeddings=True))
        base = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
        self.assertEqual(self.quantized(self.model(base, tie_word_embeddings=True)), want)
        untied = {**base, "lm_head.weight": head}  # beside the base model
        self.assertEqual(self.quantized(self.model(untied)), {**want, "lm_head.weight": head + (bytes(2 * 32 * 64),)})
        del tensors["model.embed_tokens.weight"]
        self.assertEqual(self.quantized(self.model({**tensors, "lm_head.weight": head}, tie_word_embeddings=True)), want)

    def test_names_of_tensors_that_are_read_as_parts_of_others(self):
        sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32,
                 "tie_word_embeddings": False, "dtype": "bfloat16"}
        for model_type, architecture, own, name in (
                ("stablelm", "StableLmForCausalLM", {"qk_layernorm": True}, "self_attn.q_layernorm.norms.0.weight"),
                ("mixtral", "MixtralForCausalLM", {"num_local_experts": 2, "num_experts_per_tok": 1}, "block_sparse_moe.experts.0.w1.weight")):
            with self.subTest(model_type):
                for folder in ("made", "base"):
                    shutil.rmtree(self.folder / folder, ignore_errors=True)
                config = json.dumps({"model_type": model_type, "architectures": [architecture], **sizes, **own})
                (self.folder / "config.json").write_text(config)
                self.succeeds("synth", self.folder / "config.json", self.folder / "made")
                want = self.quantized(self.folder / "made")
                base = {key.removeprefix("model."): tensor for key, tensor in read_safetensors(self.folder / "made/model.safetensors").items()}
                (self.folder / "base").mkdir()
                write_safetensors(self.folder / "base/model.safetensors", base)
                (self.folder / "base/config.json").write_text(config)
                self.assertEqual(self.quantized(self.folder / "base"), want)
                self.assertIn(f"model.layers.0.{name}", want)

    def test_skip_lists(self):
        folder = self.model(llama(plain))

        def listed(text):
            names = self.quantized(folder, "--load-in-8bit", "--llm-int8-skip-modules", text)
            wide = {name.removesuffix(".weight") for name in names if name.endswith("proj.weight") or name == "lm_head.weight"}
            skipped = {name.rsplit(".", 1)[-1] for name in wide if name + ".SCB" not in names}
            return skipped, json.loads((self.folder / "out/config.json").read_text())["quantization_config"]["llm_int8_skip_modules"]

        self.assertEqual(listed("[]"), (set(), []))
        self.assertEqual(listed(" up_proj, lm_head,"), ({"up_proj", "lm_head"}, ["up_proj", "lm_head"]))
        self.assertEqual(listed('["(?:model.){1,2}layers.0.mlp", "lm_head"]'), ({"up_proj", "gate_proj", "down_proj", "lm_head"}, ["(?:model.){1,2}layers.0.mlp", "lm_head"]))
        self.assertEqual(listed('[""]')[1], [""])
        error = self.fails(2, "invalid_argument", "quantize", folder, self.folder / "none", "--llm-int8-skip-modules", "lm_head,upproj")
        self.assertIn('"upproj" matches no module, did you mean "up_proj"?', error["message"])
        error = self.fails(2, "invalid_argument", "quantize", folder, self.folder / "none", "--llm-int8-skip-modules", "layers")
        self.assertIn('"layers" matches no module, did you mean "layers.0"?', error["message"])
        error = self.fails(2, "invalid_argument", "quantize", folder, self.folder / "none", "--llm-int8-skip-modules", "[1]")
        self.assertIn("a list of texts was expected, found 1", error["message"])

    def test_a_file_is_not_written_over_itself(self):
        source, link = self.folder / "in.safetensors", self.folder / "link.safetensors"
        write_safetensors(source, {"a.weight": ("BF16", [2, 64])})
        link.symlink_to(source)
        before = source.read_bytes()
        for out in (source, link):
            error = self.fails(2, "invalid_argument", "quantize", source, out, "--load-in-4bit")
            self.assertIn("it is a file of the checkpoint that is quantized", error["message"])
        self.assertEqual(source.read_bytes(), before)

    def test_a_link_to_an_empty_folder(self):
        folder, real, link = self.model(llama(plain)), self.folder / "real", self.folder / "link"
        real.mkdir()
        link.symlink_to(real)
        self.succeeds("quantize", folder, link)
        self.assertTrue(link.is_symlink())
        self.assertTrue((real / "config.json").exists())
        link.unlink()
        link.symlink_to(self.folder / "nowhere")
        self.assertIn("it is a link to nothing", self.fails(2, "invalid_argument", "quantize", folder, link)["message"])

    def test_values_that_are_recorded(self):
        folder = self.model(llama(plain))
        for said, saved in (("half", "float16"), ("double", "float64"), ("float", "float32")):
            self.quantized(folder, "--load-in-4bit", "--bnb-4bit-compute-dtype", said)
            self.assertEqual(json.loads((self.folder / "out/config.json").read_text())["quantization_config"]["bnb_4bit_compute_dtype"], saved)
        for threshold in ("nan", "inf", "-1"):
            error = self.fails(2, "invalid_argument", "quantize", folder, self.folder / "none", "--load-in-8bit", f"--llm-int8-threshold={threshold}")
            self.assertIn("--llm-int8-threshold must be a number of at least 0", error["message"])
        self.assertFalse((self.folder / "none").exists())


class Wrapped(Folders):
    """A text model inside a wrapper's config."""

    CONFIG = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
              "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                              "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 32, "layer_types": ["full_attention"] * 2},
              "vision_config": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}}

    def footprint(self, top, text):
        config = {**self.CONFIG, **top, "text_config": {**self.CONFIG["text_config"], **text}}
        (self.folder / "config.json").write_text(json.dumps(config))
        return self.succeeds("plan", self.folder / "config.json", "--compat", "transformers", "--device-map", "cpu", "--dtype", "bfloat16", "--json").json()["memory_footprint_bytes"]

    def test_the_wrapper_decides_about_the_tie(self):
        tied = self.footprint({}, {})
        head = 32 * 64 * 2
        self.assertEqual(self.footprint({"tie_word_embeddings": False}, {"tie_word_embeddings": True}), tied + head)
        self.assertEqual(self.footprint({"tie_word_embeddings": True}, {"tie_word_embeddings": False}), tied)
        self.assertEqual(self.footprint({}, {"tie_word_embeddings": False}), tied)

    def test_rotary_tables_of_layer_types_that_occur(self):
        both = self.footprint({}, {"layer_types": ["sliding_attention", "full_attention"]})
        self.assertEqual(both - self.footprint({}, {}), 2 * 8 * 4)


if __name__ == "__main__":
    unittest.main()
