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

/* Whether the numbers are in one block of device memory. */
bool cuda_sim_in_block(const void *address, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
