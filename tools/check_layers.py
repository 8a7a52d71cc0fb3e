#!/usr/bin/env python3
"""The dependency rule, checked: every #include "berth/..." against the DEPS of its layer's add_layer() call.

    tools/check_layers.py [REPOSITORY] [--table]

Also fails on a *_test.cc or *_bench.cc that no add_layer() lists, on a layer whose DEPS form a cycle or point upwards, on an
installed header that includes one that is not, and on front ends that include anything but engine and base. --table prints the rule as the docs show it.
Start reading at: main().
"""
import re
import sys
from pathlib import Path

# Levels of the architecture; a layer may depend on lower levels only. One row per level, lowest first.
LEVELS = [["base"], ["tensor", "jinja"], ["format", "quant", "machine", "text"], ["arch", "device"], ["sizing", "kernel"],
          ["plan"], ["load"], ["model"], ["generate"], ["engine"]]
LEVEL_OF = {name: level for level, names in enumerate(LEVELS) for name in names}
INCLUDE = re.compile(r'^\s*#\s*include\s+"berth/([a-z_0-9]+)/([^"]+)"', re.M)
KEYWORDS = {"NAME", "DEPS", "EXTERNAL", "HEADERS", "SOURCES", "TESTS", "BENCHES", "TEST_EXTERNAL", "SIMD_OBJECTS"}


def read_layer(cmake_file):
    """The arguments of the file's add_layer() call as {keyword: [values]}."""
    text = re.sub(r"#.*", "", cmake_file.read_text())
    match = re.search(r"add_layer\s*\(([^)]*)\)", text)
    if match is None:
        return None
    values, keyword = {}, None
    for word in match.group(1).split():
        if word in KEYWORDS:
            keyword = word
            values.setdefault(keyword, [])
        elif keyword:
            values[keyword].append(word)
    return values


def check_folder(folder, layer, faults):
    name = layer["NAME"][0]
    allowed = set(layer.get("DEPS", [])) | {name}
    if name not in LEVEL_OF:
        faults.append(f"{folder}: layer {name} has no level in tools/check_layers.py")
        return
    for dep in layer.get("DEPS", []):
        if LEVEL_OF.get(dep, 99) >= LEVEL_OF[name]:
            faults.append(f"{folder}/CMakeLists.txt: {name} may not depend on {dep} (same or higher level)")
    listed = set(layer.get("TESTS", [])) | set(layer.get("BENCHES", []))
    for path in sorted(folder.rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        for match in INCLUDE.finditer(path.read_text(errors="replace")):
            if match.group(1) not in allowed:
                line = path.read_text(errors="replace")[: match.start()].count("\n") + 1
                faults.append(f"{path}:{line}: {name} includes berth/{match.group(1)}/{match.group(2)}, which its DEPS do not name")
        relative = str(path.relative_to(folder))
        if re.search(r"_(test|bench)\.cc$", path.name) and relative not in listed:
            faults.append(f"{path}: no add_layer() lists it, so it never runs")


def check_public_headers(root, layers, faults):
    """A header that is installed (HEADERS) may include only headers that are installed too."""
    for name, layer in layers.items():
        for header in layer.get("HEADERS", []):
            path = root / "berth" / name / header
            if not path.exists():
                faults.append(f"{root}/berth/{name}/CMakeLists.txt: HEADERS names {header}, which does not exist")
                continue
            for match in INCLUDE.finditer(path.read_text(errors="replace")):
                if match.group(2) not in layers.get(match.group(1), {}).get("HEADERS", []):
                    faults.append(f"{path}: is installed and includes berth/{match.group(1)}/{match.group(2)}, which no HEADERS list has")


def check_front_ends(root, faults):
    for front_end in ("cli", "server", "bindings", "examples"):
        for path in sorted((root / front_end).rglob("*")):
            if path.suffix not in {".h", ".cc"}:
                continue
            for match in INCLUDE.finditer(path.read_text(errors="replace")):
                if match.group(1) not in {"engine", "base"}:
                    faults.append(f"{path}: a front end includes berth/{match.group(1)}/{match.group(2)}; only engine (and base) may be")


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent)
    faults, layers = [], {}
    for cmake_file in sorted((root / "berth").glob("*/CMakeLists.txt")):
        layer = read_layer(cmake_file)
        if layer is None:
            faults.append(f"{cmake_file}: no add_layer() call")
            continue
        layers[layer["NAME"][0]] = layer
        check_folder(cmake_file.parent, layer, faults)
    check_public_headers(root, layers, faults)
    check_front_ends(root, faults)
    if "--table" in sys.argv:
        print("| layer | may include |\n|---|---|")
        for name in sorted(layers, key=lambda n: (LEVEL_OF.get(n, 99), n)):
            print(f"| `{name}` | {', '.join(layers[name].get('DEPS', [])) or '-'} |")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(layers)} layers checked, {len(faults)} faults", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
