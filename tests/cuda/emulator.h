/* An emulator of CUDA kernels, for tests without a GPU. Kernels compiled by g++ (emulator_device.h) register
 * themselves by name. A launch runs its blocks one after another and each thread of a block as a fiber, in an
 * order that a seed determines. Shared memory is filled with NaN before each block.
 *
 * A launch fails with a message: a barrier that some threads of the block do not reach, a warp operation that
 * a lane of its mask does not reach, a lane that reads from a lane outside of the mask, an address that an
 * instruction does not accept, an asynchronous copy that is never waited for, a write to shared memory up to
 * 64 bytes before or after an array, more shared memory than the device has. Built with AddressSanitizer,
 * accesses outside of global buffers (memory from malloc) and shared arrays are reported; built with
 * ThreadSanitizer, races between threads of a block and between blocks: each thread is a fiber to it, and
 * only barriers and __syncwarp synchronize. (emulator.cpp itself is never compiled with ThreadSanitizer.)
 */
#ifndef DDL_TESTS_CUDA_EMULATOR_H
#define DDL_TESTS_CUDA_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emulator_launch {
    const char *kernel;
    unsigned grid[3], block[3];
    size_t shared;         /* bytes of dynamic shared memory */
    size_t most_shared;    /* that a block may have, dynamic and static */
    const void *arguments; /* the kernel's struct */
    uint64_t seed;         /* of the order of threads and blocks */
};

/* The size of a kernel's arguments; 0: no such kernel. */
size_t emulator_kernel(const char *name);

/* Runs a kernel. False on failure, with what happened in message[0 .. size). One launch at a time. */
bool emulator_run(const struct emulator_launch *launch, char *message, size_t size);

/* Called after each block, where the program defines it. */
void emulator_block_ended(void);

#ifdef __cplusplus
}
#endif

#endif
