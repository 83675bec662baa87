#include "data/synthetic.h"

#include "base/rng.h"

#include <stdio.h>
#include <string.h>

const char ddl_synthetic_sign_texts[DDL_SIGNS] = { '=', '|', '.', '+', '-', '*', '1', '2',
                                                   '3', '4', '5', '6', '7', '8', '9' };

void ddl_synthetic_symbol_text(char text[DDL_SYNTHETIC_TEXT], size_t symbol)
{
    if (symbol < 26)
        snprintf(text, DDL_SYNTHETIC_TEXT, "%c", (char)('a' + symbol));
    else if (symbol < 52)
        snprintf(text, DDL_SYNTHETIC_TEXT, "%c", (char)('A' + (symbol - 26)));
    else { /* Latin letters from U+0100 on, in UTF-8 */
        unsigned code = (unsigned)(0x100 + symbol - 52);
        snprintf(text, DDL_SYNTHETIC_TEXT, "%c%c", (char)(0xc0 | code >> 6), (char)(0x80 | (code & 0x3f)));
    }
}

static int32_t sign(int which)
{
    return -1 - which;
}

static size_t draw(struct ddl_synthetic *s, size_t bound)
{
    return (size_t)ddl_rng_below(s->key, s->drawn++, bound);
}

/* A random order of 0 .. n - 1. */
static void shuffle(struct ddl_synthetic *s, int32_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t j = draw(s, i + 1);
        out[i] = out[j];
        out[j] = (int32_t)i;
    }
}

static void put(struct ddl_synthetic *s, int32_t token, size_t group)
{
    s->tokens[s->n] = token;
    s->groups[s->n++] = (unsigned char)group;
}

static void put_all(struct ddl_synthetic *s, const int32_t *tokens, size_t n, size_t group)
{
    for (size_t i = 0; i < n; i++)
        put(s, tokens[i], group);
}

static uint64_t hash_of(const struct ddl_synthetic *s, const int32_t *tokens, size_t n)
{
    uint64_t hash = n;
    for (size_t i = 0; i < n; i++)
        hash = ddl_rng_u64(s->split_key ^ hash, (uint64_t)(int64_t)tokens[i]);
    return hash;
}

/* Whether the problem with these tokens belongs to the split. */
static bool in_split(const struct ddl_synthetic *s, const int32_t *tokens, size_t n)
{
    return (ddl_rng_uniform(s->split_key, hash_of(s, tokens, n)) < s->config->val_fraction) == s->val;
}

void ddl_synthetic_begin(struct ddl_synthetic *s)
{
    s->n = 0;
    memset(s->seen, 0, s->n_seen * sizeof *s->seen);
}

/* Whether the sequence has not had the problem before. It has from now on. */
static bool is_new(struct ddl_synthetic *s, const int32_t *tokens, size_t n)
{
    const uint64_t hash = hash_of(s, tokens, n) | 1;
    size_t at = (hash >> 1) & (s->n_seen - 1);
    while (s->seen[at] && s->seen[at] != hash)
        at = (at + 1) & (s->n_seen - 1);
    const bool found = s->seen[at] == hash;
    s->seen[at] = hash;
    return !found;
}

/* The group of the answer to a problem; with `once` 0 if the sequence has given the answer before. */
static size_t group_of(struct ddl_synthetic *s, const int32_t *tokens, size_t n, size_t group)
{
    return !s->config->once || is_new(s, tokens, n) ? group : 0;
}

/* ---- sizes ---- */

/* A size that is 0 gets the default; it must lie in [least, most]. */
static ddl_status size_of(const char *name, size_t *size, size_t usual, size_t least, size_t most,
                          struct ddl_error *err)
{
    *size = *size ? *size : usual;
    return *size >= least && *size <= most
               ? DDL_OK
               : ddl_error_set(err, DDL_E_USAGE, "--%s: expected %zu to %zu, found %zu", name, least, most,
                               *size);
}

/* The length of sequences of short problems. */
static ddl_status length_of(struct ddl_synthetic_config *c, size_t longest, struct ddl_error *err)
{
    return size_of("length", &c->length, longest + 1 > 128 ? longest + 1 : 128, longest + 1,
                   DDL_SYNTHETIC_LENGTH, err);
}

