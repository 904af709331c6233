#!/usr/bin/env bash
# Train with several processes on this machine, or on each of several:
#
#     tools/dist_train.sh CONFIG GPUS [ARGUMENTS OF tools/train.py …]
#
# GPUS is the number of processes on this machine; without GPUs they are CPU processes. On several machines, start it on
# each of them with the same NNODES, MASTER_ADDR and PORT, and with NODE_RANK from 0 to NNODES - 1. MAX_RESTARTS (0) is
# how often torchrun restarts the processes after a failure; they resume from the newest checkpoint.
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
config=$1 gpus=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
command=("$root/tools/train.py" "$config" --launcher pytorch "$@")
. "$root/tools/torchrun.sh"
