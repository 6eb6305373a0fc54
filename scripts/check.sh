#!/usr/bin/env bash
# make check: formats, static analysis, types, and the tests of style and layering. All of them run;
# the first failure decides the exit status.
source "$(dirname "$0")/common.sh"

command -v shellcheck >/dev/null || scripts/apt.sh shellcheck
command -v clang-format-14 >/dev/null || command -v clang-format >/dev/null ||
    scripts/apt.sh clang-format-14
clang_tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || {
    scripts/apt.sh clang-tidy-14
    clang_tidy=clang-tidy-14
}
scripts/build.sh check

failed=()
# run NAME COMMAND...
run() {
    say "$1"
    "${@:2}" || failed+=("$1")
}
run "format" scripts/format.sh --check
run "shellcheck" shellcheck scripts/*.sh .ci/run
run "ruff" "$VENV/bin/ruff" check .
run "mypy" "$VENV/bin/mypy"
run "clang-tidy" "$VENV/bin/python" scripts/tidy.py "$clang_tidy" build/release
run "tidy and layering tests" "$VENV/bin/python" -m pytest -q tests/python/test_tidy.py \
    tests/python/test_layers.py
[ ${#failed[@]} -eq 0 ] || die "make check: failed: ${failed[*]}"
say "make check: all passed"
