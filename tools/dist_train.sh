#!/usr/bin/env bash
# Train with several processes on this machine, or on each of several:
#
#     tools/dist_train.sh CONFIG GPUS [ARGUMENTS OF tools/train.py …]
#
# GPUS is the number of processes on this machine; without GPUs they are CPU processes. On several machines, start it on
# each of them with the same NNODES, MASTER_ADDR and PORT, and with NODE_RANK from 0 to NNODES - 1. MAX_RESTARTS (0) is
# how often torchrun starts the processes again after one has failed; they go on from the newest checkpoint.
set -euo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
config=$1 gpus=$2
shift 2
port=${PORT:-29500}
root=$(cd "$(dirname "$0")/.." && pwd)

# torchrun would say it in a long traceback.
if [ "${NODE_RANK:-0}" = 0 ] && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "error: the port $port is taken, by another training perhaps: choose another one, PORT=$((port + 1)) $0 …" >&2
    exit 1
fi

PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" --nproc_per_node="$gpus" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="$port" \
    --max_restarts="${MAX_RESTARTS:-0}" \
    "$root/tools/train.py" "$config" --launcher pytorch "$@"
