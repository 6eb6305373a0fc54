#!/usr/bin/env bash
# make format: rewrites C and Python sources; with --check only reports what it would change.
source "$(dirname "$0")/common.sh"

clang_format=$(command -v clang-format-14 || command -v clang-format) || {
    scripts/apt.sh clang-format-14
    clang_format=clang-format-14
}
[ -x "$VENV/bin/ruff" ] || scripts/build.sh check

# Banners (/* ---- name ---- */) are cut to 100 columns first, where clang-format would fold them.
# It is told that a header is C, which it would otherwise guess, at times wrongly, and run twice:
# what it does to a folded comment can change once more.
formatted() {
    local as=--assume-filename="${1%.*}.c"
    sed -E ':a; /^.{101}/{ s|^(/\* -.*-)- \*/$|\1 */|; ta }' "$1" |
        "$clang_format" "$as" | "$clang_format" "$as"
}

status=0
new=$(mktemp)
trap 'rm -f "$new"' EXIT
while read -r source; do
    formatted "$source" >"$new"
    cmp -s "$new" "$source" && continue
    if [ "${1:-}" = --check ]; then
        echo "would reformat: $source"
        status=1
    else
        cat "$new" >"$source"
    fi
done < <(git ls-files --cached --others --exclude-standard -- '*.c' '*.h')

if [ "${1:-}" = --check ]; then
    "$VENV/bin/ruff" format --check -q . || status=1
else
    "$VENV/bin/ruff" check -q --fix-only .
    "$VENV/bin/ruff" format -q .
fi
exit $status
