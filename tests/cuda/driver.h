/* What the stand-in for the CUDA driver offers other libraries of the simulated device: commands in the order
 * of its streams, on its memory. */
#ifndef DDL_TESTS_CUDA_DRIVER_H
#define DDL_TESTS_CUDA_DRIVER_H

#include "backend/cuda/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Submits a command, `name` in messages, with a copy of its arguments. */
CUresult cuda_sim_submit(CUstream stream, const char *name, void (*execute)(const void *arguments),
                         const void *arguments, size_t bytes);

/* Submits a command that returns CUDA_ERROR_NOT_READY, having done nothing, while it waits for another
 * process. */
CUresult cuda_sim_submit_until(CUstream stream, const char *name, CUresult (*execute)(void *user),
                               void *user);
/* Executes a random part of what is submitted, as far as it waits for nothing. */
void cuda_sim_progress(CUstream stream);

/* The device of the current context, of a stream, of a block with these bytes; -1: none. */
int cuda_sim_device(void);
int cuda_sim_stream_device(CUstream stream);
int cuda_sim_block_device(const void *address, size_t bytes);

/* Whether the numbers are in one block of device memory. */
bool cuda_sim_in_block(const void *address, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
