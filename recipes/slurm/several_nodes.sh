#!/bin/sh
# One rank per node, connected by MPI (package ddl-mpi; docs/from-torchrun.md).
#
#   sbatch recipes/slurm/several_nodes.sh RECIPE.yaml OUT [--key value ...]      in the root of the source tree
#
# In another folder, DDL_SLURM is the folder of this script.
# The sequences of a step (global_batch) are divided among the ranks, so --nodes can change between two jobs of a run.
# OUT must be on a shared file system, because every rank reads it when the run is resumed. On nodes with
# several sockets, one rank per socket (--ntasks-per-node=2 and half of the cores) uses the memory better.
#SBATCH --job-name=ddl
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
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
# Open MPI needs --mpi=pmix, MPICH --mpi=pmi2. With several networks, select one for TCP:
# export OMPI_MCA_btl_tcp_if_include=192.168.0.0/16
# shellcheck disable=SC2046 # an option or nothing
run_step "$out" srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    ddl train "$recipe" --out "$out" --threads "$SLURM_CPUS_PER_TASK" "$@" $(resume_option "$out")
