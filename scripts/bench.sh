#!/usr/bin/env bash
# make bench: C micro-benchmarks, then dtorch beside its peers, interleaved, as ratios.
#   QUICK=1     about a tenth of the samples, everywhere
#   PARTS="micro run compare"   which of them; all by default
#   ARGS        arguments for bench/run.py; COMPARE_ARGS for bench/compare.py
# Tables on the terminal; JSON files and pictures in build/bench/.
source "$(dirname "$0")/common.sh"

scripts/build.sh torch bench model
out=build/bench
mkdir -p "$out"
quick=${QUICK:+--quick}
status=0
for part in ${PARTS:-micro run compare}; do
    case $part in
    micro)
        for program in build/release/bench/micro_*; do
            name=$(basename "$program")
            say "$name"
            # shellcheck disable=SC2086 # nothing or a word
            "$program" $quick --json "$out/$name.json" || status=1
        done
        ;;
    run)
        say "bench/run.py"
        # shellcheck disable=SC2086 # lists of words
        "$VENV/bin/python" bench/run.py --out "$out/run.json" $quick ${ARGS:-} || status=1
        ;;
    compare)
        say "bench/compare.py"
        # shellcheck disable=SC2086
        "$VENV/bin/python" bench/compare.py --json "$out/compare.json" --plots "$out" $quick \
            ${COMPARE_ARGS:-} || status=1
        ;;
    *) die "PARTS: micro, run or compare, not $part" ;;
    esac
done
exit $status
