#!/usr/bin/env python3
"""docs/figures.md from what the tests count: make_figures_page.py build/release/tests/models > docs/figures.md

The tests that print the rows fail where the page lacks one, so the page cannot rot.
"""
import pathlib
import re
import subprocess
import sys

HEAD = """# Predicted and measured, model by model

Made by `tools/make_figures_page.py` from what the tests count; the same tests fail where this page lacks one of their rows. Bytes, models of
golden/models (and real ones by name), 16-bit cache. The same for models of full size: [e4b.md](e4b.md), [moe.md](moe.md).

## Counts

| what | | | |
|---|---:|---|---:|
{matrix}

The rows of the bit matrix are run over {combinations} combinations each of placement, threads (1 to 3), prefill chunk and neighbours in
a batch: `bit_matrix_test`; the hashes are `tests/data/model_hashes.txt`. Golden models: {golden} of {golden} give Transformers' logits and
greedy tokens (`golden_models_test`), {gguf} of the same as GGUF files (`gguf_models_test`).

## Memory

`memory_test`: two emulated devices, context 96, batch 2, chunk 32. Workspace is predicted before anything is allocated; a device of exactly
the last column's bytes is accepted, one of a byte less refused before a weight is read.

| model | device | weights | KV cache | workspace predicted | workspace measured | peak |
|---|---|---:|---:|---:|---:|---:|
{memory}

## Bytes moved by one decode step

`tiers_test`: for each access mode, by the way between two memories; predicted and counted are equal, or the test fails. Weights of experts
are those of the chosen ones.

| model | access mode | moved |
|---|---|---|
{moved}

## Files that change, full disks, short reads

Shown by fault injection (`tiers_test`, `berth_format_test`), each a clear error with the tensor and the file, or no difference at all:

| what happens | what Berth does | test |
|---|---|---|
| a checkpoint is cut while it runs from the disk | the pass ends with an error before logits leave it | `SpoiledFiles.ACheckpointThatIsCutWhileItRunsIsAnErrorThatNamesTensorAndFile` |
| ... is written to | the same | `SpoiledFiles.ACheckpointThatIsWrittenToWhileItRunsIsAnError` |
| ... is deleted or renamed | goes on: the file is open | `SpoiledFiles.ACheckpointWhoseNameVanishesKeepsRunning` |
| ... is replaced between planning and loading | an error that names it | `SpoiledFiles.ACheckpointThatIsReplacedBeforeItIsLoadedIsAnError` |
| a read gives fewer bytes than asked for | an error with the offset | `Checkpoint.EN03_BR102_ShortReadsAreErrorsWithTheOffset` |
| a file changes between opening and reading | an error | `Checkpoint.SF38_EN04_NoticesFilesThatChange` |
| an offloaded file is cut, damaged or of another format | made anew, the same bits | `SpoiledFiles.OffloadedWeightsThatWereSpoiledAreMadeAnew` |
| the offload folder holds another checkpoint's | not used | `SpoiledFiles.OffloadedWeightsOfAnotherCheckpointAreNotUsed` |
| there is no offload folder where one is needed | refused before a weight is read | `SpoiledFiles.WithoutAnOffloadFolderWhatNeedsOneIsRefused` |
| the disk is full | an error, nothing left behind | `SpoiledFiles.AFullDiskLeavesNothingBehind` |
| loading is interrupted | whole files stay, half ones do not | `SpoiledFiles.AnInterruptedLoadLeavesWholeFilesOnly` |

## Not supported, by name

Each is an error that says so, never a wrong answer.

* Computing on CUDA devices (planning for them works).
* Inputs other than text: vision and audio towers are neither loaded nor run. Encoders (bidirectional Gemma 3 and 4). Gemma 3n's wrapper, Gemma
  4's assistant and unified classes; every `model_type` that [architectures.md](architectures.md) does not list.
* Weights stored as AWQ, GPTQ, NVFP4, fp8 per tensor or row, int4 of compressed-tensors: counted and planned, not run.
* GGUF of architectures that [architectures.md](architectures.md) does not list, Falcon-RW, DeepSeek-V2's routing, keys of DeepSeek's latent in blocks.
* Rope over more than 1,024 channels of a head.
* Rows of one unit on several devices (tensor parallelism); experts of one bank on several devices.
"""


def rows_of(folder, binary, *arguments):
    done = subprocess.run([folder / binary, *arguments], capture_output=True, text=True)  # fails where the page is old
    return done.stdout


def main():
    folder = pathlib.Path(sys.argv[1])
    memory = rows_of(folder, "memory_test")
    moved = rows_of(folder, "tiers_test", "--gtest_filter=*MovedBytes.OfOne*")
    matrix = rows_of(folder, "bit_matrix_test", "--gtest_filter=BitMatrixCounts.*:All/BitMatrix.*llama_bf16:All/BitMatrix.*llama_yarn")
    listed = rows_of(folder, "gguf_models_test", "--gtest_list_tests")
    golden = rows_of(folder, "golden_models_test", "--gtest_list_tests")
    combinations = sorted(set(map(int, re.findall(r"over (\d+) combinations", matrix))))

    def table(name, output):
        return "\n".join(re.findall(rf"^\[ page     \] {name}: (.*)$", output, re.M))
    sys.stdout.write(HEAD.format(
        matrix=table("matrix", matrix), memory=table("memory", memory), moved=table("moved", moved),
        combinations=" or ".join(map(str, combinations)),
        golden=len(re.findall(r"GivesTheLogits", golden)), gguf=len(re.findall(r"GivesTheLogits", listed)) + 1))


if __name__ == "__main__":
    sys.exit(main())
