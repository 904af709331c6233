#!/usr/bin/env bash
# Train as a Slurm job:
#
#     tools/slurm_train.sh PARTITION JOB_NAME CONFIG WORK_DIR [ARGUMENTS OF tools/train.py …]
#
# GPUS (8) is the total number of processes, GPUS_PER_NODE (8, at most GPUS) the number on each machine, CPUS_PER_TASK
# (5) the cores of each; SRUN_ARGS contains further arguments of srun.
set -euo pipefail

if [ $# -lt 4 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
partition=$1 job_name=$2 config=$3 work_dir=$4
shift 4
gpus=${GPUS:-8}
per_node=${GPUS_PER_NODE:-8}
per_node=$((per_node < gpus ? per_node : gpus))
root=$(cd "$(dirname "$0")/.." && pwd)

# --kill-on-bad-exit: the other processes end with the first one that fails. SRUN_ARGS is split on purpose.
# shellcheck disable=SC2086
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec srun \
    --partition="$partition" --job-name="$job_name" --gres=gpu:"$per_node" \
    --ntasks="$gpus" --ntasks-per-node="$per_node" --cpus-per-task="${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1 \
    ${SRUN_ARGS:-} \
    "${PYTHON:-python}" -u "$root/tools/train.py" "$config" --work-dir="$work_dir" --launcher=slurm "$@"
