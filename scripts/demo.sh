#!/usr/bin/env bash
# make demo: everything the example needs, then the example. ARGS="--file my.txt" passes arguments.
source "$(dirname "$0")/common.sh"

scripts/build.sh torch demo model
# shellcheck disable=SC2086 # a list of words
exec "$VENV/bin/python" examples/embed.py ${ARGS:-}
