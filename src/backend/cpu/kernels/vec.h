/* Vectors of floats, for what a compiler does not vectorize well by itself: the state (d, c), where the c
 * channels of a feature are contiguous. V features of c channels fill c vectors ("parts"): `spread` repeats
 * the V numbers of a feature vector over the channels, `fold` sums over them. Only this file defines the
 * width V. */
#ifndef DDL_BACKEND_CPU_VEC_H
#define DDL_BACKEND_CPU_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__)
enum { V = 16 };
#define LOW_TWICE 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7
#define HIGH_TWICE 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define ALL_LANES -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1
#elif defined(__AVX2__)
enum { V = 8 };
#define LOW_TWICE 0, 0, 1, 1, 2, 2, 3, 3
#define HIGH_TWICE 4, 4, 5, 5, 6, 6, 7, 7
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#define ALL_LANES -1, -1, -1, -1, -1, -1, -1, -1
#else
enum { V = 4 };
#define LOW_TWICE 0, 0, 1, 1
#define HIGH_TWICE 2, 2, 3, 3
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#define ALL_LANES -1, -1, -1, -1
#endif

typedef float vec __attribute__((vector_size(4 * V)));
typedef int vec_mask __attribute__((vector_size(4 * V)));
typedef int vec_int __attribute__((vector_size(4 * V)));
typedef float vec_anywhere __attribute__((vector_size(4 * V), aligned(4), may_alias));
typedef float vec_bytes __attribute__((vector_size(4 * V), aligned(1), may_alias));
typedef int vec_int_anywhere __attribute__((vector_size(4 * V), aligned(1), may_alias));

enum { MAX_PARTS = 8 }; /* channels that have the vector path: 1, 2, 4, 8 */

INLINE vec load(const float *x)
{
    return *(const vec_anywhere *)x;
}

/* The bytes of a vector from any address: pairs of bfloat16 are aligned to 2. */
INLINE vec load_bytes(const void *x)
{
    return *(const vec_bytes *)x;
}

/* The first `bytes` bytes of a vector, fewer than it has, and zeros. */
INLINE vec load_first(const void *x, size_t bytes)
{
#if defined(__AVX512F__)
    return (vec)_mm512_maskz_loadu_epi8(((__mmask64)1 << bytes) - 1, x);
#else
    float lanes[V] = { 0 };
    __builtin_memcpy(lanes, x, bytes);
    return load(lanes);
#endif
}

/* Numbers [i, i + V) of a row, or those before `end` and zeros. */
INLINE vec load_within(const float *x, size_t i, size_t end)
{
    return i + V <= end ? load(x + i) : load_first(x + i, (end - i) * sizeof *x);
}

/* Prefetch distance in rows, where rows are not contiguous (keys and values of attention). */
enum { ROWS_AHEAD = 8 };

/* Prefetches the cache lines of `bytes` bytes, `ahead` bytes after b: hardware prefetchers stop at 4 KiB
 * pages.
 */
INLINE void prefetch(const void *b, size_t ahead, size_t bytes)
{
    enum { CACHE_LINE = 64, LOCALITY = 2 };
    for (size_t line = 0; line < bytes; line += CACHE_LINE)
        __builtin_prefetch((const void *)((uintptr_t)b + ahead + line), 0, LOCALITY);
}

/* V numbers in bfloat16, as floats. Compilers widen vectors lane by lane, so the instructions are named. */
INLINE vec load_bf16(const uint16_t *x)
{
#if defined(__AVX512F__)
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16);
#elif defined(__AVX2__)
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x)), 16);
#else
    uint32_t lanes[V];
    for (size_t i = 0; i < V; i++)
        lanes[i] = (uint32_t)x[i] << 16;
    return load((const float *)(const void *)lanes);
#endif
}

