#!/usr/bin/env python3
"""Solves the planner's medium cases as mixed integer programs and compares.

    BERTH_MILP_CASES=cases.jsonl berth_plan_test --gtest_filter=Best.IsProvenOnMediumCases
    python3 tests/plan/milp_check.py cases.jsonl [--seconds 120] [--only 0,1,2]

Needs highspy (a test oracle only; nothing else in Berth uses it). The model is written from planner.md's formulas, not from
the planner's code: times are computed here from the raw numbers. A case is equal when the planner's time is that of the
program's optimum (both recomputed in integers), and bounded when the solver ran out of time but its bound is not above
the planner's time nor its solution below it.
"""
import argparse
import json
import sys

import highspy

PS = 10**12
MIB = 1 << 20


def ceil_ps(amount, rate):
    return -(-amount * PS // rate)


class Case:
    def __init__(self, line):
        self.d = json.loads(line)
        self.units = self.d["units"]
        self.devices = self.d["machine"]["devices"]
        self.budgets = self.d["budgets"]
        self.acc = [k for k, x in enumerate(self.devices) if x["kind"] in ("emulated", "cuda")]
        self.cpu = next(k for k, x in enumerate(self.devices) if x["kind"] == "cpu")
        self.links = {}
        ids = {x["id"]: k for k, x in enumerate(self.devices)}
        for link in self.d["machine"].get("links", []):
            for a, b in ((link["from"], link["to"]), (link["to"], link["from"])):
                self.links[ids[a], ids[b]] = (int(link["bytes_per_s"]), round(link.get("latency_s", 0) * PS))
        self.ways = []  # (compute, memory)
        for c in self.acc:
            self.ways += [(c, c), (c, self.cpu)]
        self.ways.append((self.cpu, self.cpu))

    def rate(self, k, key):
        return int(self.devices[k][key])

    def step(self, u, c, m):
        x = max(ceil_ps(u["t"] + u["v"], self.rate(c, "read_bytes_per_s")), ceil_ps(u["f"], self.rate(c, "flops_per_s")))
        return x if c == m else x + ceil_ps(u["t"], self.rate(c, "link_bytes_per_s"))

    def leg(self, k, n):
        return round(self.devices[k]["link_latency_s"] * PS) + ceil_ps(n, self.rate(k, "link_bytes_per_s")) if k in self.acc else 0

    def way(self, a, b, n):
        if a == b:
            return 0
        if (a, b) in self.links:
            rate, latency = self.links[a, b]
            return latency + ceil_ps(n, rate)
        return self.leg(a, n) + self.leg(b, n)

    def time(self, placement):
        total = 0
        for i, (c, m) in enumerate(placement):
            total += self.step(self.units[i], c, m)
            total += self.way(self.cpu, c, self.units[i]["a"]) if i == 0 else self.way(placement[i - 1][0], c, self.units[i]["a"])
        return total + self.way(placement[-1][0], self.cpu, self.d["logits_bytes"])


def solve(case, seconds):
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("mip_rel_gap", 0.0)
    h.setOptionValue("mip_abs_gap", 1e-4)
    h.setOptionValue("mip_feasibility_tolerance", 1e-9)
    h.setOptionValue("time_limit", float(seconds))
    h.setOptionValue("threads", 1)
    n = len(case.units)
    places = case.acc + [case.cpu]
    x = {(i, w): h.addBinary() for i in range(n) for w in case.ways}
    at = lambda i, c: sum(x[i, w] for w in case.ways if w[0] == c)
    cost = sum(case.step(case.units[i], *w) / 1e6 * x[i, w] for i in range(n) for w in case.ways)  # microseconds
    for i in range(n):
        h.addConstr(sum(x[i, w] for w in case.ways) == 1)
    # Moves.
    for i in range(1, n):
        for a in places:
            for b in places:
                if a == b:
                    continue
                z = h.addVariable(0, 1)
                h.addConstr(z >= at(i - 1, a) + at(i, b) - 1)
                cost += case.way(a, b, case.units[i]["a"]) / 1e6 * z
    cost += sum(case.way(case.cpu, c, case.units[0]["a"]) / 1e6 * at(0, c) for c in case.acc)
    cost += sum(case.way(c, case.cpu, case.d["logits_bytes"]) / 1e6 * at(n - 1, c) for c in case.acc)
    # One run per accelerator: it is open over one interval, and one is open at a time.
    is_open = {(i, d): h.addBinary() for i in range(n) for d in case.acc}
    for d in case.acc:
        starts = []
        for i in range(n):
            h.addConstr(is_open[i, d] >= at(i, d))
            s = h.addVariable(0, 1)
            h.addConstr(s >= is_open[i, d] - (is_open[i - 1, d] if i > 0 else 0))
            starts.append(s)
        h.addConstr(sum(starts) <= 1)
    for i in range(n):
        h.addConstr(sum(is_open[i, d] for d in case.acc) <= 1)
    # Memory, in MiB.
    for d in places:
        largest, staged = h.addVariable(0), h.addVariable(0)
        for i, u in enumerate(case.units):
            h.addConstr(largest >= u["s"] / MIB * at(i, d))
            if d in case.acc:
                h.addConstr(staged >= 2 * u["g"] / MIB * x[i, (d, case.cpu)])
        weights = sum(u["w"] / MIB * sum(x[i, w] for w in case.ways if w[1] == d) for i, u in enumerate(case.units))
        cache = sum(u["v"] / MIB * at(i, d) for i, u in enumerate(case.units))
        h.addConstr(weights + cache + largest + staged <= case.budgets[d] / MIB)
    h.minimize(cost)
    info, status = h.getInfo(), h.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return "infeasible", None, None
    values = h.getSolution().col_value
    if not values or info.primal_solution_status == 0:
        return "time", None, info.mip_dual_bound
    placement = []
    for i in range(n):
        placement.append(max(case.ways, key=lambda w: values[x[i, w].index]))
    done = status == highspy.HighsModelStatus.kOptimal
    return "optimal" if done else "time", case.time(placement), info.mip_dual_bound


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    only = {int(k) for k in args.only.split(",") if k}
    equal = bounded = wrong = 0
    for line in open(args.cases):
        case = Case(line)
        d = case.d
        if only and d["seed"] not in only:
            continue
        status, time, bound = solve(case, args.seconds)
        slack = max(1e6, d["time_ps"] * 2e-7)  # the solver's tolerance
        if status == "infeasible":
            good = not d["fits"]
            kind = "equal"
        elif status == "optimal":
            good = d["fits"] and abs(time - d["time_ps"]) <= slack
            kind = "equal"
            if good is False and d["fits"] and not d["optimal"]:
                good = d["bound_ps"] <= time + slack and time <= d["time_ps"] + slack
                kind = "bounded"
        elif not d["fits"]:
            good = time is None  # neither found a plan
            kind = "bounded"
        else:
            good = bound * 1e6 <= d["time_ps"] + slack and (time is None or d["bound_ps"] <= time + slack)
            kind = "bounded"
        equal += good and kind == "equal"
        bounded += good and kind == "bounded"
        wrong += not good
        print(d["seed"], status, "milp", time, "planner", d["time_ps"], "proven" if d["optimal"] else "open", kind if good else "DIFFERS", flush=True)
    print(f"{equal} equal, {bounded} bounded by time, {wrong} different")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
