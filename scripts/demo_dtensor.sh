#!/usr/bin/env bash
# make demo-dtensor: the example on a mesh of simulated devices. ARGS="--mesh 4" passes arguments.
source "$(dirname "$0")/common.sh"

scripts/build.sh demo model
export DTORCH_DTENSOR_IN_SAME_DEVICE=1
# shellcheck disable=SC2086 # a list of words
exec "$VENV/bin/python" examples/embed_mesh.py ${ARGS:-}
