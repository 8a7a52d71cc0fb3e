#!/usr/bin/env python3
"""Writes docs/planning_table.md: what Transformers' planner and Berth's make of every published checkpoint on six machines.

    tools/make_planning_table.py build/release/cli/berth SHARED [--only NAME] [--jobs 2] > docs/planning_table.md

SHARED has checkpoints/*/config.json. Every cell is one `berth compare --json`: its rows "balanced" of --compat transformers and
"best" are read. Nothing is measured: rates are the planner's estimates, for both alike.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GIB = 1 << 30
MACHINES = {"1x24": [24], "2x16": [16] * 2, "18+10": [18, 10], "4x24": [24] * 4, "8x80": [80] * 8, "8x165": [165] * 8}
WIDTHS = {"16": [], "8": ["--load-in-8bit"], "4": ["--load-in-4bit"]}
HOST_GIB = 512
DISK_GIB = 4096


def machine(cards):
    devices = [{"id": f"emu:{k}", "kind": "emulated", "memory_bytes": size * GIB, "read_bytes_per_s": 9e11, "flops_per_s": 6e13,
                "link_bytes_per_s": 2.5e10, "link_latency_s": 1e-5} for k, size in enumerate(cards)]
    devices.append({"id": "cpu", "kind": "cpu", "memory_bytes": HOST_GIB * GIB, "read_bytes_per_s": 4e10, "flops_per_s": 5e11})
    devices.append({"id": "disk", "kind": "disk", "memory_bytes": DISK_GIB * GIB, "read_bytes_per_s": 2e9})
    return json.dumps({"devices": devices})


def rate(value):
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}" if value >= 0.01 else f"{value:.3f}"


NEVER_COMPUTED = re.compile("embed|vision|visual|audio|multi_modal_projector")  # tables that lend rows; parts that text does not pass


def where(row):
    """a, o or d: whether weights that every token computes with are on the cpu, or on the disk."""
    held = {device for path, device in row["device_map"].items() if not NEVER_COMPUTED.search(path)}
    return "d" if "disk" in held else "o" if "cpu" in held else "a"


def cell(berth, config, machine_file, options):
    done = subprocess.run([berth, "compare", config, "--machine", machine_file, *options, "-c", "4096", "--quiet", "--json"],
                          capture_output=True, text=True)
    if done.returncode not in (0, 3):
        error = json.loads(done.stdout)["error"] if done.stdout.startswith("{") else {"message": done.stderr.strip()}
        return None, error["message"]
    rows = json.loads(done.stdout)
    theirs = next((r for r in rows if r.get("compat") == "transformers" and r["strategy"] == "balanced"), None)
    ours = next(r for r in rows if not r.get("compat") and r["strategy"] == "best")
    if any(w.startswith("0 of ") and " on load" in w for w in ours.get("warnings", [])):
        return None, None  # nothing becomes 8 or 4 bit: the row above says it
    result = {"theirs": "x", "works": False, "ours": "x", "their_rate": 0, "our_rate": 0, "gap": 0}
    if theirs is not None and "device_map" in theirs and not theirs.get("library_error"):
        result["theirs"] = where(theirs)
        result["works"] = theirs["fits"]
        if theirs["fits"]:
            result["their_rate"] = theirs["estimate"]["decode_tokens_per_s"]
    if ours["fits"]:
        result["ours"] = where(ours)
        result["our_rate"] = ours["estimate"]["decode_tokens_per_s"]
        result["gap"] = ours["certificate"]["gap"]
    return result, None


def shown(c):
    theirs = c["theirs"] if c["theirs"] == "x" else c["theirs"] + (f" {rate(c['their_rate'])}" if c["works"] else "!")
    ours = c["ours"] if c["ours"] == "x" else f"{c['ours']} {rate(c['our_rate'])}"
    return f"{theirs} · {ours}"


# What a reader would stumble over, by a part of the checkpoint's name.
NOTES = {
    "falcon-40b": "Its matrices are of a class that bitsandbytes does not replace: 8 and 4 bit change nothing.",
    "Instruct-FP8": "Planned from its config.json alone, which says nothing of the FP8 that hf_quant_config.json names: sizes are those of 16 bit, to both.",
    "Qwen3-235B-A22B-NVFP4": "Planned from its config.json alone, which says nothing of the NVFP4 that hf_quant_config.json names: sizes are those of 16 bit, to both.",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("berth")
    parser.add_argument("shared")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    folder = tempfile.TemporaryDirectory()
    files = {}
    for name, cards in MACHINES.items():
        files[name] = str(Path(folder.name) / f"{name}.json")
        Path(files[name]).write_text(machine(cards))
    models = sorted(p.parent.name for p in Path(args.shared, "checkpoints").glob("*/config.json") if args.only in p.parent.name)
    work = [(m, w, k) for m in models for w in WIDTHS for k in MACHINES]
    with ThreadPoolExecutor(args.jobs) as pool:
        done = list(pool.map(lambda x: cell(args.berth, str(Path(args.shared, "checkpoints", x[0], "config.json")), files[x[2]], WIDTHS[x[1]]), work))
    results = dict(zip(work, done))
    planned = [r for r, _ in results.values() if r]
    both = [r for r in planned if r["works"] and r["ours"] != "x"]
    ratios = [r["our_rate"] / r["their_rate"] for r in both]
    count = lambda test: sum(bool(test(r)) for r in planned)
    print("""# What fits where

