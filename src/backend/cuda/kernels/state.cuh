/* A token's state, d features of c channels: the block reads it in chunks of 4 `active` numbers, four a
 * thread. A chunk is a number of whole features, so that each of a thread's four numbers has the same channel
 * in every chunk, and sums over features need four registers for any c. */
#ifndef DDL_CUDA_STATE_CUH
#define DDL_CUDA_STATE_CUH

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/vectors.cuh"

/* Chunks of a state that a thread holds in registers; longer states are read again. */
enum { STATE_FOURS = CUDA_STATE_FOURS };

/* Sizes in 32 bits: addresses within a state take fewer registers. */
struct state_shape {
    unsigned d, c, numbers;
    unsigned active, features, chunk; /* threads that have numbers; features and numbers of a chunk */
    unsigned chunks;
    unsigned channel, feature; /* of this thread's first number, the feature within the chunk */

    __device__ state_shape(size_t d, size_t c)
        : d(static_cast<unsigned>(d)), c(static_cast<unsigned>(c)), numbers(this->d * this->c)
    {
        const unsigned unit = c % 4 == 0 ? this->c / 4 : c % 2 == 0 ? this->c / 2 : this->c;
        active = blockDim.x / unit * unit;
        chunk = 4 * active;
        features = chunk / this->c;
        chunks = (numbers + chunk - 1) / chunk;
        feature = 4 * threadIdx.x / this->c;
        channel = 4 * threadIdx.x - feature * this->c;
    }
    /* Whether four numbers can be accessed at a time in a state that is one of many. */
    __device__ bool fast(const void *x, const void *y = nullptr, const void *z = nullptr) const
    {
        return numbers % 4 == 0 && aligned16(x, y, z);
    }
    __device__ bool has(unsigned m) const
    {
        return threadIdx.x < active && m * chunk + 4 * threadIdx.x < numbers;
    }
    /* This thread's numbers of chunk m, 0 past the end. */
    __device__ float4 load(const float *x, unsigned m, bool fast) const
    {
        return has(m) ? load_row4(x, m * chunk + 4 * threadIdx.x, numbers, fast) : make_float4(0, 0, 0, 0);
    }
    __device__ void store(float *x, unsigned m, bool fast, float4 v) const
    {
        if (has(m))
            store_row4(x, m * chunk + 4 * threadIdx.x, numbers, fast, v);
    }
    /* The numbers of q (d) that belong to the features of chunk m, 0 past the end. */
    __device__ float4 of_features(const float *q, unsigned m) const
    {
        unsigned i = m * features + feature, j = channel;
        float4 v;
        v.x = i < d ? q[i] : 0;
        step(&i, &j);
        v.y = i < d ? q[i] : 0;
        step(&i, &j);
        v.z = i < d ? q[i] : 0;
        step(&i, &j);
        v.w = i < d ? q[i] : 0;
        return v;
    }
    __device__ float4 of_channels(const float *v) const
    {
        unsigned i = 0, j = channel;
        float4 x;
        x.x = v[j];
        step(&i, &j);
        x.y = v[j];
        step(&i, &j);
        x.z = v[j];
        step(&i, &j);
        x.w = v[j];
        return x;
    }

  private:
    /* To the feature and channel of the next number. */
    __device__ void step(unsigned *i, unsigned *j) const
    {
        const bool last = ++*j == c;
        *i += last;
        *j = last ? 0 : *j;
    }
};

/* A state in registers (HELD), or in memory if it is too long. */
template <bool HELD> struct state_numbers {
    const state_shape &shape;
    const float *from;
    float *to; /* where it is written */
    bool fast;
    float4 four[HELD ? STATE_FOURS : 1];

    __device__ state_numbers(const state_shape &shape, const float *from, float *to, bool fast)
        : shape(shape), from(from), to(to), fast(fast)
    {
#pragma unroll
        for (unsigned m = 0; HELD && m < STATE_FOURS; m++)
            four[m] = shape.load(from, m, fast);
    }
    __device__ float4 get(unsigned m) const
    {
        return HELD ? four[m] : shape.load(from, m, fast);
    }
    __device__ void put(unsigned m, float4 v)
    {
        if (HELD)
            four[m] = v;
        else
            shape.store(to, m, fast, v);
    }
    /* After all chunks were put. */
    __device__ void is_written()
    {
        from = to;
    }
    __device__ void finish() const
    {
#pragma unroll
        for (unsigned m = 0; HELD && m < STATE_FOURS; m++)
            shape.store(to, m, fast, four[m]);
    }
};

/* A loop over the chunks of a state, unrolled where they are in registers. */
#define EACH_CHUNK(m, HELD, shape)                                                                           \
    _Pragma("unroll") for (unsigned m = 0; m < (HELD ? static_cast<unsigned>(STATE_FOURS) : (shape).chunks); \
                           m++) if (!HELD || m < (shape).chunks)

/* Sums over features: `parts` has, kind by kind, one number of each of the active threads' four; after a
 * barrier sums[k c + j] = the sum of the numbers of kind k and channel j, to be read after another. */
__device__ inline void sum_channels(const state_shape &s, unsigned kinds, const float *parts, float *sums)
{
    const size_t lane = threadIdx.x % 32;
    for (size_t job = threadIdx.x / 32; job < kinds * s.c; job += blockDim.x / 32) {
        const size_t kind = job / s.c, channel = job - kind * s.c;
        const float *part = parts + kind * 4 * blockDim.x + channel;
        float x = 0;
        for (size_t feature = lane; feature < s.features; feature += 32)
            x += part[feature * s.c];
        x = warp_sum(x);
        if (lane == 0)
            sums[job] = x;
    }
}

/* Calls use(i, sum) for every feature i of chunk m with the sum of its c numbers v, in one of the threads.
 * `parts`: shared memory for two chunks, unused before; all threads call it for m = 0, 1, ... */
template <class Use>
__device__ inline void sum_features(const state_shape &s, unsigned m, float4 v, float *parts, Use use)
{
    const unsigned first = m * s.features;
    if (s.c == 1 || s.c == 2 || s.c == 4) {
        const unsigned i = first + s.feature;
        if (!s.has(m))
            return;
        if (s.c == 4) {
            use(i, v.x + v.y + v.z + v.w);
        } else if (s.c == 2) {
            use(i, v.x + v.y);
            if (i + 1 < s.d)
                use(i + 1, v.z + v.w);
        } else {
            const float each[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
            for (unsigned e = 0; e < 4; e++)
                if (i + e < s.d)
                    use(i + e, each[e]);
        }
        return;
    }
    float *part = parts + m % 2 * 4 * blockDim.x;
    store4(part, 4 * threadIdx.x, v);
    __syncthreads();
    for (size_t feature = threadIdx.x; feature < s.features && first + feature < s.d; feature += blockDim.x) {
        float sum = 0;
        for (size_t j = 0; j < s.c; j++)
            sum += part[feature * s.c + j];
        use(first + feature, sum);
    }
}

#endif
