#!/usr/bin/env bash
# Writes constraints/main.txt (every extra but fpga) and constraints/pynq.txt (the core and fpga) from pyproject.toml.
#
# Pins that are still valid are kept; UPGRADE=1 takes the newest versions. The resolver runs in a temporary environment
# without pip configuration, so that no machine-specific package is included. It resolves for every platform and for
# Python 3.11 and later, and lists the hashes of all files of a release. The output must contain no host name or path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly RESOLVER="uv==0.13.7"
readonly MAIN_EXTRAS=(opencl cuda13 spark sim hw board bench docs dev)
readonly PYNQ_EXTRAS=(fpga)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

compile() { # compile NAME EXTRA...
    local name=$1 out="$scratch/$1.txt" extras=() extra upgrade=()
    shift
    for extra in "$@"; do extras+=(--extra "$extra"); done
    if [ "${UPGRADE:-}" = 1 ]; then
        upgrade=(--upgrade)
    elif [ -e "constraints/$name.txt" ]; then
        grep -v '^#' "constraints/$name.txt" >"$out"
    fi
    UV_PYTHON_DOWNLOADS=never "$scratch/venv/bin/uv" pip compile pyproject.toml --quiet \
        --python "$scratch/venv/bin/python" --python-version 3.11 --universal --no-config \
        --generate-hashes --no-header --no-annotate "${upgrade[@]}" "${extras[@]}" --output-file "$out" >/dev/null
    if grep -nE '://|/|\\[^ ]|@|--(index|extra-index|find-links|trusted)' "$out"; then
        echo "lock: the lines above name a host or a path; constraints/$name.txt was left as it was" >&2
        exit 1
    fi
    { echo "# Made by \`make lock\` from pyproject.toml (extras: $*). Do not edit."; cat "$out"; } >"constraints/$name.txt"
    echo "constraints/$name.txt: $(grep -c '==' "constraints/$name.txt") pins"
}

"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$RESOLVER"
mkdir -p constraints
compile main "${MAIN_EXTRAS[@]}"
compile pynq "${PYNQ_EXTRAS[@]}"
