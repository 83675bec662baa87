/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011). A number is a pure function of
 * (key, counter), so initial values and data order depend on the seed and on names alone. */
#ifndef DDL_BASE_RNG_H
#define DDL_BASE_RNG_H

#include <stdint.h>

struct ddl_rng_block {
    uint32_t word[4];
};

/* The key of a stream: the seed mixed with a name ("data", "transformer.wte.weight", ...). */
uint64_t ddl_rng_key(uint64_t seed, const char *name);

/* Block number `counter` of the stream `key`. */
struct ddl_rng_block ddl_rng_at(uint64_t key, uint64_t counter);

/* The i-th number of the stream: 64 random bits; uniform in [0, 1); below `bound` (> 0), without bias that
 * matters (128-bit multiply); standard normal (Box-Muller). */
uint64_t ddl_rng_u64(uint64_t key, uint64_t i);
double ddl_rng_uniform(uint64_t key, uint64_t i);
uint64_t ddl_rng_below(uint64_t key, uint64_t i, uint64_t bound);
double ddl_rng_normal(uint64_t key, uint64_t i);

#endif
