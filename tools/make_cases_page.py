#!/usr/bin/env python3
"""docs/cases.md out of what the command prints:  tools/make_cases_page.py build/release/cli/berth SHARED/checkpoints > docs/cases.md

The text is here; a line {block(COMMAND, PATTERN..)} becomes the command and those parts of its output that match. A test
compares the page in the repository with what this prints.
"""
import os
import re
import shlex
import subprocess
import sys

M3 = """berth plan MiniMax-M3/config.json --load-in-4bit --bnb-4bit-use-double-quant \\
    --max-memory 0=165GiB,1=165GiB,2=165GiB,3=165GiB,4=165GiB,5=165GiB,6=165GiB,7=165GiB"""
DEVICES = r"^  \d emu|^  layers |^  cpu  "

PAGE = r'''# The cases Berth was started for

What the command prints for them, from the published configs alone (`berth plan` needs no weights). Made by
`tools/make_cases_page.py`; a test compares. Where more than a line is left out there is `...`.

## 428 billion parameters in 4 bit on eight cards of 165 GiB

huggingface/transformers 46823: MiniMax-M3 in nf4 with double quantization on 8 x 165 GiB was refused, modules having been
put on the cpu or the disk, although the cards hold 1,320 GiB. Its planner took the first block of each class as the size
of all, and the first three blocks are 0.6 GiB where the others are 13.8:

{block(M3 + ',cpu=500GiB --compat transformers-before-47203', 'as transformers plans it', DEVICES, 'although everything fits', 'refuses this map')}
The first repair (47203, the largest block counts) and the second (47211, the largest layer) place everything on the cards:

{block(M3 + ',cpu=500GiB --compat transformers-before-47211', DEVICES)}
{block(M3 + ',cpu=500GiB --compat transformers', 'as transformers plans it', DEVICES)}
779 GiB is no slip: since version 5 the experts of a layer are one fused tensor, which 4 bit does not reach, and only what is
not an expert shrinks. Berth counts the text model (the vision tower is not loaded), to the byte as stored:

{block(M3 + ' -t 4 --no-offload', r'^MiniMax-M3', DEVICES, 'proven best', '114 fused')}
With the experts quantized too, the model takes two of the eight cards:

{block(M3 + ' -t 4 --no-offload --quantize-experts', r'^MiniMax-M3', r'^  [01] emu', '2 emu', 'proven best')}
## A table of 5.25 GiB, of which a token reads 21 KiB

Gemma-4-E4B in nf4 on one card of 16 GB with 8,500 tokens (47705). The per-layer embedding table is a third of the model and
is read one row at a time, so it leaves the card by itself; what stays on the card is under the 4.48 GB that were reported
there with the table moved by hand ([e4b.md](e4b.md) has the case in full):

{block('berth plan gemma-4-E4B-it/config.json -t 4 --load-in-4bit --emulate 1x16GB -c 8500', r'^gemma', r'^  0 emu', 'weights 3', 'per_layer on cpu')}
Transformers keeps it on the card, with the vision and the audio tower:

{block('berth plan gemma-4-E4B-it/config.json --load-in-4bit --max-memory 0=16GB,cpu=8GiB -c 8500 --compat transformers', 'as transformers plans it', r'^  0 emu', 'weights 8')}
## Cards of 18 and 10 GiB, 8 bit

Gemma-3-27B in LLM.int8 with 48 GiB of RAM. Everything fits on the two cards, KV cache included:

{block('berth plan gemma-3-27b-it/config.json -t 4 --load-in-8bit --max-memory 0=18GiB,1=10GiB,cpu=48GiB', r'^gemma', r'^  [01] emu', r'weights \d', 'proven best')}
Transformers lowers the first card's budget for balance and both for its quantizer, spills nine layers to the cpu, and then
refuses its own map:

{block('berth plan gemma-3-27b-it/config.json --load-in-8bit --max-memory 0=18GiB,1=10GiB,cpu=48GiB \\\n    --compat transformers', 'as transformers plans it', r'^  [01] emu', 'although everything fits', 'refuses this map')}
All of them side by side: `berth compare` with the same options.

## The head on the cpu, by a map of one's own

Berth computes there what is stored there; the norm before the head goes with it:

{block("""berth plan Llama-3.1-8B/config.json -t 4 --load-in-4bit --emulate 1x16GiB --device-map '{"": 0, "lm_head": "cpu"}'""", r'^  0 emu', 'lm_head on cpu', 'small module')}
Transformers 5 refuses the same map, though nothing quantized is on the cpu, and with the offload flag copies the head to the
card for every token:

{block("""berth plan Llama-3.1-8B/config.json -t 4 --load-in-4bit --emulate 1x16GiB --device-map '{"": 0, "lm_head": "cpu"}' \\
    --compat transformers""", 'lm_head on cpu', r'^  ! .*for every', 'refuses this map')}
## Mistakes in maps

{block("""berth plan Llama-3.1-8B/config.json --emulate 2x16GiB --device-map '{"": 0, "model.layer.3": 1}'""", 'berth: ')}
{block("""berth plan Llama-3.1-8B/config.json --emulate 2x16GiB --device-map '{"model.layers": 0, "model.norm": 0, "lm_head": 1}'""", 'berth: ', 'try: ')}
{block("""berth plan Llama-3.1-8B/config.json --emulate 2x16GiB --device-map '{"": 0, "lm_head": 3}'""", 'berth: ', 'try: ')}
{block("""berth plan Llama-3.1-8B/config.json --emulate 2x16GiB \\
    --device-map '{"base_model.model.model": 0, "base_model.model.lm_head": 0}'""", 'berth: ', 'try: ')}
A parent and a child may both be named; the child decides for itself:

{block("""berth plan Llama-3.1-8B/config.json --emulate 2x16GiB --device-map '{"": 0, "model.layers": 1, "model.layers.3": 0}'""", r'^  attention', 'decide')}
## A module larger than any device

{block('berth plan gemma-3-27b-it/config.json -t 4 --emulate 4x1GiB --no-offload', 'berth: ')}
{block('berth plan gemma-3-27b-it/config.json --max-memory 0=1GiB,1=1GiB,2=1GiB,3=1GiB,cpu=4GiB --compat transformers', 'Accelerators', 'alone takes')}
## Training

A map made for inference counts no gradients, no optimizer, and may offload; `--for training` counts them and plans one
process per card where a card holds everything:

{block('berth plan Qwen2.5-7B/config.json -t 4 --for training --emulate 2x80GiB -c 2048', r'^  0 emu', 'weights 5', '! Training')}
{block('berth plan Qwen2.5-72B-Instruct/config.json -t 4 --for training --emulate 8x80GiB -c 2048', r'^  [06] emu', 'no single accelerator')}
{block('berth plan Qwen2.5-72B-Instruct/config.json -t 4 --for training --emulate 2x80GiB -c 2048', 'berth: ', r'4bit|offloaded')}
What a library's map does not hold for is said beside it:

{block('berth plan Qwen2.5-7B/config.json --compat transformers --for training --max-memory 0=16GiB,1=16GiB', r'^  [01] emu', 'Training: ')}'''


