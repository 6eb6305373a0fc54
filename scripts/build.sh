#!/usr/bin/env bash
# make build: system packages, .venv, the C core, tests and the extension in python/dtorch.
# Further arguments are requirement sets for .venv (venv.sh).
source "$(dirname "$0")/common.sh"

# shellcheck disable=SC2086 # a list of words
scripts/apt.sh $APT_BUILD
# shellcheck disable=SC2086
if ! base=$(find_python 'sys.version_info >= (3, 10)' "$VENV/bin/python" \
    ${PYTHON:-"python$TORCH_PYTHON" python3 python3.13 python3.12 python3.10}); then
    scripts/apt.sh python3 python3-venv python3-dev
    base=$(find_python 'sys.version_info >= (3, 10)' python3) || die "Python 3.10 or newer is needed"
fi
# torch first, so that no other package asks for a newer one.
sets=()
for set; do [ "$set" != torch ] || sets+=(torch); done
scripts/venv.sh "$VENV" "$base" "${sets[@]}" build run "$@"
cmake_build release "-DPython_EXECUTABLE=$VENV/bin/python"
