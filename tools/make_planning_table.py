#!/usr/bin/env python3
"""Writes docs/planning_table.md: what Transformers' planner and Berth's make of every published checkpoint on six machines.

    tools/make_planning_table.py build/release/cli/berth SHARED [--only NAME] [--jobs 2] > docs/planning_table.md

SHARED has checkpoints/*/config.json. Every cell is one `berth compare --json`: its rows "balanced" of --compat transformers and
"best" are read. Nothing is measured: rates are the planner's estimates, for both alike.
"""
import argparse
import json
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


def machine(cards):
    devices = [{"id": f"emu:{k}", "kind": "emulated", "memory_bytes": size * GIB, "read_bytes_per_s": 9e11, "flops_per_s": 6e13,
                "link_bytes_per_s": 2.5e10, "link_latency_s": 1e-5} for k, size in enumerate(cards)]
    devices.append({"id": "cpu", "kind": "cpu", "memory_bytes": HOST_GIB * GIB, "read_bytes_per_s": 4e10, "flops_per_s": 5e11})
    return json.dumps({"devices": devices})


def rate(row):
    value = row["estimate"]["decode_tokens_per_s"]
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def away(row):
    """Whether weights are off the accelerators, tables that only lend rows left out."""
    return any(d in ("cpu", "disk") and "embed" not in path for path, d in row["device_map"].items())


def cell(berth, config, machine_file, options):
    done = subprocess.run([berth, "compare", config, "--machine", machine_file, *options, "-c", "4096", "--quiet", "--json"],
                          capture_output=True, text=True)
    if done.returncode not in (0, 3):
        error = json.loads(done.stdout)["error"] if done.stdout.startswith("{") else {"message": done.stderr.strip()}
        return None, error["message"]
    rows = json.loads(done.stdout)
    theirs = next((r for r in rows if r.get("compat") == "transformers" and r["strategy"] == "balanced"), None)
    ours = next(r for r in rows if not r.get("compat") and r["strategy"] == "best")
    result = {"theirs": "x", "works": False, "ours": "x", "their_rate": "", "our_rate": ""}
    if theirs is not None and "device_map" in theirs and not theirs.get("library_error"):
        result["theirs"] = "o" if away(theirs) else "a"
        result["works"] = theirs["fits"]
        if theirs["fits"]:
            result["their_rate"] = rate(theirs)
    if ours["fits"]:
        result["ours"] = "o" if away(ours) else "a"
        result["our_rate"] = rate(ours)
    return result, None


def shown(c):
    theirs = c["theirs"] if c["theirs"] == "x" else c["theirs"] + ("" if c["works"] else "!")
    return f"{theirs} {c['their_rate']} · {c['ours']} {c['our_rate']}".replace("  ", " ").strip()


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
    ratios = [float(r["our_rate"]) / float(r["their_rate"]) for r in planned if r["works"] and r["ours"] != "x" and float(r["their_rate"]) > 0]
    rescued = sum(r["ours"] == "a" and r["theirs"] != "a" for r in planned)
    print("""# What fits where

Made by `tools/make_planning_table.py`; every cell is one `berth compare`. Emulated cards of the sizes given, in GiB (9e11 B/s, a link of
2.5e10 B/s), and a host of 512 GiB (4e10 B/s); context 4096, one sequence, KV cache in 16 bit. A cell reads **Transformers · Berth**:

* `a` everything on the cards; `o` partly on the cpu or the disk; `x` refused.
* `!` after Transformers' letter: its map does not work on this machine once the bytes really stored, the KV cache and the workspace
  count, or the library refuses to load it.
* then tokens per second decoding, estimated alike for both (what Transformers keeps on the cpu is brought to a card for every token).

Transformers is its `device_map="auto"` (5.24.0), Berth `--device-map best`. Embedding tables in host memory do not count as offloaded.
""")
    print(f"{len(planned)} cases. Transformers has a map on cards alone in {sum(r['theirs'] == 'a' for r in planned)}, of which "
          f"{sum(r['theirs'] == 'a' and r['works'] for r in planned)} work once everything counts; in all, {sum(r['works'] for r in planned)} of its "
          f"maps work. Berth fits {sum(r['ours'] == 'a' for r in planned)} on the cards, {sum(r['ours'] == 'o' for r in planned)} with the host, and "
          f"refuses {sum(r['ours'] == 'x' for r in planned)}; in {rescued} cases it has a plan on cards alone where Transformers' map spills or is "
          f"refused; the other way round in {sum(r['theirs'] == 'a' and r['works'] and r['ours'] != 'a' for r in planned)}. Where both work "
          f"({len(ratios)} cases), Berth's plan is estimated {statistics.median(ratios):.2f} times as fast in the median, and {max(ratios):.1f} "
          f"times at most; in {sum(x > 1.1 for x in ratios)} cases by more than a tenth.\n")
    print("| checkpoint | bit | " + " | ".join(MACHINES) + " |")
    print("| --- | --- |" + " --- |" * len(MACHINES))
    for m in models:
        missing = sorted({e for (n, _, _), (_, e) in results.items() if n == m and e})
        for w in WIDTHS:
            cells = [results[m, w, k][0] for k in MACHINES]
            if all(c is None for c in cells):
                continue
            print(f"| {m} | {w} | " + " | ".join(shown(c) if c else "" for c in cells) + " |")
        for e in missing:
            print(f"{m}: {e}", file=sys.stderr)


if __name__ == "__main__":
    main()
