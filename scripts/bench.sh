#!/usr/bin/env bash
# make bench: interleaved comparisons as ratios. ARGS passes arguments to bench/run.py.
source "$(dirname "$0")/common.sh"

scripts/build.sh torch bench model
# shellcheck disable=SC2086 # a list of words
exec "$VENV/bin/python" bench/run.py ${ARGS:-}