static size_t symbols_of_config(const struct ddl_synthetic_config *c)
{
    return c->symbols;
}

/* ---- pointer ---- */

enum { PAIR_TOKENS = 15 }; /* with pair_tokens: most symbols that form pairs, 15^2 tokens */

/* The hops of config->hops, each 1 to 9, into hops; their number, or 0 if the text is no list of them. */
static size_t hops_of(const struct ddl_synthetic_config *c, unsigned char hops[9])
{
    size_t n = 0;
    for (const char *at = c->hops; n < 9; at += 2) {
        if (at[0] < '1' || at[0] > '9' || (at[1] != ',' && at[1] != '\0'))
            return 0;
        hops[n++] = (unsigned char)(at[0] - '0');
        if (at[1] == '\0')
            return n;
    }
    return 0;
}

/* Going around a cycle leads nowhere: h hops are fewer than its symbols. */
static ddl_status pointer_sizes(struct ddl_synthetic_config *c, struct ddl_error *err)
{
    unsigned char hops[9];
    ddl_status status = c->pair_tokens ? size_of("pairs", &c->pairs, 8, 2, PAIR_TOKENS, err)
                                       : size_of("pairs", &c->pairs, 16, 2, DDL_SYNTHETIC_SYMBOLS, err);
    if (status)
        return status;
    const size_t most = c->cycle ? c->pairs - 1 : 8;
    if (!*c->hops)
        snprintf(c->hops, sizeof c->hops, "%.*s",
                 most >= 8   ? 7
                 : most >= 4 ? 5
                 : most >= 2 ? 3
                             : 1,
                 "1,2,4,8");
    const size_t n = hops_of(c, hops);
    if (n == 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "--hops: expected up to 9 digits 1 to 9, such as 1,2,4, found %s", c->hops);
    for (size_t i = 0; c->cycle && i < n; i++) {
        if (hops[i] >= c->pairs)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "--hops: %d hops around a cycle of %zu symbols: expected fewer", hops[i],
                                 c->pairs);
    }
    return size_of("queries", &c->queries, 8, 1, 4096, err);
}

static size_t pointer_length(const struct ddl_synthetic_config *c)
{
    return (c->pair_tokens ? 1 : 2) * c->pairs + 1 + 3 * c->queries;
}

/* With pair_tokens, those of the pairs (s, t) follow, in the order of s, then t. */
static size_t pointer_symbols(const struct ddl_synthetic_config *c)
{
    return c->pairs + (c->pair_tokens ? c->pairs * c->pairs : 0);
}

static void put_pair(struct ddl_synthetic *s, int32_t from, int32_t to)
{
    const int32_t n = (int32_t)s->config->pairs;
    if (s->config->pair_tokens)
        put(s, n + from * n + to, 0);
    else
        put_all(s, (int32_t[]){ from, to }, 2, 0);
}

/* Replaces an order of all symbols by the permutation of each to the next in it, which is one cycle. */
static void close_cycle(int32_t *next, size_t n)
{
    int32_t order[DDL_SYNTHETIC_SYMBOLS];
    memcpy(order, next, n * sizeof *next);
    for (size_t i = 0; i < n; i++)
        next[order[i]] = order[(i + 1) % n];
}

/* In a cycle of n symbols, h hops from s to t also answer the query for n - h hops from t. */
static void put_query(struct ddl_synthetic *s, const int32_t *next, int32_t from, int h)
{
    const int32_t digit = sign(DDL_SIGN_DIGIT + h - 1), query[2] = { from, h };
    const size_t group = group_of(s, query, 2, (size_t)h);
    int32_t to = from;
    for (int i = 0; i < h; i++)
        to = next[to];
    if (s->config->once && s->config->cycle)
        (void)is_new(s, (int32_t[]){ to, (int32_t)s->config->pairs - h }, 2);
    put(s, s->config->pair_tokens ? digit : from, 0);
    put(s, s->config->pair_tokens ? from : digit, 0);
    put(s, to, group);
}

