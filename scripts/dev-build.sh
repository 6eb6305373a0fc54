#!/usr/bin/env bash
# Quick build while developing: configures build/dev once (RelWithDebInfo, Ninja) and builds.
#   scripts/dev-build.sh                  everything; the extension lands in python/dtorch
#   scripts/dev-build.sh test_shape       only this C test
#   NARROW=1 scripts/dev-build.sh test_shape
#                                         ... linked to its own layer and those below only, so that
#                                         a higher layer that does not compile is no obstacle
#   DEBUG=1 | SANITIZE=address,undefined | SANITIZE=thread   other flavours, own build folders
set -euo pipefail
cd "$(dirname "$0")/.."

dir=build/dev
options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DDT_BUILD_TESTS=ON -DDT_INPLACE=ON)
if [ -n "${DEBUG:-}" ]; then
    dir+=-debug
    options+=(-DCMAKE_BUILD_TYPE=Debug -DDT_INPLACE=OFF)
fi
if [ -n "${SANITIZE:-}" ]; then
    dir+="-${SANITIZE//,/-}"
    options+=("-DDT_SANITIZE=$SANITIZE" -DDT_DEBUG=ON -DDT_BUILD_PYTHON=OFF)
fi
if [ -n "${NARROW:-}" ]; then
    dir+=-narrow
    options+=(-DDT_TEST_NARROW=ON -DDT_INPLACE=OFF)
fi
dir=${BUILD_DIR:-$dir}
python=${PYTHON:-.venv/bin/python}
options+=("-DPython_EXECUTABLE=$(readlink -f "$(dirname "$python")")/$(basename "$python")")

mkdir -p "$dir"
exec 9>"$dir/.lock"
flock 9 # ninja has no lock of its own, and several people may build this tree at once
if [ ! -f "$dir/build.ninja" ]; then
    cmake -S . -B "$dir" -G Ninja "${options[@]}" >"$dir/configure.log" ||
        { cat "$dir/configure.log" >&2; exit 1; }
fi
cmake --build "$dir" ${1:+--target "$@"} -- -k 0 9>&-
