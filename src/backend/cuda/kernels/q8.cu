/* 8-bit matrices: quantization, and rows in float32. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/q8.cuh"
#include "backend/cuda/kernels/vectors.cuh"

enum { THREADS = 256 };

/* A warp quantizes a group of a row, a number a lane. */
KERNEL(quantize_q8, 256, struct quantize_q8_args)
{
    const size_t groups = q8_groups(a.width);
    const unsigned lane = threadIdx.x % 32;
    struct ddl_q8 *const W = static_cast<struct ddl_q8 *>(a.W);
    for (size_t g = GRID_FIRST / 32; g < a.rows * groups; g += GRID_STRIDE / 32) {
        const size_t i = g / groups, group = g - i * groups, k = group * DDL_GROUP + lane, row = a.first + i;
        const float x = k < a.width ? a.x[i * a.width + k] : 0;
        const bool finite = __all_sync(ALL_LANES, isfinite(x));
        float largest = fabsf(x);
        for (int bits = 16; bits > 0; bits /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, bits));
        const float scale = finite ? largest / 127.0f : __uint_as_float(0x7fc00000u);
        struct ddl_q8 *const tile = W + row / DDL_Q8_ROWS * groups + group;
        /* A scale below the smallest normal number loses digits: values out of range are clamped. */
        const float q = k < a.width && scale > 0 ? rintf(x / scale) : 0;
        tile->q[lane / 4][row % DDL_Q8_ROWS][lane % 4] = static_cast<int8_t>(fmaxf(-127, fminf(127, q)));
        if (lane == 0)
            tile->scale[row % DDL_Q8_ROWS] = scale;
    }
}

/* Row y = that row of W, a word of four numbers a thread. */
__device__ inline void read_word(const struct ddl_q8 *W, size_t row, size_t width, size_t quad, float *y)
{
    const size_t groups = q8_groups(width);
    const struct ddl_q8 *tile = W + row / DDL_Q8_ROWS * groups + quad / (DDL_GROUP / 4);
    const float scale = tile->scale[row % DDL_Q8_ROWS];
    const uint32_t word =
        *reinterpret_cast<const uint32_t *>(tile->q[quad % (DDL_GROUP / 4)][row % DDL_Q8_ROWS]);
    const bool fast = width % 4 == 0 && aligned16(y);
    store_row4(y, 4 * quad, width, fast,
               make_float4(scale * q8_number(word, 0), scale * q8_number(word, 1), scale * q8_number(word, 2),
                           scale * q8_number(word, 3)));
}

KERNEL(dequantize_q8, 256, struct dequantize_q8_args)
{
    const size_t quads = (a.width + 3) / 4;
    for (size_t i = GRID_FIRST; i < a.rows * quads; i += GRID_STRIDE)
        read_word(static_cast<const struct ddl_q8 *>(a.W), a.first + i / quads, a.width, i % quads,
                  a.x + i / quads * a.width);
}

KERNEL(gather_q8, 256, struct gather_q8_args)
{
    const size_t quads = (a.width + 3) / 4;
    for (size_t i = GRID_FIRST; i < a.N * quads; i += GRID_STRIDE)
        read_word(static_cast<const struct ddl_q8 *>(a.x), a.first + static_cast<size_t>(a.index[i / quads]),
                  a.width, i % quads, a.y + i / quads * a.width);
}
