#!/usr/bin/env python3
"""tools/rival_table.py — Berth and llama.cpp in turn, and the table of their ratios; called by tools/rival_bench.sh.

    rival_table.py measure RESULTS.jsonl --berth B --probe P --synthetic DIR --real DIR [--models a,b] [--threads 1,2]
                   [--rounds 3] [--repeats 1] [--prompt 512] [--new 64] [--wrap "CMD"]
    rival_table.py table RESULTS.jsonl [--last]

measure: A B A B: in each round every (threads, model) is run by Berth and right after it by llama.cpp, one process
each. Just before each, the file is read (warm) and as much memory as it may need is touched and freed: pages that a
virtual machine has to fetch from its host first cost seconds, whoever comes first. RESULTS gets one line per run. table: medians over the rounds, ratios of
medians; --last counts only the newest batch.
"""
import argparse
import itertools
import json
import mmap
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

# name: (where, Berth's model, llama.cpp's model, numerics). Same file, but for nf4: equal bits per weight beside Q4_0.
MODELS = {
    "SmolLM2-135M Q4_1": ("real", "SmolLM2-135M-Instruct.Q4_1.gguf", None, "int8"),
    "Qwen2.5-0.5B Q4_K_M": ("real", "qwen2.5-coder-0.5b.gguf", None, "int8"),
    "1.1B Q4_0": ("synthetic", "1b-q4_0.gguf", None, "int8"),
    "1.1B Q4_K_M": ("synthetic", "1b-q4_k_m.gguf", None, "int8"),
    "1.1B Q8_0": ("synthetic", "1b-q8_0.gguf", None, "int8"),
    "1.1B BF16": ("synthetic", "1b-bf16.gguf", None, "exact"),
    "1.1B nf4 beside Q4_0": ("synthetic", "1b-nf4", "1b-q4_0.gguf", "int8"),
}


def size_of(path):
    return sum(f.stat().st_size for f in (path.iterdir() if path.is_dir() else [path]))


def settled(path, command):
    """Reads the model, touches memory and becomes `command`: this script's `settle`, run as a process of its own."""
    path = pathlib.Path(path)
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        with open(file, "rb") as f:
            while f.read(8 << 20):
                pass
    toucher = os.fork()  # its peak memory must not become the command's
    if toucher == 0:
        memory = mmap.mmap(-1, size_of(path) + (512 << 20))
        for page in range(0, len(memory), 4096):
            memory[page] = 1
        os._exit(0)
    os.waitpid(toucher, 0)
    os.execvp(command[0], command)


def run(wrap, path, command):
    settle = [sys.executable, __file__, "settle", str(path), "--"]
    result = subprocess.run(wrap + settle + command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr[-2000:]}{result.stdout[-2000:]}")
    return json.loads(result.stdout)


def berth_run(a, wrap, path, threads, numerics):
    rows = run(wrap, path, [a.berth, "bench", str(path), "-p", str(a.prompt), "-n", str(a.new), "-r", str(a.repeats),
                            "-t", str(threads), "--numerics", numerics, "--json", "--quiet"])
    by_test = {r["test"]: r for r in rows}
    pp, tg = by_test[f"pp{a.prompt}"], by_test[f"tg{a.new}"]
    return {"pp": pp["tokens_per_s"], "tg": tg["tokens_per_s"], "share": tg["share"], "ready_s": tg["ready_s"],
            "read_limit_gb_per_s": tg["read_limit_gb_per_s"], "peak_rss_bytes": tg["peak_rss_bytes"]}


def rival_run(a, wrap, path, threads):
    r = run(wrap, path, [a.probe, str(path), str(threads), str(a.prompt), str(a.new), str(a.repeats)])
    return {"pp": statistics.median(r["pp"]), "tg": statistics.median(r["tg"]), "ready_s": r["ready_s"],
            "peak_rss_bytes": r["peak_rss_bytes"], "system": r["system"]}


def measure(a):
    folders = {"real": pathlib.Path(a.real), "synthetic": pathlib.Path(a.synthetic)}
    wrap = shlex.split(a.wrap)
    batch = int(time.time())
    with open(a.results, "a") as out:
        for round_, threads in itertools.product(range(a.rounds), map(int, a.threads.split(","))):
            done = {}  # of this round: a rival's file serves every row that names it
            for name, (where, own, other, numerics) in MODELS.items():
                if a.models and not any(m.lower() in name.lower() for m in a.models.split(",")):
                    continue
                for engine, path in (("berth", folders[where] / own), ("llama.cpp", folders[where] / (other or own))):
                    row = done.get((engine, path))
                    if row is None:
                        row = (berth_run(a, wrap, path, threads, numerics) if engine == "berth"
                               else rival_run(a, wrap, path, threads))
                        done[engine, path] = row
                    row = dict(row, batch=batch, round=round_, model=name, threads=threads, engine=engine,
                               bytes=size_of(path))
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                    print(f"{round_} {name} threads={threads} {engine}: pp {row['pp']:.1f} tg {row['tg']:.1f} "
                          f"ready {row['ready_s']:.2f} s, {row['peak_rss_bytes'] >> 20} MiB", file=sys.stderr)


def table(a):
    rows = [json.loads(line) for line in open(a.results)]
    if a.last:
        rows = [r for r in rows if r["batch"] == rows[-1]["batch"]]
    cells = {}
    for r in rows:
        cells.setdefault((r["model"], r["threads"]), {}).setdefault(r["engine"], []).append(r)
    print("| model | threads | decode tokens/s | ratio | share of read limit | prefill tokens/s | ratio | ready s | ratio "
          "| peak RSS MiB | of the rival's | runs |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in MODELS:
        for (model, threads), by_engine in sorted(cells.items()):
            if model != name or len(by_engine) != 2:
                continue
            own, rival = by_engine["berth"], by_engine["llama.cpp"]

            def median(rows, key):
                return statistics.median(r[key] for r in rows)

            def pair(key, digits):
                x, y = median(own, key), median(rival, key)
                return f"{x:.{digits}f} / {y:.{digits}f} | {x / y:.2f}"

            rss = [median(e, "peak_rss_bytes") / 2**20 for e in (own, rival)]
            print(f"| {name} | {threads} | {pair('tg', 1)} | {100 * median(own, 'share'):.0f} % | {pair('pp', 1)} "
                  f"| {pair('ready_s', 2)} | {rss[0]:.0f} / {rss[1]:.0f} | {rss[0] / rss[1]:.2f} | {min(len(own), len(rival))} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    m = commands.add_parser("measure")
    m.add_argument("results")
    for name in ("--berth", "--probe", "--synthetic", "--real"):
        m.add_argument(name, required=True)
    m.add_argument("--models", default="", help="parts of names, with commas between")
    m.add_argument("--threads", default="1,2")
    for name, default in (("--rounds", 3), ("--repeats", 1), ("--prompt", 512), ("--new", 64)):
        m.add_argument(name, type=int, default=default)
    m.add_argument("--wrap", default="")
    t = commands.add_parser("table")
    t.add_argument("results")
    t.add_argument("--last", action="store_true")
    s = commands.add_parser("settle", help="used by measure")
    s.add_argument("model")
    s.add_argument("run", nargs=argparse.REMAINDER)
    a = parser.parse_args()
    if a.command == "settle":
        settled(a.model, [w for i, w in enumerate(a.run) if i > 0 or w != "--"])
    measure(a) if a.command == "measure" else table(a)


if __name__ == "__main__":
    main()
