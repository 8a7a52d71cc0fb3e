#!/usr/bin/env python3
"""Times the planners of transformers and accelerate and Berth's beside one another, in one run on one machine.

    BERTH_SHARED=SHARED python3 tests/plan/planner_times.py --plan-times build/release/tests/plan/plan_times [--models A,B] [--repeats 5]

Needs torch, transformers and accelerate (a virtual environment outside the repository will do) and the goldens
($BERTH_SHARED, default ../shared), whose golden_common.py builds the models on the meta device. T being the bytes of the weights: `fits`
is four GPUs of 0.4 T and a cpu of T; `offloads` two GPUs of 0.25 T, the rest beyond them (the libraries: cpu 0.3 T and disk; Berth, which
computes there: cpu of 1.5 T). Prints medians of CPU time, which other load on the machine disturbs least, and of wall time, as a markdown
table with the median and the worst of all. Building the model on meta, 4 to 10 times as long as its plan, is not counted for the
libraries; Berth's time is that of the whole plan once headers are read. The libraries plan every model in bf16, Berth as it is stored.
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


def timed(repeats, function):
    wall, cpu = [], []
    for _ in range(repeats):
        w, c = time.perf_counter(), time.process_time()
        function()
        wall.append(1e3 * (time.perf_counter() - w))
        cpu.append(1e3 * (time.process_time() - c))
    return statistics.median(wall), statistics.median(cpu)


def berth_times(program, name, repeats):
    done = subprocess.run([program, str(SHARED / "checkpoints"), "--only", name, "--machines", "4x40%,2x25%", "--cpu", "150%", "--repeats", str(repeats),
                           "--json"], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [next(r for r in rows if r["model"] == name and r["dtype"] == "as stored" and r["machine"] == machine) for machine in ("4x40%", "2x25%")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan-times", required=True)
    parser.add_argument("--models", help="default: every checkpoint")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    sys.path.insert(0, str(SHARED / "golden/device_maps"))
    try:
        import golden_common as gc
    except ImportError as missing:
        sys.exit(f"skipped: {missing}")
    names = args.models.split(",") if args.models else sorted(p.parent.name for p in (SHARED / "checkpoints").glob("*/config.json"))
    titles = [f"{who}, {what}" for what in ("fits", "offloads") for who in ("transformers", "accelerate", "Berth")]
    print("CPU / wall, ms, medians\n")
    print("| model | " + " | ".join(titles) + " | gap |")
    print("| --- |" + " ---: |" * 7)
    all_times = [[] for _ in titles]
    for name in names:
        try:
            model, _ = gc.build(name, "bf16")
            tied = gc.build_for_accelerate(name)
            total = gc.hf.compute_module_sizes(model)[0][""]
        except Exception as why:  # noqa: BLE001 - a model the library cannot build from its config alone
            print(f"{name}: not built: {str(why).splitlines()[0]}", file=sys.stderr)
            continue
        no_split = sorted(model._no_split_modules)
        fits = {**{i: int(0.4 * total) for i in range(4)}, "cpu": int(total)}
        spills = {0: int(0.25 * total), 1: int(0.25 * total), "cpu": int(0.3 * total)}

        def accelerate(budgets):
            b = gc.acc.get_balanced_memory(tied, max_memory=dict(budgets), no_split_module_classes=no_split)
            return gc.acc.infer_auto_device_map(tied, max_memory=b, no_split_module_classes=no_split)

        cells, times = [], []
        mine = berth_times(args.plan_times, name, args.repeats)
        for budgets, row, wanted in zip((fits, spills), mine, ("fits", "offloads")):
            for plan in (lambda: gc.hf._get_device_map(model, "auto", dict(budgets), None), lambda: accelerate(budgets)):
                times.append(timed(args.repeats, plan))
                cells.append(f"{times[-1][1]:.0f} / {times[-1][0]:.0f}")
            times.append((row["wall_ms"], row["cpu_ms"]))
            cells.append(f"{row['cpu_ms']:.1f} / {row['wall_ms']:.1f}" + ("" if row["outcome"] == wanted else f" ({row['outcome']})"))
        for column, time_of in zip(all_times, times):
            column.append(time_of)
        print(f"| {name} | " + " | ".join(cells) + f" | {mine[1]['gap_percent']:.3f} % |", flush=True)
    for title, pick in (("median", statistics.median), ("worst", max)):
        print(f"| **{title}** | " + " | ".join(f"{pick(c for _, c in column):.1f} / {pick(w for w, _ in column):.1f}" for column in all_times) + " | |")


if __name__ == "__main__":
    main()
