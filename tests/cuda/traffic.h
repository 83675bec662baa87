/* What emulated kernels access, counted. For the driver's stand-in whose kernels are compiled with
 * -fsanitize=thread and linked with traffic.cpp instead of that sanitizer's library: its calls before each
 * access do the counting.
 *
 * A request is what the lanes of a warp access by one instruction in the same iteration. Global memory is
 * moved in sectors of 32 bytes. Shared memory has 32 banks of 4 bytes: a request takes as many passes as the
 * busiest bank has different words, and 128 bytes move in a pass at best. */
#ifndef DDL_TESTS_CUDA_TRAFFIC_H
#define DDL_TESTS_CUDA_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_traffic {
    uint64_t read, written;  /* bytes of global memory; those that several lanes of a request access
                                count once */
    uint64_t sectors, used;  /* sectors that the requests move, and bytes of them that they access  */
    uint64_t passes, fewest; /* of shared memory; how many there would be without bank conflicts    */
};

/* The counts since the last call, which begin at 0 again. Both functions are looked up by name. */
typedef void (*cuda_traffic_take)(struct cuda_traffic *out);
#define CUDA_TRAFFIC_TAKE "cuda_traffic_take_counts"

/* Bytes that all rows share, such as weights: caches have them after the first access, so each counts once
 * until the counts are taken. */
typedef void (*cuda_traffic_share)(const void *start, uint64_t bytes);
#define CUDA_TRAFFIC_SHARE "cuda_traffic_share_bytes"

/* Whether a kernel may find global memory there: the stand-in tells. */
bool cuda_traffic_is_global(const void *address);

#ifdef __cplusplus
}
#endif

#endif