#if defined(__AVX512BF16__)
#define HAVE_DOT_BF16
/* sum + a_0 b_0 + a_1 b_1 in each lane, for pairs of bfloat16 numbers; subnormal numbers count as 0. */
INLINE vec dot_bf16(vec sum, vec a, vec b)
{
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#else
INLINE vec dot_bf16(vec sum, vec a, vec b) /* for code that is compiled but not reached */
{
    (void)a, (void)b;
    return sum;
}
#endif

INLINE void store(float *x, vec a)
{
    *(vec_anywhere *)x = a;
}

INLINE vec splat(float x)
{
    return x - (vec){ 0 };
}

/* The larger, or the smaller number in each lane; b's where one is NaN. */
INLINE vec larger(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    vec_mask above = (vec_mask)(a > b);
    return (vec)(((vec_mask)a & above) | ((vec_mask)b & ~above));
#endif
}

INLINE vec smaller(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
    vec_mask below = (vec_mask)(a < b);
    return (vec)(((vec_mask)a & below) | ((vec_mask)b & ~below));
#endif
}

/* The first n lanes, and zeros. */
INLINE vec first_lanes(vec a, size_t n)
{
    static const int32_t lanes[2 * V] = { ALL_LANES };
    return (vec)((vec_int)a & *(const vec_int_anywhere *)(lanes + V - n));
}

/* The first n lanes to x. */
INLINE void store_first(float *x, vec a, size_t n)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(x, (__mmask16)((1u << n) - 1), (__m512)a);
#else
    float lanes[V];
    store(lanes, a);
    for (size_t i = 0; i < n; i++)
        x[i] = lanes[i];
#endif
}

/* V lanes of four bytes each, or whole numbers. */
INLINE vec_int load_ints(const void *x)
{
    return *(const vec_int_anywhere *)x;
}

INLINE vec_int splat_ints(int x)
{
    return x - (vec_int){ 0 };
}

INLINE vec to_floats(vec_int a)
{
    return __builtin_convertvector(a, vec);
}

#if defined(__AVX512VNNI__)
#define HAVE_DOT_BYTES
/* Whole numbers, ties to even. */
INLINE vec_int nearest(vec x)
{
    return (vec_int)_mm512_cvtps_epi32((__m512)x);
}

/* The last byte of each lane. */
INLINE void store_bytes(int8_t *to, vec_int a)
{
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)a));
}

INLINE int int_sum(vec_int a)
{
    return _mm512_reduce_add_epi32((__m512i)a);
}

/* Four bytes in every lane. */
INLINE vec_int splat_bytes(const int8_t *x)
{
    int four;
    __builtin_memcpy(&four, x, sizeof four);
    return splat_ints(four);
}

/* sum + u_0 x_0 + ... + u_3 x_3 in each lane: u's bytes are numbers from 0 to 255, x's from -128 to 127. */
INLINE vec_int dot_bytes(vec_int sum, vec_int u, vec_int x)
{
    return (vec_int)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)u, (__m512i)x);
}
#endif

INLINE vec low_twice(vec a)
{
    return __builtin_shufflevector(a, a, LOW_TWICE);
}

INLINE vec high_twice(vec a)
{
    return __builtin_shufflevector(a, a, HIGH_TWICE);
}

/* (a0 + a1, a2 + a3, ..., b0 + b1, ...) */
INLINE vec pair_sums(vec a, vec b)
{
    return __builtin_shufflevector(a, b, EVEN) + __builtin_shufflevector(a, b, ODD);
}

/* Sums of pairs, then sums of those, and so on. */
INLINE float lane_sum(vec a)
{
    for (size_t lanes = V; lanes > 1; lanes /= 2)
        a = pair_sums(a, a);
    return a[0];
}

/* Halves n vectors to n / 2, at least one: pairs of lanes are summed. */
INLINE size_t halve(vec *a, const size_t n)
{
    if (n == 1)
        a[0] = pair_sums(a[0], a[0]);
    for (size_t i = 0; i + 1 < n; i += 2)
        a[i / 2] = pair_sums(a[i], a[i + 1]);
    return n > 1 ? n / 2 : 1;
}

/* Lane i = lane_sum(a[i]) to the bit, for n <= V vectors, a power of two (a constant); a is overwritten. */
INLINE vec lane_sums(vec *a, const size_t n)
{
    size_t left = halve(a, n);
    left = halve(a, left);
    if (V >= 8)
        left = halve(a, left);
    if (V >= 16)
        left = halve(a, left);
    (void)left;
    return a[0];
}

INLINE void spread_4(vec q, vec *out)
{
    vec low = low_twice(q), high = high_twice(q);
    out[0] = low_twice(low), out[1] = high_twice(low);
    out[2] = low_twice(high), out[3] = high_twice(high);
}