static bool pointer_problem(struct ddl_synthetic *s, bool *full)
{
    const size_t n = s->config->pairs;
    int32_t next[DDL_SYNTHETIC_SYMBOLS], order[DDL_SYNTHETIC_SYMBOLS];
    unsigned char hops[9];
    const size_t n_hops = hops_of(s->config, hops);
    for (int tries = 0; tries < DDL_SYNTHETIC_TRIES; tries++) {
        ddl_synthetic_begin(s);
        shuffle(s, next, n);
        if (s->config->cycle)
            close_cycle(next, n);
        shuffle(s, order, n);
        for (size_t i = 0; i < n; i++)
            put_pair(s, order[i], next[order[i]]);
        put(s, sign(DDL_SIGN_BAR), 0);
        for (size_t q = 0; q < s->config->queries; q++) {
            const int32_t from = (int32_t)draw(s, n);
            put_query(s, next, from, hops[draw(s, n_hops)]);
        }
        if (in_split(s, s->tokens, s->n))
            return *full = true;
    }
    return false;
}

/* ---- mqar ---- */

static ddl_status mqar_sizes(struct ddl_synthetic_config *c, struct ddl_error *err)
{
    ddl_status status = c->pair_tokens
                            ? size_of("symbols", &c->symbols, 8, 2, PAIR_TOKENS, err)
                            : size_of("symbols", &c->symbols, 64, 2, DDL_SYNTHETIC_SYMBOLS / 2, err);
    if (!status)
        status = size_of("pairs", &c->pairs, c->symbols < 16 ? c->symbols : 16, 1, c->symbols, err);
    return status ? status : size_of("queries", &c->queries, c->pairs < 8 ? c->pairs : 8, 1, c->pairs, err);
}

static size_t mqar_length(const struct ddl_synthetic_config *c)
{
    return (c->pair_tokens ? 1 : 2) * c->pairs + 1 + 2 * c->queries;
}

/* Keys, then values; with pair_tokens, those of the pairs (k, v) follow, in the order of k, then v. */
static size_t mqar_symbols(const struct ddl_synthetic_config *c)
{
    return 2 * c->symbols + (c->pair_tokens ? c->symbols * c->symbols : 0);
}

static bool mqar_problem(struct ddl_synthetic *s, bool *full)
{
    const size_t keys = s->config->symbols, pairs = s->config->pairs;
    int32_t key[DDL_SYNTHETIC_SYMBOLS], value[DDL_SYNTHETIC_SYMBOLS], query[DDL_SYNTHETIC_SYMBOLS];
    for (int tries = 0; tries < DDL_SYNTHETIC_TRIES; tries++) {
        ddl_synthetic_begin(s);
        shuffle(s, key, keys);
        shuffle(s, query, pairs);
        for (size_t i = 0; i < pairs; i++) {
            value[i] = (int32_t)(keys + draw(s, keys));
            if (s->config->pair_tokens)
                put(s, (int32_t)keys + key[i] * (int32_t)keys + value[i], 0);
            else
                put_all(s, (int32_t[]){ key[i], value[i] }, 2, 0);
        }
        put(s, sign(DDL_SIGN_BAR), 0);
        for (size_t q = 0; q < s->config->queries; q++) {
            put(s, key[query[q]], 0);
            put(s, value[query[q]], 1);
        }
        if (in_split(s, s->tokens, s->n))
            return *full = true;
    }
    return false;
}

/* ---- words: the answer is a function of m symbols ---- */

/* Draws m symbols that are a word of the split; false if none is found. */
static bool draw_symbols(struct ddl_synthetic *s, size_t symbols, size_t m, int32_t word[DDL_SYNTHETIC_STEPS])
{
    for (int tries = 0; tries < DDL_SYNTHETIC_TRIES; tries++) {
        for (size_t i = 0; i < m; i++)
            word[i] = (int32_t)draw(s, symbols);
        if (in_split(s, word, m))
            return true;
    }
    return false;
}

/* Draws a word of the split of 1 to `steps` symbols; its length, or 0. Each length is as frequent as any
 * other of which the split has words. */
