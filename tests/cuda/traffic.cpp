/* Counts the accesses of kernels (traffic.h). */
#include "traffic.h"
#include "emulator.h"
#include "emulator_device.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace
{

struct access {
    uintptr_t address;
    unsigned bytes, lane;
};

/* An instruction, how often the lane has executed it before, and the warp. */
struct place {
    const void *instruction;
    unsigned iteration, warp;
    bool operator==(const place &o) const
    {
        return instruction == o.instruction && iteration == o.iteration && warp == o.warp;
    }
};

struct place_hash {
    size_t operator()(const place &p) const
    {
        return reinterpret_cast<uintptr_t>(p.instruction) * 31 + p.iteration * 1024 + p.warp;
    }
};

struct request {
    bool shared, write;
    std::vector<access> lanes;
};

cuda_traffic counts;
std::vector<std::pair<uintptr_t, uintptr_t>> shared_ranges;
std::unordered_set<uintptr_t> seen; /* bytes of them */
/* Of the running block. */
std::unordered_map<place, request, place_hash> requests;
std::unordered_map<place, unsigned, place_hash> executed; /* by instruction and thread */

/* The different words of `size` bytes that the accesses touch, in order. */
std::vector<uintptr_t> words(const access *first, const access *last, unsigned size)
{
    std::vector<uintptr_t> list;
    for (const access *a = first; a < last; a++)
        for (uintptr_t word = a->address / size; word * size < a->address + a->bytes; word++)
            list.push_back(word);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
}

/* Wider accesses are served by half or a quarter of the lanes at a time. */
void count_shared(const request &r)
{
    const size_t together = r.lanes[0].bytes > 8 ? 8 : r.lanes[0].bytes > 4 ? 16 : 32;
    for (size_t i = 0; i < r.lanes.size(); i += together) {
        const access *first = r.lanes.data() + i;
        const std::vector<uintptr_t> touched =
            words(first, first + std::min(together, r.lanes.size() - i), 4);
        unsigned busy[32] = {}, passes = 0;
        for (const uintptr_t word : touched)
            passes = std::max(passes, ++busy[word % 32]);
        counts.passes += passes;
        counts.fewest += (touched.size() + 31) / 32;
    }
}

bool counts_again(uintptr_t byte)
{
    for (const auto &range : shared_ranges)
        if (byte >= range.first && byte < range.second)
            return seen.insert(byte).second;
    return true;
}

void count_global(const request &r)
{
    const access *first = r.lanes.data(), *last = first + r.lanes.size();
    const std::vector<uintptr_t> bytes = words(first, last, 1);
    counts.used += bytes.size();
    (r.write ? counts.written : counts.read) +=
        static_cast<uint64_t>(std::count_if(bytes.begin(), bytes.end(), counts_again));
    counts.sectors += words(first, last, 32).size();
}

void note(const void *address, unsigned bytes, bool write, const void *instruction)
{
    const bool shared = emulator::is_shared(address, bytes);
    if (!shared && !cuda_traffic_is_global(address))
        return;
    const dim3 &t = threadIdx, &size = blockDim;
    const unsigned thread = t.x + size.x * (t.y + size.y * t.z);
    const unsigned before = executed[{ instruction, 0, thread }]++;
    request &r = requests[{ instruction, before, thread / 32 }];
    r.shared = shared;
    r.write = write;
    r.lanes.push_back({ reinterpret_cast<uintptr_t>(address), bytes, thread % 32 });
}

} // namespace

void emulator_block_ended()
{
    for (auto &each : requests) {
        std::sort(each.second.lanes.begin(), each.second.lanes.end(),
                  [](const access &a, const access &b) { return a.lane < b.lane; });
        (each.second.shared ? count_shared : count_global)(each.second);
    }
    requests.clear();
    executed.clear();
}

extern "C" __attribute__((visibility("default"))) void cuda_traffic_take_counts(cuda_traffic *out)
{
    *out = counts;
    counts = {};
    shared_ranges.clear();
    seen.clear();
}

extern "C" __attribute__((visibility("default"))) void cuda_traffic_share_bytes(const void *start,
                                                                                uint64_t bytes)
{
    const uintptr_t first = reinterpret_cast<uintptr_t>(start);
    shared_ranges.push_back({ first, first + bytes });
}

/* What the compiler calls. */
extern "C" {
#define ACCESS(name, bytes, write)                                                                           \
    void __tsan_##name(const void *address)                                                                  \
    {                                                                                                        \
        note(address, bytes, write, __builtin_return_address(0));                                            \
    }
#define ACCESSES(bytes)                                                                                      \
    ACCESS(read##bytes, bytes, false)                                                                        \
    ACCESS(write##bytes, bytes, true)                                                                        \
    ACCESS(unaligned_read##bytes, bytes, false)                                                              \
    ACCESS(unaligned_write##bytes, bytes, true)                                                              \
    ACCESS(volatile_read##bytes, bytes, false)                                                               \
    ACCESS(volatile_write##bytes, bytes, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(const void *address, size_t bytes)
{
    note(address, static_cast<unsigned>(bytes), false, __builtin_return_address(0));
}
void __tsan_write_range(const void *address, size_t bytes)
{
    note(address, static_cast<unsigned>(bytes), true, __builtin_return_address(0));
}
unsigned __tsan_atomic32_fetch_add(volatile void *address, unsigned value, int order)
{
    note(const_cast<const void *>(address), 4, true, __builtin_return_address(0));
    (void)order;
    return __atomic_fetch_add(static_cast<volatile unsigned *>(address), value, __ATOMIC_RELAXED);
}
void __tsan_init() {}
void __tsan_func_entry(const void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(const void *, const void *) {}
void __tsan_vptr_read(const void *) {}
}
