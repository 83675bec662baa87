/* The device side of the emulator: CUDA's language and the wrappers of src/backend/cuda/kernels/device.cuh,
 * for kernels that g++ compiles. Each thread of a block is a fiber. Operations of a warp and barriers are
 * rendezvous of fibers. What a kernel reads and writes through a wrapper is accessed in this header, not in
 * emulator.cpp, so that the sanitizers see it.
 */
#ifndef DDL_TESTS_CUDA_EMULATOR_DEVICE_H
#define DDL_TESTS_CUDA_EMULATOR_DEVICE_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

using std::isfinite;
using std::isnan;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline float2 make_float2(float x, float y)
{
    return { x, y };
}

inline float4 make_float4(float x, float y, float z, float w)
{
    return { x, y, z, w };
}

inline uint2 make_uint2(unsigned x, unsigned y)
{
    return { x, y };
}

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return { x, y, z, w };
}

namespace emulator
{

/* Where a kernel called an operation. */
struct site {
    const char *file;
    int line;
};

const dim3 &thread_index();
const dim3 &block_index();
const dim3 &block_size();
const dim3 &grid_size();

void barrier(site where);

/* A rendezvous of the lanes that `mask` names: each passes its operand, and the last one to arrive calls
 * `combine` with the operands of all lanes (NULL for those outside of the mask). All must pass the same
 * function and mask. If `orders_memory`, what a lane wrote before is visible to the others afterwards. */
void collective(unsigned mask, void (*combine)(void *const operands[32], unsigned mask), void *operand,
                bool orders_memory, site where);

/* The array of the block that `key` identifies, `bytes` long; the same for all threads of the block. */
void *shared(const void *key, size_t bytes);
void *dynamic_shared();

/* Whether [p, p + bytes) is in an array of shared memory. */
bool is_shared(const void *p, size_t bytes);

/* Ends the launch with a message. */
[[noreturn]] void fault(site where, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A copy that a thread has started. */
struct copy {
    void *to;
    const void *from;
};

void start_copy(copy c);
void commit_copies();

/* Takes the next copy that must be complete when all but the last `groups` groups are; false if there is none
 * left. */
bool next_copy(int groups, copy *c);

/* A kernel of the program, for emulator.h. */
struct kernel {
    const char *name;
    unsigned threads; /* the largest block */
    size_t bytes;     /* of its arguments */
    void (*body)(const void *arguments);
    const kernel *next;
    kernel(const char *name, unsigned threads, size_t bytes, void (*body)(const void *));
};

/* The operand of a shuffle. */
struct exchanged {
    uint64_t value, received; /* as bits */
    int source;               /* the lane whose value is received */
    site where;
};

void exchange(void *const operands[32], unsigned mask);

template <class T> T shuffle(unsigned mask, T value, int source, site where)
{
    static_assert(sizeof value <= 8, "a shuffle moves at most 8 bytes");
    exchanged e = { 0, 0, source, where };
    memcpy(&e.value, &value, sizeof value);
    collective(mask, exchange, &e, false, where);
    memcpy(&value, &e.received, sizeof value);
    return value;
}

/* The lane of a source that may lie outside of the lane's segment of `width` lanes: then the lane itself. */
inline int within(int lane, int source, int width)
{
    return source < 0 || source / width != lane / width ? lane : source;
}

inline int lane()
{
    const dim3 &t = thread_index(), &size = block_size();
    return static_cast<int>((t.x + size.x * (t.y + size.y * t.z)) % 32);
}

struct vote {
    bool predicate;
    unsigned result;
};

struct fragments {
    float *d;
    const uint32_t *a, *b;
};

struct matrix_rows {
    uint16_t row[8]; /* that this lane has read */
    uint32_t *r;
};

/* What the operations do with the operands of a warp. In emulator.cpp: ThreadSanitizer would take the reads
 * of other threads' operands for races. */
void count_votes(void *const operands[32], unsigned mask);
void multiply(void *const operands[32], unsigned mask);
void distribute(void *const operands[32], unsigned mask);
void distribute_transposed(void *const operands[32], unsigned mask);
void meet(void *const operands[32], unsigned mask);

} // namespace emulator

#define threadIdx (emulator::thread_index())
#define blockIdx (emulator::block_index())
#define blockDim (emulator::block_size())
#define gridDim (emulator::grid_size())

#define KERNEL(name, threads, arguments)                                                                     \
    static void name(const arguments &a);                                                                    \
    static const emulator::kernel name##_kernel(                                                             \
        #name, threads, sizeof(arguments), [](const void *p) { name(*static_cast<const arguments *>(p)); }); \
    static void name(const arguments &a)

#define SHARED(type, name, count)                                                                            \
    static const char name##_key = 0;                                                                        \
    type *const name = static_cast<type *>(emulator::shared(&name##_key, sizeof(type) * (count)))

#define DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(emulator::dynamic_shared())

/* The default arguments are evaluated where the function is called. */
#define DDL_SITE emulator::site where = { __builtin_FILE(), __builtin_LINE() }

inline void __syncthreads(DDL_SITE)
{
    emulator::barrier(where);
}

inline void __syncwarp(unsigned mask = 0xffffffff, DDL_SITE)
{
    emulator::collective(mask, emulator::meet, nullptr, true, where);
}

template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, DDL_SITE)
{
    return emulator::shuffle(mask, value, emulator::lane() / width * width + (source & (width - 1)), where);
}

template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, DDL_SITE)
{
    const int lane = emulator::lane();
    return emulator::shuffle(mask, value, emulator::within(lane, lane ^ bits, width), where);
}

template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, DDL_SITE)
{
    const int lane = emulator::lane();
    return emulator::shuffle(mask, value, emulator::within(lane, lane - static_cast<int>(distance), width),
                             where);
}

