#!/usr/bin/env bash
# make format: rewrites C and Python sources; with --check only reports what it would change.
source "$(dirname "$0")/common.sh"

clang_format=$(command -v clang-format-14 || command -v clang-format) || {
    scripts/apt.sh clang-format-14
    clang_format=clang-format-14
}
[ -x "$VENV/bin/ruff" ] || scripts/build.sh check

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.c' '*.h')
if [ "${1:-}" = --check ]; then
    status=0
    for source in "${sources[@]}"; do
        "$clang_format" --dry-run -Werror "$source" 2>/dev/null ||
            { echo "would reformat: $source" && status=1; }
    done
    "$VENV/bin/ruff" format --check . || status=1
    exit $status
else
    [ ${#sources[@]} -eq 0 ] || "$clang_format" -i "${sources[@]}"
    "$VENV/bin/ruff" check -q --fix-only .
    "$VENV/bin/ruff" format -q .
fi
