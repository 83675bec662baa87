/* The next token of a row of logits, by one block. Sums are of integers and have no order. A limit by number
 * or by weight is found by a radix select on the logits' keys, integers that compare as they do: a histogram
 * of 11, 11 and then 10 bits. Each pass reads the row again, from the cache. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vectors.cuh"

enum { THREADS = 512, WARPS = THREADS / 32, BINS = 2048, OWN_BINS = BINS / THREADS, AHEAD = 4 };

typedef unsigned long long sum_t;

/* Sums by bin of a histogram, and where a limit is reached, in shared memory. */
struct bins {
    uint32_t low[BINS], high[BINS];
    uint32_t found; /* BINS: in no bin */
    sum_t left;     /* of the limit for that bin */
};

struct row {
    const float *z;
    size_t n;
    float top, temperature;
    sum_t *sums; /* (WARPS) shared */
    bins *histogram;
};

__device__ inline bool is_finite(float z)
{
    return fabsf(z) <= 3.402823466e38f;
}

/* 0 and -0 have the same key; that of a finite number is not 0. */
__device__ inline uint32_t key_of(float z)
{
    const uint32_t bits = __float_as_uint(z + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ inline float logit_of(uint32_t key)
{
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

__device__ inline uint32_t weight_of(const row &r, float z)
{
    return static_cast<uint32_t>(expf((z - r.top) / r.temperature) * (1 / DDL_WEIGHT_UNIT) + 0.5f);
}

/* The sum over the warp's lanes up to this one. */
__device__ inline sum_t sum_of_lanes(sum_t x)
{
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        const sum_t other = __shfl_up_sync(ALL_LANES, x, distance);
        x += threadIdx.x % 32 >= distance ? other : 0;
    }
    return x;
}

/* Where a part of the order ends: with the first `ties` ids that have this key. Key 0: nowhere. */
struct end_t {
    uint32_t key;
    sum_t ties;
};

/* Adds in 64 bits, with atomics of 32 bits, which shared memory has instructions for. */
__device__ inline void add_to_bin(bins *h, uint32_t bin, uint32_t x)
{
    if (x > 0 && atomicAdd(&h->low[bin], x) + x < x)
        atomicAdd(&h->high[bin], 1u);
}

/* Adds the ids whose keys have the upper bits `prefix` (those from bit shift + bits on) to the histogram, by
 * the `bits` bits below, from `shift` on. */
__device__ inline void fill_bins(const row &r, bool by_weight, uint32_t prefix, int shift, int bits)
{
    for (size_t first = threadIdx.x; first < r.n; first += AHEAD * THREADS) {
        float z[AHEAD];
#pragma unroll
        for (unsigned k = 0; k < AHEAD; k++)
            z[k] = first + k * THREADS < r.n ? r.z[first + k * THREADS] : -INFINITY;
#pragma unroll
        for (unsigned k = 0; k < AHEAD; k++) {
            const uint32_t upper = key_of(z[k]) >> shift;
            if (is_finite(z[k]) && upper >> bits == prefix)
                add_to_bin(r.histogram, upper & ((1u << bits) - 1), by_weight ? weight_of(r, z[k]) : 1);
        }
    }
}

/* The bin in which the sum from the last bin on reaches the limit. Each thread has OWN_BINS bins, the first
 * thread the last ones. */
__device__ inline void find_bin(const row &r, sum_t limit)
{
    bins *h = r.histogram;
    const unsigned last = BINS - 1 - OWN_BINS * threadIdx.x;
    sum_t own[OWN_BINS], mine = 0;
    for (unsigned k = 0; k < OWN_BINS; k++) {
        own[k] = static_cast<sum_t>(h->high[last - k]) << 32 | h->low[last - k];
        mine += own[k];
    }
    const sum_t sum = sum_of_lanes(mine);
    if (threadIdx.x % 32 == 31)
        r.sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum_t before = sum - mine;
    for (unsigned warp = 0; warp < threadIdx.x / 32; warp++)
        before += r.sums[warp];
    for (unsigned k = 0; k < OWN_BINS; k++) {
        if (before < limit && before + own[k] >= limit) { /* in one bin of one thread */
            h->found = last - k;
            h->left = limit - before;
        }
        before += own[k];
    }
    __syncthreads();
}

/* Where the likeliest ids reach the limit (1 or more): in number, or in weight. */
__device__ inline end_t find_end(const row &r, bool by_weight, sum_t limit)
{
    bins *h = r.histogram;
    uint32_t key = 0; /* its bits so far */
    int shift = 32;
    while (shift > 0) {
        const int bits = shift == 10 ? 10 : 11;
        shift -= bits;
        __syncthreads(); /* the histogram may still be read */
        for (unsigned i = threadIdx.x; i < BINS; i += THREADS)
            h->low[i] = h->high[i] = 0;
        if (threadIdx.x == 0)
            h->found = BINS;
        __syncthreads();
        fill_bins(r, by_weight, key, shift, bits);
        __syncthreads();
        find_bin(r, limit);
        if (h->found == BINS) /* all ids together have less */
            return { 0, 0 };
        key = key << bits | h->found;
        limit = h->left;
    }
    const sum_t each = by_weight ? weight_of(r, logit_of(key)) : 1;
    return { key, (limit + each - 1) / each };
}

/* Weights of the ids that a warp has: ids [first, first + n) of the row. */
struct share {
    size_t first, n;
    sum_t ties;   /* of the end that warps before it have */
    sum_t before; /* weight that warps before it have */
};

/* This lane's logits of the warp's AHEAD groups of 32 from `i` on, -INFINITY past the end. */
__device__ inline void load_lane(float z[AHEAD], const row &r, const share &s, size_t i)
{
#pragma unroll
    for (unsigned k = 0; k < AHEAD; k++, i += 32)
        z[k] = i + threadIdx.x % 32 < s.n ? r.z[s.first + i + threadIdx.x % 32] : -INFINITY;
}

/* The weight of this lane's id, which has the logit z, in a group of 32, 0 where it is not before the end or
 * below `least`; `ties` so far, which all lanes have. */
__device__ inline uint32_t lane_weight(const row &r, float z, end_t end, uint32_t least, sum_t *ties)
{
    const unsigned lane = threadIdx.x % 32;
    const uint32_t key = is_finite(z) ? key_of(z) : 0;
    const unsigned tied = __ballot_sync(ALL_LANES, key == end.key && key != 0);
    const unsigned before = static_cast<unsigned>(__popc(tied & ((1u << lane) - 1)));
    const bool kept = key > end.key || (key != 0 && key == end.key && *ties + before < end.ties);
    *ties += static_cast<unsigned>(__popc(tied));
    const uint32_t weight = kept ? weight_of(r, z) : 0;
    return weight < least ? 0 : weight;
}

/* Divides the row between the warps; the total weight. */
__device__ inline sum_t divide(const row &r, end_t end, uint32_t least, share *s)
{
    const unsigned warp = threadIdx.x / 32;
    const size_t each = ((r.n + WARPS - 1) / WARPS + 31) / 32 * 32;
    s->first = warp * each < r.n ? warp * each : r.n;
    s->n = r.n - s->first < each ? r.n - s->first : each;
    sum_t mine = 0, total = 0;
    s->ties = s->before = 0;
    if (end.key) {
        for (size_t i = threadIdx.x % 32; i < s->n; i += 32)
            mine += is_finite(r.z[s->first + i]) && key_of(r.z[s->first + i]) == end.key;
        mine = warp_sum(mine);
        __syncthreads();
        if (threadIdx.x % 32 == 0)
            r.sums[warp] = mine;
        __syncthreads();
        for (unsigned w = 0; w < warp; w++)
            s->ties += r.sums[w];
    }
    sum_t ties = s->ties;
    mine = 0;
    for (size_t i = 0; i < s->n; i += 32 * AHEAD) {
        float z[AHEAD];
        load_lane(z, r, *s, i);
#pragma unroll
        for (unsigned k = 0; k < AHEAD; k++)
            mine += lane_weight(r, z[k], end, least, &ties);
    }
    mine = warp_sum(mine);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        r.sums[warp] = mine;
    __syncthreads();
    for (unsigned w = 0; w < WARPS; w++) {
        s->before += w < warp ? r.sums[w] : 0;
        total += r.sums[w];
    }
    __syncthreads();
    return total;
}

/* The warp in whose share the sum exceeds the threshold writes that id. */
__device__ inline void pick(const row &r, end_t end, uint32_t least, const share &s, sum_t threshold,
                            int32_t *id)
{
    sum_t ties = s.ties, before = s.before;
    for (size_t i = 0; i < s.n && before <= threshold; i += 32 * AHEAD) {
        float z[AHEAD];
        load_lane(z, r, s, i);
#pragma unroll
        for (unsigned k = 0; k < AHEAD; k++) {
            const sum_t weight = lane_weight(r, z[k], end, least, &ties);
            const sum_t sum = sum_of_lanes(weight);
            if (before + sum > threshold && before + sum - weight <= threshold)
                *id = static_cast<int32_t>(s.first + i + 32 * k + threadIdx.x % 32);
            before += __shfl_sync(ALL_LANES, sum, 31);
        }
    }
}

__device__ inline void choose_of(const row &r, const choose_args &a, size_t n)
{
    const size_t top_k = static_cast<size_t>(a.top_k[n]);
    const double top_p = a.top_p[n];
    end_t end = { 0, 0 };
    share s;
    if (top_k > 0 && top_k < r.n)
        end = find_end(r, false, top_k);
    if (top_p < 1) {
        const double limit = ceil(top_p * static_cast<double>(divide(r, end, 0, &s)));
        end = find_end(r, true, limit < 1 ? 1 : static_cast<sum_t>(limit));
    }
    const uint32_t least = static_cast<uint32_t>(ceilf(a.min_p[n] * (1 / DDL_WEIGHT_UNIT)));
    const sum_t total = divide(r, end, least, &s);
    const sum_t threshold = static_cast<sum_t>(a.u[n] * static_cast<double>(total));
    pick(r, end, least, s, threshold < total ? threshold : total - 1, &a.id[n]);
}

/* The likeliest id with a finite logit, -1 if there is none. */
__device__ inline int32_t likeliest_of(const float *z, size_t n, sum_t *shared)
{
    sum_t best = 0;
    for (size_t i = threadIdx.x; i < n; i += THREADS) {
        const sum_t place = static_cast<sum_t>(key_of(z[i])) << 32 | ~static_cast<uint32_t>(i);
        best = is_finite(z[i]) && place > best ? place : best;
    }
    for (int bits = 16; bits > 0; bits /= 2) {
        const sum_t other = __shfl_xor_sync(ALL_LANES, best, bits);
        best = other > best ? other : best;
    }
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = best;
    __syncthreads();
    for (unsigned warp = 0; warp < WARPS; warp++)
        best = shared[warp] > best ? shared[warp] : best;
    __syncthreads();
    return best ? static_cast<int32_t>(~static_cast<uint32_t>(best)) : -1;
}

KERNEL(choose, 512, struct choose_args)
{
    SHARED(sum_t, sums, WARPS);
    SHARED(bins, histogram, 1);
    for (size_t n = blockIdx.x; n < a.N; n += gridDim.x) {
        float *z = a.z + n * a.V;
        const float temperature = a.temperature[n];
        for (size_t i = n * a.changes + threadIdx.x; i < (n + 1) * a.changes; i += THREADS) {
            const int32_t id = a.changed[i];
            const float old = id < 0 ? 0 : z[id];
            a.before[i] = old;
            if (id >= 0)
                z[id] = (old > 0 ? old / a.repeat[i] : old * a.repeat[i]) + a.shift[i];
        }
        __syncthreads();
        if (temperature >= 0) {
            const int32_t best = likeliest_of(z, a.n, sums);
            if (best < 0 || temperature == 0 || a.top_k[n] == 1) {
                if (threadIdx.x == 0)
                    a.id[n] = best;
            } else {
                choose_of({ z, a.n, z[best], temperature, sums, histogram }, a, n);
            }
        }
        __syncthreads();
        for (size_t i = n * a.changes + threadIdx.x; i < (n + 1) * a.changes; i += THREADS) {
            if (a.changed[i] >= 0)
                z[a.changed[i]] = a.before[i];
        }
    }
}
