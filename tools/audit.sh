#!/usr/bin/env bash
# `make audit`: asks the advisory database about every package of constraints/*.txt (pip-audit, in a temporary environment).
#
# Ends with 1 if a pinned version has a known vulnerability. If the database cannot be reached, says so and ends with 0:
# that says nothing about the packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly AUDITOR="pip-audit==2.10.1"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check "$AUDITOR"
failed=0
for lock in constraints/*.txt; do
    status=0
    "$scratch/venv/bin/pip-audit" --require-hashes --disable-pip --progress-spinner off --timeout 15 -r "$lock" >"$scratch/out" 2>&1 || status=$?
    skipped=$(grep -c 'could not be audited' "$scratch/out" || true)
    if grep -qE '^Found [0-9]+ known' "$scratch/out"; then
        cat "$scratch/out"
        failed=1
    elif [ "$status" != 0 ]; then
        echo "audit: $lock: not checked: $(tail -n 1 "$scratch/out" | cut -c1-200)"
    else
        echo "audit: $lock: no known vulnerability in $(($(grep -c '==' "$lock") - skipped)) packages; $skipped could not be looked up"
    fi
done
exit "$failed"
