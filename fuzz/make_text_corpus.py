#!/usr/bin/env python3
"""Writes the seeds of the tokenizer and template fuzz targets into corpus/. Python 3, nothing else.

    python3 fuzz/make_text_corpus.py [SHARED]     SHARED: the folder that holds golden/; its small files become seeds

What is written is checked in, so that a bare clone replays it; the seeds from SHARED are Berth's own small tokenizers,
cut to a few hundred pieces, and the feature templates.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SHARED = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent / "shared"
GOLDEN = SHARED / "golden"
KINDS = ["bl_gpt2", "llama3", "deepseek_v3", "sp_llama", "sp_gemma", "metaspace_first", "added_flags_lower", "clip",
         "unigram_byte_fallback", "wordpiece_uncased", "wordlevel", "punct_scripts", "falcon", "bpe_cont_prefix"]


def put(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed_{name}").write_bytes(data if isinstance(data, bytes) else data.encode())


def small(tokenizer, most=120):
    """The tokenizer with few pieces, and only the merges among them."""
    model = tokenizer["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = model["vocab"][:most]
        model["unk_id"] = min(model["unk_id"] or 0, most - 1)
    else:
        kept = dict(sorted(model["vocab"].items(), key=lambda x: x[1])[:most])
        model["vocab"] = kept
        if "merges" in model:
            model["merges"] = [m for m in model["merges"] if m[0] in kept and m[1] in kept and m[0] + m[1] in kept]
    known = model["vocab"] if isinstance(model["vocab"], dict) else {p: i for i, (p, _) in enumerate(model["vocab"])}
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if known.get(t["content"]) == t["id"]]
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))


def main():
    for kind in KINDS:
        tokenizer = json.loads((GOLDEN / "tokenizers" / "tiny" / kind / "tokenizer.json").read_text(encoding="utf-8"))
        put("tokenizer", kind, small(tokenizer) + "\0It's 12345 caf\u00e9 <s>  \u6f22\u5b57!\n\n")
    for i, line in enumerate((GOLDEN / "tokenizers" / "malformed.jsonl").read_text(encoding="utf-8").strip().split("\n")):
        put("tokenizer", f"malformed_{i:02}", json.loads(line)["json"])
    lines = (GOLDEN / "chat_templates" / "features.jsonl").read_text(encoding="utf-8").strip().split("\n")
    for i, line in enumerate(lines):
        put("template", f"feature_{i:03}", json.loads(line)["template"])


if __name__ == "__main__":
    main()
