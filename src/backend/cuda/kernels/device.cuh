/* What kernels may use besides CUDA's language: declarations of kernels and shared memory, bfloat16, and
 * wrappers of the instructions that CUDA C++ has no function for. Compiled by nvcc they are the instructions
 * themselves. The tests compile the same kernels with g++, and tests/cuda/emulator_device.h implements
 * everything in this file.
 *
 *   KERNEL(name, threads, arguments) { body }   a kernel with at most `threads` threads a block and one
 * argument, the struct `a` of type `arguments`, by value; no C++ name mangling SHARED(type, name, count); an
 * array in shared memory, 16-byte aligned, uninitialized DYNAMIC_SHARED(type, name);                 the
 * shared memory whose size the launch gives, 16-byte aligned
 */
#ifndef DDL_CUDA_DEVICE_CUH
#define DDL_CUDA_DEVICE_CUH

#include <stdint.h>

#ifdef __CUDACC__

#include <cuda_bf16.h>

#define KERNEL(name, threads, arguments) KERNEL_OF_BLOCKS(name, threads, 1, arguments)

/* The same with registers for at least `blocks` blocks on a multiprocessor. */
#define KERNEL_OF_BLOCKS(name, threads, blocks, arguments)                                                   \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ arguments a)

#define SHARED(type, name, count) __shared__ __align__(16) type name[count]

#define DYNAMIC_SHARED(type, name)                                                                           \
    extern __shared__ __align__(16) unsigned char dynamic_shared_memory[];                                   \
    type *const name = reinterpret_cast<type *>(dynamic_shared_memory)

/* x rounded to bfloat16 (nearest, ties to even; NaN stays NaN), as its 16 bits. */
__device__ inline uint16_t bf16_of(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* `low` and `high` rounded to bfloat16, `low` in the lower 16 bits. */
__device__ inline uint32_t bf16_pair(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&pair);
}

/* d (16, 8) += a (16, 16) b (16, 8) by one warp, a and b in bfloat16, d in float32. Lane l holds, with g = l
 * / 4 and t = l % 4 (PTX ISA, "Matrix fragments for mma.m16n8k16"): a[0] (g, 2t), a[1] (g + 8, 2t), a[2] (g,
 * 2t + 8), a[3] (g + 8, 2t + 8), each with the next column in the upper half b[0] (2t, g), b[1] (2t + 8, g),
 * each with the next row in the upper half d[0] (g, 2t), d[1] (g, 2t + 1), d[2] (g + 8, 2t), d[3] (g + 8, 2t
 * + 1)
 */
__device__ inline void mma_bf16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Loads four 8 x 8 matrices of 16-bit elements from shared memory, by one warp: lane l passes the address of
 * row l % 8 of matrix l / 8 (16 bytes, 16-byte aligned) and receives in r[i] the elements (l / 4, 2 (l % 4))
 * and the next of matrix i. */
__device__ inline void ldmatrix_x4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
}

/* As ldmatrix_x4, of the transposed matrices: r[i] has the elements (2 (l % 4), l / 4) and (2 (l % 4) + 1, l
 * / 4). */
__device__ inline void ldmatrix_x4_transposed(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
}

/* Starts to copy 16 bytes from global to shared memory, both 16-byte aligned. They are there after
 * cp_async_wait. */
__device__ inline void cp_async_16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global)
                 : "memory");
}

/* Ends a group of this thread's copies. */
__device__ inline void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most the last `groups` groups of this thread's copies are under way. Other threads see what
 * was copied after a barrier. */
template <int groups> __device__ inline void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

#else

#include "emulator_device.h"

#define KERNEL_OF_BLOCKS(name, threads, blocks, arguments) KERNEL(name, threads, arguments)

#endif

/* The value of bfloat16 bits. */
__device__ inline float float_of_bf16(uint16_t bits)
{
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

#endif