Made by `tools/make_planning_table.py build/release/cli/berth SHARED`; every cell is one `berth compare`. Emulated cards of the sizes
given, in GiB (9e11 B/s, links of 2.5e10 B/s), a host of 512 GiB (4e10 B/s, 5e11 operations/s) and a disk (2e9 B/s); context 4096,
one sequence, KV cache in 16 bit. Nothing is measured: rates are the planner's estimates, for both alike.
""")
    print(f"""|  | of {len(planned)} cases |
| --- | ---: |
| Transformers makes a map on cards alone | {count(lambda r: r["theirs"] == "a")} |
| ... of which work once real bytes, KV cache and workspace count | {count(lambda r: r["theirs"] == "a" and r["works"])} |
| Transformers makes any map (cards, cpu, disk) | {count(lambda r: r["theirs"] != "x")} |
| ... of which work | {count(lambda r: r["works"])} |
| Berth fits on cards alone | {count(lambda r: r["ours"] == "a")} |
| Berth fits, cpu and disk used | {count(lambda r: r["ours"] in "od")} |
| Berth refuses | {count(lambda r: r["ours"] == "x")} |
| Berth on cards alone where Transformers' map spills, fails or is refused | {count(lambda r: r["ours"] == "a" and not (r["theirs"] == "a" and r["works"]))} |
| Transformers' map works on cards alone and Berth's is not on cards alone | {count(lambda r: r["theirs"] == "a" and r["works"] and r["ours"] != "a")} |
| Berth's plan proven best in its cost model | {count(lambda r: r["ours"] != "x" and r["gap"] == 0)} |

Where both work ({len(ratios)} cases), Berth's estimated rate is {statistics.median(ratios):.2f} times Transformers' in the median, {max(ratios):.1f} times at most
and {min(ratios):.3f} at least; above 1.1 times in {sum(x > 1.1 for x in ratios)} cases.

A cell reads **Transformers · Berth**; Transformers is its `device_map="auto"` (5.24.0), Berth `--device-map best`:

* `a` every weight that a token computes with is on the cards; `o` some are on the cpu; `d` some are on the disk; `x` refused: by
  Transformers because bitsandbytes takes no 4- or 8-bit modules off the cards.
* `!` Transformers' map does not work on this machine once the bytes really stored, the KV cache and the workspace count, or the
  library refuses to load it.
* then tokens per second decoding (what Transformers keeps off the cards is brought to a card for every token).

Embedding tables in host memory do not count as offloaded: a token reads one row. That Berth puts them there where it costs at most one
percent (`--tables accelerator` does not) is why its rate is sometimes a unit below that of a map with all on one card. `16` is the checkpoint
as published. Rows in which 8 or 4 bit would change nothing are left out: the checkpoint comes quantized, or has no module that bitsandbytes replaces. In
mixtures of experts 8 and 4 bit leave the fused experts in 16 bit, as version 5 of Transformers does (`--quantize-experts`).
""")
    print("| checkpoint | bit | " + " | ".join(MACHINES) + " |")
    print("| --- | --- |" + " --- |" * len(MACHINES))
    for m in models:
        missing = sorted({e for (n, _, _), (_, e) in results.items() if n == m and e})
        note = next((k + 1 for k, part in enumerate(NOTES) if part in m), None)
        for w in WIDTHS:
            cells = [results[m, w, k][0] for k in MACHINES]
            if all(c is None for c in cells):
                continue
            print(f"| {m}{f' ({note})' if note else ''} | {w} | " + " | ".join(shown(c) if c else "" for c in cells) + " |")
        for e in missing:
            print(f"{m}: {e}", file=sys.stderr)
    print()
    for k, text in enumerate(NOTES.values()):
        print(f"({k + 1}) {text}")


if __name__ == "__main__":
    main()
