#!/usr/bin/env bash
# tools/rival_bench.sh — Berth beside llama.cpp on this machine: builds the rival, makes the models, measures, prints the table.
#
#   tools/rival_bench.sh [build|models|measure|table|all]        (default: all)
#
# The rival is the llama.cpp inside the newest llama-cpp-python sdist on PyPI, compiled for this processor. It and the
# models stay in a cache folder outside the repository (8 GB). Berth: build/release/cli/berth, or $BERTH.
#
#   RIVAL_DIR      the cache folder (default ~/.cache/berth/rival)
#   RIVAL_WRAP     a command put before every timed run, for instance one that keeps other jobs off the cores
#   RIVAL_ARGS     further arguments of tools/rival_table.py measure: --models, --threads, --rounds, --repeats
#   LLAMA_CPP_PYTHON   a version of the sdist (default: the newest)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth
dir=${RIVAL_DIR:-$cache/rival}
models=${BERTH_MODELS:-$cache/models}
export BERTH=${BERTH:-$root/build/release/cli/berth}
what=${1:-all}
mkdir -p "$dir/models"
# Some machines name an old OpenBLAS kernel here; llama.cpp must not be built by it.
unset OPENBLAS_CORETYPE || true

build() {
  if ! ls "$dir"/sdist/*.tar.gz >/dev/null 2>&1; then
    python3 -m pip download -q --no-deps --no-binary llama-cpp-python -d "$dir/sdist" "llama-cpp-python${LLAMA_CPP_PYTHON:+==$LLAMA_CPP_PYTHON}"
  fi
  if [ ! -d "$dir/src/vendor/llama.cpp" ]; then
    mkdir -p "$dir/src"
    tar xzf "$dir"/sdist/llama_cpp_python-*.tar.gz -C "$dir/src" --strip-components=1
  fi
  local llama=$dir/src/vendor/llama.cpp
  cmake -S "$llama" -B "$dir/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_OPENMP=ON \
    -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF >"$dir/cmake.log" 2>&1
  nice -n 10 ninja -C "$dir/build" llama
  g++ -O2 -std=c++20 "$root/tools/rival_probe.cc" -I"$llama/include" -I"$llama/ggml/include" -L"$dir/build/bin" \
    -lllama -lggml -lggml-base -Wl,-rpath,"$dir/build/bin" -o "$dir/rival_probe"
}

models() {
  local type
  for type in q4_0 q4_k_m q8_0 bf16; do
    [ -s "$dir/models/1b-$type.gguf" ] || "$BERTH" synth "$root/tools/rival_1b/config.json" "$dir/models/1b-$type.gguf" --gguf "$type" --quiet
  done
  [ -s "$dir/models/1b-nf4/config.json" ] || "$BERTH" synth "$root/tools/rival_1b/config.json" "$dir/models/1b-nf4" --load-in-4bit --quiet
}

table() { python3 "$root/tools/rival_table.py" table "$dir/results.jsonl"; }

measure() {
  # shellcheck disable=SC2086
  python3 "$root/tools/rival_table.py" measure "$dir/results.jsonl" --berth "$BERTH" --probe "$dir/rival_probe" \
    --synthetic "$dir/models" --real "$models" --wrap "${RIVAL_WRAP:-}" ${RIVAL_ARGS:-}
}

case $what in
  build) build ;;
  models) models ;;
  measure) measure ;;
  table) table ;;
  all) build && models && measure && table ;;
  *) sed -n 2,13p "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
