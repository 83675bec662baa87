/* Copies and conversions. Threads loop over the numbers of a grid's stride. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vectors.cuh"

/* Where number i of the numbers of all matrices is. */
template <class Args> __device__ inline void place(const Args &a, size_t i, size_t *src, size_t *dst)
{
    const size_t row = i / a.width, column = i - row * a.width;
    const size_t matrix = row / a.rows, in_matrix = row - matrix * a.rows;
    *src = matrix * a.src_batch + in_matrix * a.src_stride + column;
    *dst = matrix * a.dst_batch + in_matrix * a.dst_stride + column;
}

/* Whether rows and matrices begin at multiples of four numbers. */
template <class Args> __device__ inline bool in_fours(const Args &a)
{
    return ((a.width | a.src_stride | a.dst_stride | (a.batch > 1 ? a.src_batch | a.dst_batch : 0)) & 3) == 0;
}

template <class Args> __device__ inline size_t numbers(const Args &a)
{
    return (a.batch ? a.batch : 1) * a.rows * a.width;
}

/* Four: a type of the size of four T. */
template <class Four, class T>
__device__ inline void copy_numbers(const struct copy_args &a, const T *from, T *to)
{
    const size_t n = numbers(a),
                 address = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
    const size_t each = in_fours(a) && address % sizeof(Four) == 0 ? 4 : 1;
    size_t src, dst;
    for (size_t i = each * GRID_FIRST; i < n; i += each * GRID_STRIDE) {
        place(a, i, &src, &dst);
        if (each == 4)
            *reinterpret_cast<Four *>(to + dst) = *reinterpret_cast<const Four *>(from + src);
        else
            to[dst] = from[src];
    }
}

KERNEL(copy, 256, struct copy_args)
{
    if (a.dst16)
        copy_numbers<uint2>(a, a.src16, a.dst16);
    else
        copy_numbers<float4>(a, a.src, a.dst);
}

/* Source and destination overlap, the destination begins first: block b copies matrices b, b + grid, ..., in
 * ascending order, and reads numbers before it writes the places that they may be in. */
template <class T> __device__ inline void copy_ascending(const struct copy_args &a, const T *from, T *to)
{
    const size_t n = a.rows * a.width;
    for (size_t matrix = blockIdx.x; matrix < (a.batch ? a.batch : 1); matrix += gridDim.x) {
        for (size_t begin = 0; begin < n; begin += blockDim.x) {
            const size_t i = begin + threadIdx.x;
            size_t src = 0, dst = 0;
            place(a, matrix * n + i, &src, &dst);
            const T x = i < n ? from[src] : static_cast<T>(0);
            __syncthreads();
            if (i < n)
                to[dst] = x;
            __syncthreads();
        }
    }
}

KERNEL(copy_in_order, 256, struct copy_args)
{
    if (a.dst16)
        copy_ascending(a, a.src16, a.dst16);
    else
        copy_ascending(a, a.src, a.dst);
}

KERNEL(copy_bf16, 256, struct copy_bf16_args)
{
    const size_t n = numbers(a);
    size_t src, dst;
    if (in_fours(a) && aligned16(a.src) && aligned8(a.dst)) {
        for (size_t i = 4 * GRID_FIRST; i < n; i += 4 * GRID_STRIDE) {
            place(a, i, &src, &dst);
            store4_bf16(a.dst, dst, load4(a.src, src));
        }
        return;
    }
    for (size_t i = GRID_FIRST; i < n; i += GRID_STRIDE) {
        place(a, i, &src, &dst);
        a.dst[dst] = bf16_of(a.src[src]);
    }
}

KERNEL(cast_bf16, 256, struct cast_bf16_args)
{
    const size_t fours = aligned16(a.x) && aligned8(a.y) ? a.n / 4 : 0;
    for (size_t i = GRID_FIRST; i < fours; i += GRID_STRIDE)
        store4_bf16(a.y, 4 * i, load4(a.x, 4 * i));
    for (size_t i = 4 * fours + GRID_FIRST; i < a.n; i += GRID_STRIDE)
        a.y[i] = bf16_of(a.x[i]);
}

KERNEL(widen_bf16, 256, struct widen_bf16_args)
{
    const size_t fours = aligned16(a.y) && aligned8(a.x) ? a.n / 4 : 0;
    for (size_t i = GRID_FIRST; i < fours; i += GRID_STRIDE)
        store4(a.y, 4 * i, load4_bf16(a.x, 4 * i));
    for (size_t i = 4 * fours + GRID_FIRST; i < a.n; i += GRID_STRIDE)
        a.y[i] = float_of_bf16(a.x[i]);
}

KERNEL(fill, 256, struct fill_args)
{
    const size_t fours = aligned16(a.x) ? a.n / 4 : 0;
    for (size_t i = GRID_FIRST; i < fours; i += GRID_STRIDE)
        store4(a.x, 4 * i, make_float4(a.value, a.value, a.value, a.value));
    for (size_t i = 4 * fours + GRID_FIRST; i < a.n; i += GRID_STRIDE)
        a.x[i] = a.value;
}

KERNEL(gather, 256, struct gather_args)
{
    const size_t each = a.width % 4 == 0 && aligned16(a.x, a.y) ? 4 : 1, columns = a.width / each;
    for (size_t k = GRID_FIRST; k < a.N * columns; k += GRID_STRIDE) {
        const size_t n = k / columns, i = each * (k - n * columns);
        const size_t from = static_cast<size_t>(a.index[n]) * a.width + i;
        if (each == 4)
            store4(a.y, n * a.width + i, load4(a.x, from));
        else
            a.y[n * a.width + i] = a.x[from];
    }
}

KERNEL(gather_bf16, 256, struct gather_bf16_args)
{
    const size_t each = a.width % 4 == 0 && aligned16(a.y) && aligned8(a.x) ? 4 : 1, columns = a.width / each;
    for (size_t k = GRID_FIRST; k < a.N * columns; k += GRID_STRIDE) {
        const size_t n = k / columns, i = each * (k - n * columns);
        const size_t from = static_cast<size_t>(a.index[n]) * a.width + i;
        if (each == 4)
            store4(a.y, n * a.width + i, load4_bf16(a.x, from));
        else
            a.y[n * a.width + i] = float_of_bf16(a.x[from]);
    }
}
