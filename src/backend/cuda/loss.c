/* Cross-entropy, ranks of targets, and the choice of tokens. */
#include "backend/cuda/cuda.h"

CUDA_ROW_OP(cross_entropy, cross_entropy_args)
CUDA_ROW_OP(loss_tile, loss_tile_args)
CUDA_ROW_OP(loss_grad, loss_grad_args)
CUDA_ROW_OP(rank, rank_args)
CUDA_ROW_OP(likeliest, likeliest_args)
CUDA_ROW_OP(choose, choose_args)
