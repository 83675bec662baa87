/* 8-bit matrices: quantization, and rows in float32. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/q8.cuh"
#include "backend/cuda/kernels/vectors.cuh"

enum { THREADS = 256 };

/* |x|, infinite where x is not a number. */
__device__ inline float magnitude(float x)
{
    return isnan(x) ? __uint_as_float(0x7f800000u) : fabsf(x);
}

__device__ inline float largest_of(float4 x)
{
    return fmaxf(fmaxf(magnitude(x.x), magnitude(x.y)), fmaxf(magnitude(x.z), magnitude(x.w)));
}

/* x / scale as a byte. A scale below the smallest normal number loses digits: values out of range are
 * clamped. */
__device__ inline uint32_t q8_byte(float x, float scale)
{
    const float q = scale > 0 ? rintf(x / scale) : 0;
    return static_cast<uint8_t>(static_cast<int8_t>(fmaxf(-127, fminf(127, q))));
}

/* Eight lanes quantize a group of a row, four numbers each. */
KERNEL(quantize_q8, 256, struct quantize_q8_args)
{
    const size_t groups = q8_groups(a.width), all = a.rows * groups;
    const unsigned quad = threadIdx.x % 8;
    const bool fast = a.width % 4 == 0 && aligned16(a.x);
    struct ddl_q8 *const W = static_cast<struct ddl_q8 *>(a.W);
    for (size_t first = GRID_FIRST / 32 * 4; first < all; first += GRID_STRIDE / 8) { /* of the warp's four */
        const size_t g = first + threadIdx.x % 32 / 8, i = g / groups, group = g - i * groups;
        const size_t k = group * DDL_GROUP + 4 * quad, row = a.first + i;
        const bool is_inside = g < all && k < a.width;
        const float4 x = is_inside ? load_row4(a.x + i * a.width, k, a.width, fast) : splat4(0);
        float largest = largest_of(x);
        for (int bits = 4; bits > 0; bits /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, bits));
        if (g >= all)
            continue;
        const float scale = isfinite(largest) ? largest / 127.0f : __uint_as_float(0x7fc00000u);
        struct ddl_q8 *const tile = W + row / DDL_Q8_ROWS * groups + group;
        *reinterpret_cast<uint32_t *>(tile->q[quad][row % DDL_Q8_ROWS]) =
            q8_byte(x.x, scale) | q8_byte(x.y, scale) << 8 | q8_byte(x.z, scale) << 16 |
            q8_byte(x.w, scale) << 24;
        if (quad == 0)
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