def parts(text):
    """Lines; a warning (! or continued by four spaces) with all of its lines."""
    out = []
    for line in text.splitlines():
        if out and out[-1].startswith("  ! ") and line.startswith("    "):
            out[-1] += "\n" + line
        else:
            out.append(line.rstrip())
    return out


def main():
    berth, checkpoints = (os.path.abspath(p) for p in sys.argv[1:3])

    def block(command, *patterns):
        ran = subprocess.run([berth, *shlex.split(command.replace("\\\n", " "))[1:]], capture_output=True, text=True, cwd=checkpoints,
                             env={**os.environ, "XDG_CACHE_HOME": "/nonexistent"})  # planning values, not this machine's measured rates
        out, left_out = [], 0
        for part in parts(ran.stdout) + parts(ran.stderr):
            if any(re.search(p, part.replace("\n   ", "")) for p in patterns) and not part.startswith("warning: "):
                out += ["..."] if left_out > 1 and out else []
                out.append(part)
                left_out = 0
            else:
                left_out += 1
        for p in patterns:
            if not any(re.search(p, part.replace("\n   ", "")) for part in out):
                sys.exit(f"{command}\nprints nothing like {p}:\n{ran.stdout}{ran.stderr}")
        return "```\n$ " + command + "\n" + "\n".join(out) + "\n```\n"

    names = {"block": block, "M3": M3, "DEVICES": DEVICES}
    print(re.sub(r"^\{(block\(.*?\))\}$", lambda m: eval(m.group(1), names), PAGE, flags=re.M | re.S), end="")  # of this file


if __name__ == "__main__":
    main()
