#!/usr/bin/env bash
# make soak: random programs beside torch, without end, on both I/O backends with one thread and two,
# random programs on meshes beside one device, and the scheduler's simulator. A part runs SOAK_ROUND
# seconds; then the next one takes its turn, JOBS at once. Ends at the first failure, whose seed and
# program are printed, or when there is enough:
#   SOAK_PROGRAMS=2000000   so many programs beside torch; those on meshes are counted apart
#   SOAK_SECONDS=600        for so long
#   SOAK_FIRST=0            the first seed; random otherwise
#   SOAK_ROUND=60  JOBS=2
source "$(dirname "$0")/common.sh"

[ -n "${SOAK_NO_BUILD:-}" ] || scripts/build.sh torch test
programs_max=${SOAK_PROGRAMS:-0} seconds_max=${SOAK_SECONDS:-0} round=${SOAK_ROUND:-60}
jobs=${JOBS:-$(nproc)}
first=${SOAK_FIRST:-$(od -An -N4 -tu4 /dev/urandom)}
stride=10000000 # seeds between two parts: more than one can run
logs=$(mktemp -d)
trap 'rm -rf "$logs"; kill $(jobs -p) 2>/dev/null || true' EXIT

# part IO THREADS SEED LOG: one process, for one round.
part() {
    DTORCH_IO=$1 "$VENV/bin/python" tests/python/programs.py --threads "$2" --first "$3" \
        --seconds "$round" --every 1000000 --journal "$4.at" >"$4" 2>&1 && return
    # A crash in C shows nothing but this.
    echo "failed: DTORCH_IO=$1 programs.py --threads $2, $(cat "$4.at" 2>/dev/null)" >>"$4"
    return 1
}

# placements SEED LOG: programs on meshes, for one round.
placements() {
    "$VENV/bin/python" tests/python/placement_programs.py --first "$1" --seconds "$round" >"$2" 2>&1
}

# simulator SEED LOG: the scheduler in the simulator, for one round.
simulator() {
    build/release/sim --from "$1" --seconds "$round" >"$2" 2>&1
}

# done_by LOG: the number of programs that a part has run.
done_by() { sed -n 's/^\([0-9,]*\) programs in .*/\1/p' "$1" | tail -n 1 | tr -d ,; }

total=0 meshes=0 number=0
while :; do
    pids=() parts=()
    for ((k = 0; k < jobs; k++)); do
        io=uring threads=$((number / 2 % 2 + 1))
        [ $((number % 2)) = 0 ] || io=epoll
        log=$logs/$number
        if [ $((number % 6)) = 5 ]; then
            placements $((first + number * stride)) "$log" &
            pids+=($!) parts+=("$log meshes")
        elif [ $((number % 6)) = 4 ]; then
            simulator $((first + number * stride)) "$log" &
            pids+=($!) parts+=("$log the simulator")
        else
            part $io $threads $((first + number * stride)) "$log" &
            pids+=($!) parts+=("$log $io, $threads threads")
        fi
        number=$((number + 1))
    done
    for k in "${!pids[@]}"; do
        log=${parts[$k]%% *}
        if ! wait "${pids[$k]}"; then
            cat "$log"
            die "make soak: a random program failed (${parts[$k]#* }), after $total programs"
        fi
        if [[ ${parts[$k]} == *simulator ]]; then
            printf '%8d s %s\n' $SECONDS "$(grep -m 1 '^sim:' "$log")"
            continue
        fi
        count=$(done_by "$log")
        if [[ ${parts[$k]} == *meshes ]]; then meshes=$((meshes + count)); else total=$((total + count)); fi
        printf '%8d s %12d programs, %d on meshes; %8d on %s\n' $SECONDS $total $meshes "$count" "${parts[$k]#* }"
        rm -f "$log" "$log.at"
    done
    if [ "$programs_max" -gt 0 ] && [ $total -ge "$programs_max" ]; then break; fi
    if [ "$seconds_max" -gt 0 ] && [ $SECONDS -ge "$seconds_max" ]; then break; fi
done
say "make soak: $total programs passed, and $meshes on meshes"
