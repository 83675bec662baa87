#include "base/rng.h"

#include <math.h>

__extension__ typedef unsigned __int128 uint128;

static const double pi = 3.14159265358979323846;

uint64_t ddl_rng_key(uint64_t seed, const char *name)
{
    uint64_t h =
        0xcbf29ce484222325u; /* FNV-1a over the name, then the seed mixed in (the finalizer of splitmix64) */
    for (const unsigned char *s = (const unsigned char *)name; *s; s++)
        h = (h ^ *s) * 0x100000001b3u;
    h ^= seed * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

struct ddl_rng_block ddl_rng_at(uint64_t key, uint64_t counter)
{
    uint32_t c[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), 0, 0 };
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                             (uint32_t)a };
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (struct ddl_rng_block){ { c[0], c[1], c[2], c[3] } };
}

uint64_t ddl_rng_u64(uint64_t key, uint64_t i)
{
    struct ddl_rng_block b = ddl_rng_at(key, i);
    return (uint64_t)b.word[0] | (uint64_t)b.word[1] << 32;
}

double ddl_rng_uniform(uint64_t key, uint64_t i)
{
    return (double)(ddl_rng_u64(key, i) >> 11) * 0x1p-53;
}

uint64_t ddl_rng_below(uint64_t key, uint64_t i, uint64_t bound)
{
    return (uint64_t)(((uint128)ddl_rng_u64(key, i) * bound) >> 64);
}

double ddl_rng_normal(uint64_t key, uint64_t i)
{
    struct ddl_rng_block b = ddl_rng_at(key, i);
    uint64_t u = (uint64_t)b.word[0] | (uint64_t)b.word[1] << 32;
    uint64_t v = (uint64_t)b.word[2] | (uint64_t)b.word[3] << 32;
    double u1 = ((double)(u >> 11) + 1.0) * 0x1p-53; /* in (0, 1], so that the logarithm is finite */
    double u2 = (double)(v >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u1)) * cos(2.0 * pi * u2);
}