static size_t draw_word(struct ddl_synthetic *s, size_t symbols, int32_t word[DDL_SYNTHETIC_STEPS])
{
    size_t n_lacking = 0;
    if (s->n_kept > 0) {
        const size_t m = s->n_kept;
        memcpy(word, s->kept, m * sizeof *word);
        s->n_kept = 0;
        return m;
    }
    for (size_t m = 1; m <= s->config->steps; m++)
        n_lacking += s->lacks[m];
    while (n_lacking < s->config->steps) {
        const size_t m = 1 + draw(s, s->config->steps);
        if (s->lacks[m])
            continue;
        if (draw_symbols(s, symbols, m, word))
            return m;
        s->lacks[m] = true;
        n_lacking++;
    }
    return 0;
}

/* Adds "word =" if an answer of n symbols fits too; keeps the word for the next sequence if not. */
static bool put_question(struct ddl_synthetic *s, const int32_t *word, size_t m, size_t n)
{
    if (s->n + m + 1 + n > s->length) {
        memcpy(s->kept, word, m * sizeof *word);
        s->n_kept = m;
        return false;
    }
    put_all(s, word, m, 0);
    put(s, sign(DDL_SIGN_EQUALS), 0);
    return true;
}

/* Adds "word = answer" if it fits. */
static void put_word(struct ddl_synthetic *s, const int32_t *word, size_t m, const int32_t *answer, size_t n,
                     bool *full)
{
    *full = !put_question(s, word, m, n);
    if (*full)
        return;
    put_all(s, answer, n, group_of(s, word, m, m));
}

/* Adds "word = " and the last of the m states, or with `states` all: each answers the problem that ends
 * there. */
static void put_states(struct ddl_synthetic *s, const int32_t *word, size_t m, const int32_t *states,
                       bool *full)
{
    if (!s->config->states) {
        put_word(s, word, m, states + m - 1, 1, full);
        return;
    }
    *full = !put_question(s, word, m, m);
    for (size_t i = 0; !*full && i < m; i++)
        put(s, states[i], group_of(s, word, i + 1, i + 1));
}

/* Tokens of the longest problem that has states. */
static size_t longest_of(const struct ddl_synthetic_config *c)
{
    return c->states ? 2 * c->steps + 1 : c->steps + 2;
}

static ddl_status permutation_sizes(struct ddl_synthetic_config *c, struct ddl_error *err)
{
    ddl_status status = size_of("elements", &c->elements, 5, 2, 5, err);
    if (!status)
        status = size_of("steps", &c->steps, 16, 1, DDL_SYNTHETIC_STEPS, err);
    return status ? status : length_of(c, longest_of(c), err);
}

static size_t permutation_symbols(const struct ddl_synthetic_config *c)
{
    size_t n = 1;
    for (size_t i = 2; i <= c->elements; i++)
        n *= i;
    return n;
}

/* The permutation of n elements with a rank in lexicographic order, and back. */
static void unrank(size_t rank, size_t n, int out[5])
{
    int left[5] = { 0, 1, 2, 3, 4 };
    size_t ways = 1;
    for (size_t i = 2; i < n; i++)
        ways *= i;
    for (size_t i = 0; i < n; i++) {
        size_t at = rank / ways;
        out[i] = left[at];
        memmove(left + at, left + at + 1, (n - i - 1 - at) * sizeof *left);
        rank %= ways;
        ways = i + 2 < n ? ways / (n - 1 - i) : 1;
    }
}

static size_t rank_of(const int p[5], size_t n)
{
    size_t rank = 0;
    for (size_t i = 0; i < n; i++) {
        size_t smaller = 0;
        for (size_t j = i + 1; j < n; j++)
            smaller += p[j] < p[i];
        rank = rank * (n - i) + smaller;
    }
    return rank;
}

static bool permutation_problem(struct ddl_synthetic *s, bool *full)
{
    const size_t n = s->config->elements;
    int32_t word[DDL_SYNTHETIC_STEPS], states[DDL_SYNTHETIC_STEPS];
    const size_t m = draw_word(s, permutation_symbols(s->config), word);
    int state[5] = { 0, 1, 2, 3, 4 };
    for (size_t i = 0; i < m; i++) {
        int step[5], before[5];
        unrank((size_t)word[i], n, step);
        memcpy(before, state, sizeof before);
        for (size_t e = 0; e < n; e++)
            state[e] = step[before[e]];
        states[i] = (int32_t)rank_of(state, n);
    }
    if (m > 0)
        put_states(s, word, m, states, full);
    return m > 0;
}