/* out[part] lane l = q[(part V + l) / c] */
INLINE void spread(vec q, vec *out, const size_t c)
{
    if (c == 1) {
        out[0] = q;
    } else if (c == 2) {
        out[0] = low_twice(q), out[1] = high_twice(q);
    } else if (c == 4) {
        spread_4(q, out);
    } else {
        spread_4(low_twice(q), out);
        spread_4(high_twice(q), out + 4);
    }
}

INLINE vec fold_4(const vec *part)
{
    return pair_sums(pair_sums(part[0], part[1]), pair_sums(part[2], part[3]));
}

/* lane i = sum of the c channels of feature i */
INLINE vec fold(const vec *part, const size_t c)
{
    if (c == 1)
        return part[0];
    if (c == 2)
        return pair_sums(part[0], part[1]);
    return c == 4 ? fold_4(part) : pair_sums(fold_4(part), fold_4(part + 4));
}

/* sum[j] += the lanes of channel j */
INLINE void add_channels(const vec *part, double *sum, const size_t c)
{
    float lanes[MAX_PARTS * V];
    size_t parts =
        c < V ? 1 : c / V; /* where a vector holds whole features, all parts have the same layout */
    for (size_t p = 0; p < parts; p++) {
        vec total = part[p];
        for (size_t same = p + parts; same < c; same += parts)
            total += part[same];
        store(lanes + p * V, total);
    }
    for (size_t l = 0; l < parts * V; l++)
        sum[l % c] += (double)lanes[l];
}

/* lane l of part p = x[channel of that lane] */
INLINE void from_channels(const double *x, vec *part, const size_t c)
{
    float lanes[MAX_PARTS * V];
    size_t parts = c < V ? 1 : c / V;
    for (size_t l = 0; l < parts * V; l++)
        lanes[l] = (float)x[l % c];
    for (size_t p = 0; p < c; p++)
        part[p] = load(lanes + p % parts * V);
}

/* x . y with enough lanes that additions do not wait for each other */
INLINE float dot(size_t n, const float *x, const float *y)
{
    vec s0 = { 0 }, s1 = { 0 }, s2 = { 0 }, s3 = { 0 };
    size_t i = 0;
    for (; i + 4 * V <= n; i += 4 * V) {
        s0 += load(x + i) * load(y + i);
        s1 += load(x + i + V) * load(y + i + V);
        s2 += load(x + i + 2 * V) * load(y + i + 2 * V);
        s3 += load(x + i + 3 * V) * load(y + i + 3 * V);
    }
    for (; i + V <= n; i += V)
        s0 += load(x + i) * load(y + i);
    float sum = lane_sum((s0 + s1) + (s2 + s3));
    for (; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* The largest of n numbers, NaNs left out; -infinity for none. */
INLINE float largest(size_t n, const float *x)
{
    vec best = splat(-__builtin_inff());
    float top;
    size_t i = 0;
    for (; i + V <= n; i += V)
        best = larger(load(x + i), best);
    for (size_t lanes = V; lanes > 1; lanes /= 2)
        best = larger(__builtin_shufflevector(best, best, EVEN), __builtin_shufflevector(best, best, ODD));
    top = best[0];
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

/* y += a x */
INLINE void add_scaled(size_t n, float a, const float *x, float *y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* Calls f(..., c, true) with c a constant where the channels have the vector path, else f(..., c, false). */
#define BY_CHANNELS(channels, f, ...)                                                                        \
    do {                                                                                                     \
        if ((channels) == 1)                                                                                 \
            f(__VA_ARGS__, 1, true);                                                                         \
        else if ((channels) == 2)                                                                            \
            f(__VA_ARGS__, 2, true);                                                                         \
        else if ((channels) == 4)                                                                            \
            f(__VA_ARGS__, 4, true);                                                                         \
        else if ((channels) == 8)                                                                            \
            f(__VA_ARGS__, 8, true);                                                                         \
        else                                                                                                 \
            f(__VA_ARGS__, (channels), false);                                                               \
    } while (0)

/* Features of a row that the vector path takes; the rest go one by one. */
INLINE size_t vector_features(size_t d, bool fast)
{
    return fast ? d / V * V : 0;
}

#endif
