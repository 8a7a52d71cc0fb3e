#!/usr/bin/env python3
"""Times the planners of transformers and accelerate and Berth's beside one another, in one run on one machine.

    python3 tests/plan/planner_times.py --plan-times build/release/tests/plan/plan_times [--models A,B] [--repeats 5]

Needs torch, transformers and accelerate (a virtual environment outside the repository will do) and the goldens
($BERTH_SHARED, default ../shared), whose golden_common.py builds the models on the meta device. Budgets are those of
shared/rivals/planner_times.md: `fits` four GPUs of 0.4 T and a cpu of T; `offloads` two GPUs of 0.25 T, the rest beyond them
(the libraries: cpu 0.3 T and disk; Berth, which computes there: cpu of T). Prints medians of CPU time, which other load on
the machine disturbs least, and of wall time, as a markdown table. Building the model on meta, 4 to 10 times as long as
its plan, is not counted for the libraries; Berth's time is that of the whole plan once headers are read.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SHARED = Path(os.environ.get("BERTH_SHARED", Path(__file__).resolve().parents[3] / "shared"))
MODELS = "SmolLM2-135M,gemma-4-E4B-it,Meta-Llama-3-8B,gpt-oss-20b,gemma-4-31B-it,Mixtral-8x7B-v0.1,Llama-3.1-70B,Qwen3-235B-A22B,Llama-3.1-405B,MiniMax-M3,DeepSeek-V3"


def timed(repeats, function):
    wall, cpu = [], []
    for _ in range(repeats):
        w, c = time.perf_counter(), time.process_time()
        function()
        wall.append(1e3 * (time.perf_counter() - w))
        cpu.append(1e3 * (time.process_time() - c))
    return statistics.median(wall), statistics.median(cpu)


def berth_times(program, name, total, repeats):
    gib = total / 2**30
    out = []
    for machine in (f"4x{0.4 * gib:.6f}", f"2x{0.25 * gib:.6f}"):
        done = subprocess.run([program, str(SHARED / "checkpoints"), "--only", name, "--machines", machine, "--cpu", f"{1.5 * gib:.6f}",
                               "--repeats", str(repeats), "--json"], capture_output=True, text=True, check=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        row = next(r for r in rows if r["model"] == name and r["dtype"] == "as stored")
        out.append((row["wall_ms"], row["cpu_ms"], row["outcome"], row["gap_percent"]))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan-times", required=True)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    sys.path.insert(0, str(SHARED / "golden/device_maps"))
    try:
        import golden_common as gc
    except ImportError as missing:
        sys.exit(f"skipped: {missing}")
    print("CPU / wall, ms, medians\n")
    print("| model | transformers, fits | accelerate, fits | Berth, fits | transformers, offloads | accelerate, offloads | Berth, offloads | gap |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in args.models.split(","):
        model, _ = gc.build(name, "bf16")
        tied = gc.build_for_accelerate(name)
        total = gc.hf.compute_module_sizes(model)[0][""]
        no_split = sorted(model._no_split_modules)
        fits = {**{i: int(0.4 * total) for i in range(4)}, "cpu": int(total)}
        spills = {0: int(0.25 * total), 1: int(0.25 * total), "cpu": int(0.3 * total)}

        def accelerate(budgets):
            b = gc.acc.get_balanced_memory(tied, max_memory=dict(budgets), no_split_module_classes=no_split)
            return gc.acc.infer_auto_device_map(tied, max_memory=b, no_split_module_classes=no_split)

        mine = berth_times(args.plan_times, name, total, args.repeats)
        cells = []
        for budgets, (wall, cpu, outcome, _) in zip((fits, spills), mine):
            t_wall, t_cpu = timed(args.repeats, lambda: gc.hf._get_device_map(model, "auto", dict(budgets), None))
            a_wall, a_cpu = timed(args.repeats, lambda: accelerate(budgets))
            berth = f"{cpu:.1f} / {wall:.1f}" + ("" if outcome in ("fits", "offloads") else f" ({outcome})")
            cells += [f"{t_cpu:.0f} / {t_wall:.0f}", f"{a_cpu:.0f} / {a_wall:.0f}", berth]
        print(f"| {name} | " + " | ".join(cells) + f" | {mine[1][3]:.3f} % |", flush=True)


if __name__ == "__main__":
    main()
