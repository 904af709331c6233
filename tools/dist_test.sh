#!/usr/bin/env bash
# Evaluate a checkpoint with several processes on this machine, or on each of several:
#
#     tools/dist_test.sh CONFIG CHECKPOINT GPUS [ARGUMENTS OF tools/test.py …]
#
# NNODES, NODE_RANK, MASTER_ADDR and PORT are those of tools/dist_train.sh.
set -euo pipefail

if [ $# -lt 3 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
config=$1 checkpoint=$2 gpus=$3
shift 3
root=$(cd "$(dirname "$0")/.." && pwd)

PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" --nproc_per_node="$gpus" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" \
    "$root/tools/test.py" "$config" "$checkpoint" --launcher pytorch "$@"