static ddl_status parity_sizes(struct ddl_synthetic_config *c, struct ddl_error *err)
{
    ddl_status status = size_of("steps", &c->steps, 32, 1, DDL_SYNTHETIC_STEPS, err);
    return status ? status : length_of(c, longest_of(c), err);
}

static size_t two_symbols(const struct ddl_synthetic_config *c)
{
    (void)c;
    return 2;
}

static bool parity_problem(struct ddl_synthetic *s, bool *full)
{
    int32_t word[DDL_SYNTHETIC_STEPS], states[DDL_SYNTHETIC_STEPS], parity = 0;
    const size_t m = draw_word(s, 2, word);
    for (size_t i = 0; i < m; i++)
        states[i] = parity ^= word[i];
    if (m > 0)
        put_states(s, word, m, states, full);
    return m > 0;
}

static ddl_status reverse_sizes(struct ddl_synthetic_config *c, struct ddl_error *err)
{
    ddl_status status = size_of("symbols", &c->symbols, 26, 2, DDL_SYNTHETIC_SYMBOLS, err);
    if (!status)
        status = size_of("steps", &c->steps, 16, 1, DDL_SYNTHETIC_STEPS, err);
    return status ? status : length_of(c, 2 * c->steps + 1, err);
}

static bool reverse_problem(struct ddl_synthetic *s, bool *full)
{
    int32_t word[DDL_SYNTHETIC_STEPS], answer[DDL_SYNTHETIC_STEPS];
    const size_t m = draw_word(s, s->config->symbols, word);
    for (size_t i = 0; i < m; i++)
        answer[i] = word[m - 1 - i];
    put_word(s, word, m, answer, m, full);
    return m > 0;
}

/* ---- modular ---- */

static ddl_status modular_sizes(struct ddl_synthetic_config *c, struct ddl_error *err)
{
    if (!*c->operators)
        snprintf(c->operators, sizeof c->operators, "+");
    if (strspn(c->operators, "+-*") != strlen(c->operators))
        return ddl_error_set(err, DDL_E_USAGE, "--operators: expected some of + - *, found %s", c->operators);
    ddl_status status = size_of("modulus", &c->modulus, 97, 2, DDL_SYNTHETIC_SYMBOLS, err);
    return status ? status : length_of(c, 5, err);
}

static size_t modular_symbols(const struct ddl_synthetic_config *c)
{
    return c->modulus;
}

static bool modular_problem(struct ddl_synthetic *s, bool *full)
{
    const size_t p = s->config->modulus, n_operators = strlen(s->config->operators);
    *full = s->n + 5 > s->length;
    for (int tries = 0; tries < DDL_SYNTHETIC_TRIES && !*full; tries++) {
        const char op = s->config->operators[draw(s, n_operators)];
        const size_t a = draw(s, p), b = draw(s, p);
        const size_t result = op == '+' ? a + b : op == '-' ? a + p - b : a * b;
        const int which = op == '+' ? 0 : op == '-' ? 1 : 2;
        const int32_t problem[4] = { (int32_t)a, sign(DDL_SIGN_PLUS + which), (int32_t)b,
                                     sign(DDL_SIGN_EQUALS) };
        if (!in_split(s, problem, 4))
            continue;
        put_all(s, problem, 4, 0);
        put(s, (int32_t)(result % p), group_of(s, problem, 4, (size_t)which + 1));
        return true;
    }
    return *full;
}

const struct ddl_synthetic_task ddl_synthetic_tasks[DDL_SYNTHETIC_KINDS] = {
    { " pairs queries hops cycle pair_tokens once ", pointer_sizes, pointer_length, pointer_symbols,
      pointer_problem },
    { " symbols pairs queries pair_tokens ", mqar_sizes, mqar_length, mqar_symbols, mqar_problem },
    { " length elements steps once states ", permutation_sizes, NULL, permutation_symbols,
      permutation_problem },
    { " length steps once states ", parity_sizes, NULL, two_symbols, parity_problem },
    { " length modulus operators once ", modular_sizes, NULL, modular_symbols, modular_problem },
    { " length symbols steps once ", reverse_sizes, NULL, symbols_of_config, reverse_problem },
};