template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, DDL_SITE)
{
    const int lane = emulator::lane();
    return emulator::shuffle(mask, value, emulator::within(lane, lane + static_cast<int>(distance), width),
                             where);
}

inline unsigned __ballot_sync(unsigned mask, bool predicate, DDL_SITE)
{
    emulator::vote v = { predicate, 0 };
    emulator::collective(mask, emulator::count_votes, &v, false, where);
    return v.result;
}

inline bool __any_sync(unsigned mask, bool predicate, DDL_SITE)
{
    return __ballot_sync(mask, predicate, where) != 0;
}

inline bool __all_sync(unsigned mask, bool predicate, DDL_SITE)
{
    return __ballot_sync(mask, predicate, where) == mask;
}

/* As the hardware: relaxed, in one order for an address. Returns the old value. */
inline unsigned atomicAdd(unsigned *address, unsigned value)
{
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

inline uint16_t bf16_of(float x)
{
    const uint32_t bits = __float_as_uint(x);
    if (x != x)
        return 0x7fff; /* as the instruction does */
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline uint32_t bf16_pair(float low, float high)
{
    return bf16_of(low) | static_cast<uint32_t>(bf16_of(high)) << 16;
}

inline void mma_bf16_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2], DDL_SITE)
{
    emulator::fragments f = { d, a, b };
    emulator::collective(0xffffffff, emulator::multiply, &f, false, where);
}

inline void load_matrices(uint32_t r[4], const void *row,
                          void (*how)(void *const operands[32], unsigned mask), emulator::site where)
{
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
        emulator::fault(where, "ldmatrix: a row is not 16-byte aligned");
    if (!emulator::is_shared(row, 16))
        emulator::fault(where, "ldmatrix: a row is not in shared memory");
    emulator::matrix_rows m;
    memcpy(m.row, row, sizeof m.row);
    m.r = r;
    emulator::collective(0xffffffff, how, &m, false, where);
}

inline void ldmatrix_x4(uint32_t r[4], const void *row, DDL_SITE)
{
    load_matrices(r, row, emulator::distribute, where);
}

inline void ldmatrix_x4_transposed(uint32_t r[4], const void *row, DDL_SITE)
{
    load_matrices(r, row, emulator::distribute_transposed, where);
}

inline void cp_async_16(void *shared, const void *global, DDL_SITE)
{
    if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16 != 0)
        emulator::fault(where, "cp.async: an address is not 16-byte aligned");
    if (!emulator::is_shared(shared, 16))
        emulator::fault(where, "cp.async: the target is not in shared memory");
    emulator::start_copy({ shared, global });
}

inline void cp_async_commit()
{
    emulator::commit_copies();
}

template <int groups> void cp_async_wait()
{
    for (emulator::copy c; emulator::next_copy(groups, &c);)
        memcpy(c.to, c.from, 16);
}

#undef DDL_SITE

#endif
