#!/bin/sh
# One process with all cores of a node. It needs no MPI.
#
#   sbatch recipes/slurm/one_node.sh RECIPE.yaml OUT [--key value ...]      in the root of the source tree
#
# In another folder, DDL_SLURM is the folder of this script.
# The job runs until the last step of the run: it is stopped before its time limit, requeued, and resumed.
#SBATCH --job-name=ddl
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=64
#SBATCH --time=12:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
# 120 s must suffice for a step, a checkpoint, and the samples or task scores that may be due.
set -eu
. "${DDL_SLURM:-recipes/slurm}/requeue.sh"
recipe=$1
out=$2
shift 2
# shellcheck disable=SC2046 # an option or nothing
run_step "$out" srun --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    ddl train "$recipe" --out "$out" --threads "$SLURM_CPUS_PER_TASK" "$@" $(resume_option "$out")
