#!/usr/bin/env python3
"""docs/bug_reports.md: public reports of planners that went wrong, with what Berth answers and the test that shows it.

    tools/make_bug_reports_page.py PLAN_TEST BERTH > docs/bug_reports.md
    tools/make_bug_reports_page.py --check PLAN_TEST BERTH         # status 1 where the page says something else

PLAN_TEST is build/.../berth/plan/berth_plan_test. Both it (BugReports.*) and tests/e2e/test_bug_reports.py are run; each prints
"BR-nnn -> answer". With --check rows of tests that were skipped here (goldens absent) are not compared.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
PAGE = SOURCE / "docs/bug_reports.md"
E2E = SOURCE / "tests/e2e/test_bug_reports.py"

REPORTS = {
    4: "accelerate 3041: room kept for the largest module keeps every small one off the card",
    5: "accelerate 3321: room for streaming is kept although nothing is streamed",
    6: "transformers 47211: a wide embedding pushes a 4-bit model onto one card, then to the cpu",
    9: "accelerate 583: the last small modules drop to the cpu",
    10: "accelerate 608, 473: filled to the brim, the first batch runs out of memory",
    11: "accelerate 4014: a parameter owned by a divided block has no device",
    13: "accelerate 2663: a buffer on a container has no device",
    15: "llama.cpp 22592: a failed fit is logged, loading goes on",
    18: "llama.cpp 24684: the second load takes the first plan for the user's wishes",
    19: "accelerate 1510: two tied pairs in one module",
    23: "accelerate 2330: a tied tensor is held twice",
    29: "transformers 46566: ties by pattern are taken literally",
    31: "accelerate 2586: a 27B model in 4 bit, 20 GB on one card and 0.3 GB on the others",
    33: "unsloth 5344: a mixture of experts in 4 bit still needs 46 GB",
    34: "transformers 29691: skipping layers.1 skips layers.10 to 19",
    36: "transformers 45674: any skip list removes the protection of the head",
    42: "accelerate 1933: budget 0 for the only card divides by zero",
    43: "accelerate 3480: the key disk is not accepted",
    45: "accelerate 2219: with a budget for the card alone the rest goes to the disk, RAM being free",
    46: "heretic 83: a card's number given as text is rejected",
    48: "transformers 22311: max_memory is ignored for named strategies",
    50: "FastChat 3214: automatic budgets are rounded down to whole GiB",
    53: "accelerate 774: a card with budget 0 counts in the average",
    56: "transformers 30115: a map from the index file cuts inside a layer",
    58: "accelerate 2357: a device name without an index crashes later",
    60: "Langchain-Chatchat 827: a map with an adapter's prefix",
    61: "accelerate 1536: a map for one card allocates on all",
    63: "peft 3619: a map for the cpu alone crashes",
    66: "bitsandbytes 10: one small norm on the disk gives a general error",
    69: "vllm 56283: offloading is accepted and nothing is offloaded",
    71: "transformers 27199: a tied head on the disk raises a key error",
    80: "transformers 46459: the requested dtype is ignored for nested configs",
    119: "llama.cpp 27872: experts on the cpu turn the fit off",
    124: "ollama 10700: the projector is planned on card 0 and allocated elsewhere",
    129: "llama.cpp 14400: where the per-layer table goes is unclear",
    135: "transformers 30860: logits of the whole prompt in fp32",
    137: "ollama 1800: a cache by the wrong number of heads",
    139: "llama.cpp 23485: a second model is not part of the memory plan",
    141: "lmstudio 542: the cache is forced on the card although few layers are there",
    174: "vllm 4998: an equal split overruns the smaller card",
    175: "FastChat 1532: one cap for all cards",
    179: "llama.cpp 13612: all on one card by ratio is not the same as one card",
    181: "transformers 34079: an error recommends an option that does not exist",
    184: "peft 774: two names of one option",
}


def answers_of(lines, name_of):
    """{number: (answer, test)} from printed lines; name_of(line) gives the test that a line opens, or None."""
    found, test = {}, ""
    for line in lines:
        test = name_of(line) or test
        match = re.search(r"BR-(\d+) -> (.*)", line)
        if match:
            found[int(match.group(1))] = (match.group(2).strip(), test)
    return found


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def collect(plan_test, berth):
    ran = run([plan_test, "--gtest_filter=BugReports.*"])
    answers = answers_of(ran.stdout.splitlines(), lambda l: (re.match(r"\[ RUN +\] (\S+)", l) or [None, None])[1])
    tests = re.findall(r"def (test_[0-9_]+\w+)", E2E.read_text())
    ran = run([sys.executable, "-B", E2E], env={**os.environ, "BERTH": str(berth)})
    for number, (answer, _) in answers_of(ran.stdout.splitlines(), lambda l: None).items():
        test = next(t for t in tests if f"_{number:03}_" in t)
        answers[number] = (answer, test)
    return answers


def page(answers):
    out = ["# Reports of planners that went wrong", "",
           "Public reports about placing models, each as a small case that is a test, and what Berth answers to it. Numbers are those of the",
           "collection this project was given; a unit of its cases is a MiB here, \"0: 40 of 45\" is what device 0 holds of its budget. Made by",
           "`tools/make_bug_reports_page.py`; a test compares. `BugReports.*` are in `berth/plan/bug_reports_test.cc`, `test_*` in",
           "`tests/e2e/test_bug_reports.py`, which goes through the command. How the libraries themselves answer is what `--compat` repeats.", "",
           "| | report | Berth's answer | test |", "|---|---|---|---|"]
    for number, title in REPORTS.items():
        answer, test = answers[number]
        out.append(f"| BR-{number:03} | {title} | {answer.replace('|', '/')} | `{test}` |")
    return "\n".join(out) + "\n"


def main():
    check = "--check" in sys.argv
    plan_test, berth = [a for a in sys.argv[1:] if a != "--check"]
    answers = collect(plan_test, berth)
    unlisted = sorted(answers.keys() - REPORTS.keys())
    if unlisted:
        sys.exit(f"tests answer reports that this page does not list: {unlisted}")
    if not check:
        missing = sorted(REPORTS.keys() - answers.keys())
        if missing:
            sys.exit(f"no test answers {missing} here (goldens absent?)")
        print(page(answers), end="")
        return 0
    rows = {int(m.group(1)): m.group(0) for m in re.finditer(r"^\| BR-(\d+) .*$", PAGE.read_text(), re.M)}
    if rows.keys() != REPORTS.keys():
        sys.exit(f"{PAGE} lists {sorted(rows.keys() ^ REPORTS.keys())} otherwise: make it anew")
    made = {int(m.group(1)): m.group(0) for m in re.finditer(r"^\| BR-(\d+) .*$", page({**{n: ("", "") for n in REPORTS}, **answers}), re.M)}
    wrong = [n for n in answers if rows[n] != made[n]]
    for n in wrong:
        print(f"the page has\n  {rows[n]}\nand the tests say\n  {made[n]}")
    print(f"reports answered as the page has it: {len(answers) - len(wrong)}/{len(REPORTS)}" + (f" ({len(REPORTS) - len(answers)} not tried here)" if len(answers) < len(REPORTS) else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
