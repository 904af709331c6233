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
    "$root/tools/test.py" "$config" "$checkpoint" --launcher pytorch "$@"
