# shellcheck shell=sh
# What four_gpus.sh and eight_gpus.sh run, with their arguments RECIPE.yaml OUT [--key value ...].
set -eu
. "${DDL_SLURM:-recipes/slurm}/requeue.sh"
recipe=$1
out=$2
shift 2
# DDL_EXCHANGE=device: an error, not a slower exchange through host memory, where NCCL is missing. Open MPI needs --mpi=pmix,
# MPICH --mpi=pmi2.
export DDL_EXCHANGE="${DDL_EXCHANGE-device}"
# shellcheck disable=SC2046 # an option or nothing
run_step "$out" srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    ddl train "$recipe" --out "$out" --backend cuda --threads "$SLURM_CPUS_PER_TASK" "$@" $(resume_option "$out")
