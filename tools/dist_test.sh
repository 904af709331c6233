#!/usr/bin/env bash
# Evaluate a checkpoint with several processes on this machine, or on each of several:
#
#     tools/dist_test.sh CONFIG CHECKPOINT GPUS [ARGUMENTS OF tools/test.py …]
#
# NNODES, NODE_RANK, MASTER_ADDR, PORT and MAX_RESTARTS are as in tools/dist_train.sh.
set -euo pipefail

if [ $# -lt 3 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
config=$1 checkpoint=$2 gpus=$3
shift 3
root=$(cd "$(dirname "$0")/.." && pwd)
command=("$root/tools/test.py" "$config" "$checkpoint" --launcher pytorch "$@")
. "$root/tools/torchrun.sh"
