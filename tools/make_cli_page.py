#!/usr/bin/env python3
"""docs/cli.md out of the command's own help:  tools/make_cli_page.py build/dev/cli/berth > docs/cli.md

A test compares the page in the repository with what this prints.
"""
import re
import subprocess
import sys


def help_of(berth, *arguments):
    return subprocess.run([berth, *arguments, "--help"], capture_output=True, text=True, check=True).stdout.strip()


def main():
    berth = sys.argv[1]
    top = help_of(berth)
    print("# The command\n\nMade by `tools/make_cli_page.py` from `berth COMMAND --help`; `man berth` says the same.\n")
    print("Results go to stdout, everything else to stderr; with `--json` exactly one JSON document goes to stdout, failures included.")
    print("Exit status: 0 done or it fits, 1 failed, 2 usage, 3 does not fit, 4 corrupt or unsupported checkpoint, 130 interrupted.\n")
    print(f"```\n{top}\n```")
    here = top.split("Not in this version")[0]
    for name in re.findall(r"^  ([a-z]+) {2,}\S", here, re.M):
        print(f"\n## berth {name}\n\n```\n{help_of(berth, name)}\n```")


if __name__ == "__main__":
    main()
