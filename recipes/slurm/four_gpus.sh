#!/bin/sh
# Nodes with four GPUs: one rank per GPU, connected by MPI (package ddl-mpi) and NCCL (docs/cuda.md).
#
#   sbatch recipes/slurm/four_gpus.sh RECIPE.yaml OUT [--key value ...]      in the root of the source tree
#
# In another folder, DDL_SLURM is the folder of this script.
# With --nodes=N there are 4 N ranks, among which the sequences of a step (global_batch) are divided. OUT must be on a shared
# file system if there are several nodes. Each rank sees all GPUs of its node and takes that of its local rank.
#SBATCH --job-name=ddl
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=12:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
# 120 s must suffice for a step, a checkpoint, and the samples or task scores that may be due.
. "${DDL_SLURM:-recipes/slurm}/train_on_gpus.sh"
