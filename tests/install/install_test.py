#!/usr/bin/env python3
"""Installs Berth into an empty folder, then builds and runs every project of examples/ against what was installed.

    install_test.py --source REPOSITORY --build BUILD_FOLDER [-D NAME=VALUE ...]    (-D: passed on when the examples are configured)

The command and its expected output stand in the first comment of each example's main.cc: that very command is run and its
stdout compared; "..." there matches anything, and alone on a line any number of lines.
"""
import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def stated(main_file):
    """(command after "out/", expected output) of an example's first comment."""
    comment = []
    for line in main_file.read_text().splitlines():
        if not line.startswith("//"):
            break
        comment.append(line[2:].removeprefix("   ") if line.startswith("//   ") else line[2:].strip())
    at = next(i for i, line in enumerate(comment) if line.startswith("Expected output"))
    command = next(line for line in comment if line.startswith("out/"))
    return shlex.split(command.removeprefix("out/")), comment[at + 1:]


def pattern(expected):
    out = ""
    for line in expected:
        out += r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n"
    return re.compile(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("-D", dest="definitions", action="append", default=[])
    args = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory(prefix="berth-install-") as folder:
        prefix = Path(folder) / "prefix"
        run(["cmake", "--install", args.build, "--prefix", prefix])
        for path in ("bin/berth", "share/man/man1/berth.1", "share/bash-completion/completions/berth", "share/zsh/site-functions/_berth",
                     "share/fish/vendor_completions.d/berth.fish", "include/berth/berth.h"):
            if not (prefix / path).is_file() or (prefix / path).stat().st_size == 0:
                print(f"FAILED: {path} was not installed, or is empty")
                faults += 1
        version = run([prefix / "bin/berth", "--version"])
        print(f"installed {version.strip()}")
        names = sorted(p.parent.name for p in args.source.glob("examples/*/CMakeLists.txt"))
        if not names:
            sys.exit("no examples were found")
        for name in names:
            source, build = args.source / "examples" / name, Path(folder) / name
            run(["cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", *(f"-D{d}" for d in args.definitions)])
            run(["cmake", "--build", build])
            command, expected = stated(source / "main.cc")
            found = run([build / command[0], *command[1:]], cwd=args.source)
            if pattern(expected).fullmatch(found):
                print(f"{name}: as stated")
            else:
                faults += 1
                print(f"FAILED: {name} printed\n{found}\nexpected\n" + "\n".join(expected))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
