/* The order in which a skinny product reads its operands. Few rows of A are multiplied with each row of B as
 * it arrives from memory. For more rows, a part of B is read several times while it is in the cache, and
 * those passes share the prefetching of the next part, so that memory and arithmetic work at the same time.
 */
#ifndef DDL_BACKEND_CPU_PASSES_H
#define DDL_BACKEND_CPU_PASSES_H

#include "backend/cpu/kernels/vec.h"

enum {
    PREFETCH_DISTANCE = 32 << 10, /* bytes that a single pass prefetches ahead, at least    */
    CACHED_PART = 256 << 10,      /* bytes of B that several passes read, about              */
    PART_ROWS = 12,               /* a part is a multiple: whole tiles of C, for any kernel */
};

/* Rows [m, m + M) of A and [lo, hi) of B. Of these rows r of B, those with r % every == turn prefetch row r +
 * ahead. */
struct pass {
    size_t m, M, lo, hi, ahead, every, turn;
};

typedef void pass_fn(const void *args, const struct pass *p);

/* The first row from j on that prefetches, as a distance from j. */
INLINE size_t first_prefetch(const struct pass *p, size_t j)
{
    return p->every == 1 ? 0 : (p->turn + p->every - j % p->every) % p->every;
}

/* Calls fn for all M rows of A, at most `block` at a time, and rows [lo, hi) of B of row_bytes bytes each.
 * `apart`: rows are not contiguous (keys of one head): ROWS_AHEAD rows are prefetched, not
 * PREFETCH_DISTANCE bytes. */
INLINE void in_passes(size_t M, size_t block, size_t lo, size_t hi, size_t row_bytes, bool apart, pass_fn *fn,
                      const void *args)
{
    size_t passes = M / block + (M % block != 0), row = row_bytes ? row_bytes : 1;
    size_t ahead = apart ? ROWS_AHEAD : PREFETCH_DISTANCE / row + 1, part = hi - lo;
    if (passes > 1)
        ahead = part = (CACHED_PART / row / PART_ROWS + 1) * PART_ROWS;
    for (size_t j = lo; j < hi; j += part) {
        struct pass p = { .lo = j, .hi = hi - j < part ? hi : j + part, .ahead = ahead, .every = passes };
        for (; p.turn < passes; p.turn++, p.m += p.M) {
            size_t left = passes - p.turn;
            p.M = (M - p.m) / left + ((M - p.m) % left != 0); /* alike sizes: 9 rows are 5 and 4 */
            fn(args, &p);
        }
    }
}

#endif
