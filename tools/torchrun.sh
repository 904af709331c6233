# Shared by dist_train.sh and dist_test.sh, which source it: start the command in ${command[@]} in $gpus processes.
# shellcheck shell=bash disable=SC2154
port=${PORT:-29500}

# torchrun would report it in a long traceback.
if [ "${NODE_RANK:-0}" = 0 ] && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "error: the port $port is taken, perhaps by another training: choose another one, PORT=$((port + 1)) $0 …" >&2
    exit 1
fi

PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" --nproc_per_node="$gpus" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="$port" \
    --max_restarts="${MAX_RESTARTS:-0}" \
    "${command[@]}"
