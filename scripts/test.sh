#!/usr/bin/env bash
# make test: all tests, one stage after another. A stage that fails does not stop the others; the
# summary at the end names it, and the exit status is 1.
#   PHASES="c python sanitizers pythons wheel"   runs only some of them
source "$(dirname "$0")/common.sh"

phases=${PHASES:-c python sanitizers pythons wheel}
other_pythons=(3.10 3.12 3.13)
failed=()
summary=()

# stage NAME COMMAND...: runs, times and notes the result. pytest's 5 (no test there) is a failure too.
stage() {
    local name=$1 start=$SECONDS result=ok
    say "$name"
    if ! ("${@:2}"); then
        result=FAILED
        failed+=("$name")
    fi
    summary+=("$(printf '%-44s %-7s %4d s' "$name" "$result" $((SECONDS - start)))")
}

wants() { [[ " $phases " == *" $1 "* ]]; }

# ThreadSanitizer needs the old address-space layout on newer kernels; where the container forbids
# to ask for it, it has to work without.
fixed_layout=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
    fixed_layout=(setarch "$(uname -m)" -R)
fi

c_tests() { # PRESET IO [CTEST OPTIONS...]
    DTORCH_IO=$2 "${fixed_layout[@]}" ctest --preset "$1" -j 2 --no-tests=error "${@:3}"
}

# Kernels and metadata never see the I/O backend: only what runs on the scheduler is run twice here.
sanitized() { # PRESET
    local scheduled='sched|starve|controller|runtime|dispatch|graph|pool|_io$|ring|epoll|file|task|future'
    cmake_build "$1" "-DPython_EXECUTABLE=$VENV/bin/python" || return 1
    c_tests "$1" uring || return 1
    c_tests "$1" epoll -R "$scheduled"
}

# Files about numbers, rules of sharding and sources: what they find does not depend on the I/O
# backend, which only wakes who waits. All others, also new ones, run on both.
backendless=(test_{layers,ops_torch,redistribute,stubs,tidy}.py
    test_shard_{ew,index,products,random,reduce,view}.py test_sharding_truth.py)

python_tests() { # IO [PYTEST OPTIONS...]
    DTORCH_IO=$1 "$VENV/bin/python" -m pytest -q "${@:2}"
}

# The tests that need no torch, on another Python: an extension of its own in python/dtorch.
other_python() { # VERSION BASE
    local venv=$ROOT/.venvs/py$1 dir=build/py$1
    scripts/venv.sh "$venv" "$2" test || return 1
    cmake -S . -B "$dir" -G Ninja -DDT_INPLACE=ON "-DPython_EXECUTABLE=$venv/bin/python" \
        >"$dir.log" 2>&1 || { cat "$dir.log" >&2 && return 1; }
    cmake --build "$dir" || return 1
    "$venv/bin/python" -m pytest -q -m notorch
}

# What a user of `pip install .` gets: built in isolation, used without the tree's python/.
wheel() { # BASE
    local venv=$ROOT/.venvs/wheel
    scripts/venv.sh "$venv" "$1" test || return 1
    rm -f "$venv"/lib/python*/site-packages/dtorch-tree.pth
    "$venv/bin/python" -m pip install -qq --force-reinstall . || return 1
    "$venv/bin/python" -c 'import dtorch; assert "site-packages" in dtorch.__file__' || return 1
    "$venv/bin/python" -m pytest -q -m notorch
}

scripts/build.sh torch test demo model
base=$("$VENV/bin/python" -c 'import sys; print(sys._base_executable)')

if wants c; then
    stage "C tests, uring" c_tests release uring
    stage "C tests, epoll" c_tests release epoll -E '^sim' # which knows neither
fi
if wants python; then
    stage "Python tests, uring" python_tests uring
    stage "Python tests, epoll" python_tests epoll "${backendless[@]/#/--ignore=tests/python/}"
fi
if wants sanitizers; then
    stage "C tests under ASan and UBSan" sanitized asan
    stage "C tests under TSan" sanitized tsan
fi
if wants pythons; then
    for version in "${other_pythons[@]}"; do
        pyenv=("${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python3)
        if found=$(find_python "'%d.%d' % sys.version_info[:2] == '$version'" \
            "${pyenv[@]}" "python$version"); then
            stage "tests without torch, Python $version" other_python "$version" "$found"
        else
            say "Python $version is not here: its tests are left out"
            summary+=("$(printf '%-44s %-7s' "tests without torch, Python $version" "absent")")
        fi
    done
fi
if wants wheel; then
    stage "pip install . and tests without torch" wheel "$base"
fi

say "summary"
printf '%s\n' "${summary[@]}"
[ ${#failed[@]} -eq 0 ] || die "make test: ${#failed[@]} failed"
say "make test: all passed"
