#include "infer/tasks/random.h"

#include <stdbool.h>
#include <stdlib.h>

enum { WORDS = 624, OFFSET = 397 };

/* init_genrand of the reference implementation. */
static void seed_by_number(struct task_random *random, uint32_t seed)
{
    uint32_t *x = random->state;
    x[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        x[i] = 1812433253U * (x[i - 1] ^ (x[i - 1] >> 30)) + i;
    random->next = WORDS;
}

/* init_by_array with the seed's 32-bit words, least significant first, without leading zeros. */
void task_random_seed(struct task_random *random, uint64_t seed)
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    uint32_t *x = random->state, n = key[1] ? 2 : 1, i = 1, j = 0;
    seed_by_number(random, 19650218U);
    for (size_t k = 0; k < WORDS; k++) {
        x[i] = (x[i] ^ ((x[i - 1] ^ (x[i - 1] >> 30)) * 1664525U)) + key[j] + j;
        j = (j + 1) % n;
        if (++i == WORDS)
            x[0] = x[WORDS - 1], i = 1;
    }
    for (size_t k = 1; k < WORDS; k++) {
        x[i] = (x[i] ^ ((x[i - 1] ^ (x[i - 1] >> 30)) * 1566083941U)) - i;
        if (++i == WORDS)
            x[0] = x[WORDS - 1], i = 1;
    }
    x[0] = 0x80000000U;
}

static void refill(struct task_random *random)
{
    uint32_t *x = random->state;
    for (size_t i = 0; i < WORDS; i++) {
        uint32_t y = (x[i] & 0x80000000U) | (x[(i + 1) % WORDS] & 0x7fffffffU);
        x[i] = x[(i + OFFSET) % WORDS] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfU : 0);
    }
    random->next = 0;
}

static uint32_t next_word(struct task_random *random)
{
    if (random->next == WORDS)
        refill(random);
    uint32_t y = random->state[random->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

/* _randbelow: the top bits of a word, as many as n has, repeated until the number is below n. */
static size_t below(struct task_random *random, size_t n)
{
    int bits = 0;
    while (bits < 32 && n >> bits)
        bits++;
    size_t r;
    do
        r = next_word(random) >> (32 - bits);
    while (r >= n);
    return r;
}

static bool contains(const size_t *list, size_t n, size_t value)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i] == value)
            return true;
    }
    return false;
}

/* The population up to which sample() keeps a list of all indices. */
static size_t list_limit(size_t k)
{
    size_t limit = 21, power = 1;
    while (k > 5 && power < 3 * k)
        power *= 4;
    return k > 5 ? limit + power : limit;
}

ddl_status task_random_sample(struct task_random *random, size_t m, size_t k, size_t *out,
                              struct ddl_error *err)
{
    if (m > list_limit(k)) {
        for (size_t i = 0; i < k; i++) {
            do
                out[i] = below(random, m);
            while (contains(out, i, out[i]));
        }
        return DDL_OK;
    }
    size_t *list = malloc((m ? m : 1) * sizeof *list);
    if (!list)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for a sample of %zu", m);
    for (size_t i = 0; i < m; i++)
        list[i] = i;
    for (size_t i = 0; i < k; i++) {
        size_t j = below(random, m - i);
        out[i] = list[j];
        list[j] = list[m - i - 1];
    }
    free(list);
    return DDL_OK;
}
