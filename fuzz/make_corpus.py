#!/usr/bin/env python3
"""Writes the seeds of the format fuzz targets into corpus/: small files, right and wrong. Python 3, nothing else.

    python3 fuzz/make_corpus.py            run from anywhere; rewrites corpus/{safetensors,index,gguf,..}/seed_*
"""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent / "corpus"


def put(target, name, data):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed_{name}").write_bytes(data if isinstance(data, bytes) else data.encode())


def st(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def e(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors():
    two = {"__metadata__": {"format": "pt"}, "b": e("BF16", [2, 3], 0, 12), "a": e("F32", [], 12, 16)}
    put("safetensors", "two", st(two, bytes(16)))
    put("safetensors", "padded", st(json.dumps(two).encode() + b"   ", bytes(16)))
    put("safetensors", "empty", st({}))
    put("safetensors", "escaped", st(b'{"\\u0061\\n":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)))
    put("safetensors", "utf8", st('{"gewicht_ä":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}'.encode(), bytes(8)))
    put("safetensors", "extra", st({"a": {**e("F32", [1], 0, 4), "x": [1, {"y": None}]}}, bytes(4)))
    put("safetensors", "zero", st({"E": e("F8_E4M3", [0], 8, 8), "A": e("F32", [2], 0, 8)}, bytes(8)))
    put("safetensors", "sub_byte", st({"a": e("F4", [2, 7], 0, 7)}, bytes(7)))
    put("safetensors", "duplicate", st(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                       b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', bytes(2)))
    put("safetensors", "overlap", st({"a": e("U8", [4], 0, 4), "b": e("U8", [4], 2, 6)}, bytes(6)))
    put("safetensors", "hole", st({"a": e("U8", [4], 0, 4), "b": e("U8", [4], 6, 10)}, bytes(10)))
    put("safetensors", "wrap", st({"a": e("F32", [2**62, 4], 2**64 - 8, 8)}, bytes(8)))
    put("safetensors", "metadata_null", st({"__metadata__": None}))
    put("safetensors", "huge_length", b"\xff" * 8 + b"{}" + b" " * 54)
    put("safetensors", "deep", st(b'{"a":' + b"[" * 300))


def index():
    put("index", "two", json.dumps({"metadata": {"total_size": 16}, "weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}, indent=2))
    put("index", "plain", '{"weight_map":{"a":"x.safetensors","b":"./x.safetensors","c":"d//y.safetensors"}}')
    put("index", "escaped", '{"weight_map":{"\\u0061":"x\\n.safetensors"}}')
    put("index", "outside", '{"weight_map":{"a":"../x.safetensors"}}')
    put("index", "absolute", '{"weight_map":{"a":"/x.safetensors"}}')
    put("index", "duplicate", '{"weight_map":{"a":"x","a":"y"}}')
    put("index", "number", '{"weight_map":{"a":7}}')
    put("index", "list", '{"weight_map":[]}')
    put("index", "twice", '{"weight_map":{"a":"x"},"metadata":{},"weight_map":{"a":"x"}}')
    put("index", "total_size", '{"metadata":{"total_size":-1,"total_parameters":1.5},"weight_map":{"a":"x"}}')
    put("index", "bom", b"\xef\xbb\xbf{}")


def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


class Gguf:
    def __init__(self, version=3):
        self.version, self.pairs, self.infos, self.n, self.t = version, b"", b"", 0, 0

    def pair(self, key, kind, value):
        self.pairs += text(key) + struct.pack("<I", kind) + value
        self.n += 1
        return self

    def u32(self, key, v):
        return self.pair(key, 4, struct.pack("<I", v))

    def string(self, key, v):
        return self.pair(key, 8, text(v))

    def array(self, key, kind, n, data):
        return self.pair(key, 9, struct.pack("<IQ", kind, n) + data)

    def tensor(self, name, ne, kind, offset):
        self.infos += text(name) + struct.pack("<I", len(ne)) + b"".join(struct.pack("<Q", x) for x in ne)
        self.infos += struct.pack("<IQ", kind, offset)
        self.t += 1
        return self

    def bytes(self, data=0):
        out = b"GGUF" + struct.pack("<IQQ", self.version, self.t, self.n) + self.pairs + self.infos
        return out + bytes(-len(out) % 32) + bytes(data)


def small():
    g = Gguf().string("general.architecture", "llama").u32("llama.block_count", 2)
    return g.u32("llama.attention.head_count", 4).u32("llama.attention.head_count_kv", 2)


def gguf():
    every = small()
    for kind, fmt in enumerate(["B", "b", "H", "h", "I", "i", "f", "B"]):
        every.pair(f"t.{kind}", kind, struct.pack("<" + fmt, 1))
        every.array(f"a.{kind}", kind, 2, struct.pack("<2" + fmt, 1, 0))
    for kind, fmt in ((10, "Q"), (11, "q"), (12, "d")):
        every.pair(f"t.{kind}", kind, struct.pack("<" + fmt, 1))
        every.array(f"a.{kind}", kind, 2, struct.pack("<2" + fmt, 1, 0))
    every.array("tokenizer.ggml.tokens", 8, 3, text("a") + text("") + text("ccc"))
    every.array("tokenizer.ggml.scores", 6, 3, bytes(12)).u32("tokenizer.ggml.eos_token_id", 2)
    put("gguf", "every_type", every.tensor("token_embd.weight", [32, 2], 8, 0).tensor("output.weight", [8], 0, 96).bytes(128))
    put("gguf", "small", small().tensor("token_embd.weight", [256, 2, 3], 12, 0).bytes(864))
    put("gguf", "version2", Gguf(2).string("general.architecture", "x").u32("general.alignment", 64).bytes())
    put("gguf", "version1", Gguf(1).bytes())
    put("gguf", "counts", b"GGUF" + struct.pack("<IQQ", 3, 2**64 - 1, 2**64 - 1) + bytes(64))
    put("gguf", "long_string", Gguf().pair("k", 8, struct.pack("<Q", 2**64 - 1)).bytes())
    put("gguf", "nested", Gguf().array("k", 9, 1, bytes(12)).bytes())
    put("gguf", "long_array", Gguf().array("k", 10, 2**61, bytes(8)).bytes())
    put("gguf", "overflow", small().tensor("a", [2**63 - 1, 2, 1, 1], 24, 0).bytes(32))
    put("gguf", "blocks", small().tensor("a", [255, 2], 12, 0).bytes(512))
    put("gguf", "alignment", small().u32("general.alignment", 3).bytes())
    put("gguf", "duplicate", small().u32("llama.block_count", 2).bytes())


def json_config():
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-5,
             "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                 "high_freq_factor": 4.0, "original_max_position_embeddings": 48},
             "max_position_embeddings": 512, "torch_dtype": "bfloat16", "eos_token_id": [1, 2],
             "tie_word_embeddings": False, "sliding_window": None}
    put("json_config", "llama", json.dumps(llama))
    wrapper = {"model_type": "gemma4", "auto_map": {"a": "b"}, "text_config": {
        "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 16,
        "global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "num_attention_heads": 4,
        "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                               "rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}}}
    put("json_config", "wrapper", json.dumps(wrapper))
    put("json_config", "layers", json.dumps({"num_hidden_layers": 2, "per_layer_config": {"1": {"head_dim": 32}}}))
    put("json_config", "neox", json.dumps({"rotary_pct": 0.25, "rotary_emb_base": 10000, "n_layer": 2, "n_head": 2,
                                           "n_embd": 8, "rotary_dim": 2}))
    put("json_config", "patterns", json.dumps({"num_hidden_layers": 4, "sliding_window_pattern": "LLG",
                                               "intermediate_size": [1, 2, 3, 4]}))
    put("json_config", "bnb", json.dumps({"quantization_config": {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": "bfloat16", "llm_int8_skip_modules": ["lm_head"], "novel": 1}}))
    put("json_config", "fp8", json.dumps({"quantization_config": {
        "quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["gate"]}}))
    put("json_config", "modelopt", json.dumps({"producer": {"name": "modelopt"}, "quantization": {
        "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}))
    put("json_config", "duplicate", '{"hidden_size":1,"hidden_size":2}')
    put("json_config", "numbers", '{"vocab_size":9007199254740993,"rope_theta":1e308,"head_dim":-1}')


def generation_config():
    put("generation_config", "all", json.dumps({
        "do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 64, "min_p": 0.05, "eos_token_id": [1, 106],
        "pad_token_id": 0, "bos_token_id": 2, "stop_strings": ["END"], "bad_words_ids": [[1], [2, 3]],
        "max_new_tokens": 10**12, "suppress_tokens": [5], "num_beams": 4, "guidance_scale": 1.5}))
    put("generation_config", "one", '{"eos_token_id":2,"stop_strings":"END"}')
    put("generation_config", "wrong", '{"temperature":-1,"eos_token_id":["2"]}')
    put("generation_config", "empty", "{}")


for make in (safetensors, index, gguf, json_config, generation_config):
    make()
print(sum(1 for _ in HERE.rglob("seed_*")), "seeds")
