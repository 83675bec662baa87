#include "data/hold_out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 1024, CHUNK = 1 << 16 };

/* What begins at a token; a greater value is a better place to cut. */
enum boundary { INSIDE, CHARACTER, WORD, LINE, DOCUMENT };

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static enum boundary boundary_between(const struct ddl_hold_out *h, int32_t before, int32_t after)
{
    size_t n, m;
    const char *a = ddl_tokenizer_bytes(h->tokenizer, before, &n);
    const char *b = ddl_tokenizer_bytes(h->tokenizer, after, &m);
    if (after == h->end_of_text)
        return DOCUMENT;
    if (!a || !b || before == h->end_of_text) /* a document of no text would remain */
        return INSIDE;
    if (a[n - 1] == '\n')
        return LINE;
    if (is_space(*b) || is_space(a[n - 1]))
        return WORD;
    return ((unsigned char)*b & 0xc0) == 0x80 ? INSIDE : CHARACTER;
}

static uint64_t at_least(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the position of the cut, 2 <= cut < n; `target` is the requested one. */
static ddl_status find_cut(struct ddl_hold_out *h, uint64_t n, uint64_t target, uint64_t *cut,
                           struct ddl_error *err)
{
    static const char *const names[] = { "character", "character", "word", "line", "document" };
    int32_t ids[2 * WINDOW + 2];
    const uint64_t first = target - at_most(WINDOW, target - 2), last = at_most(target + WINDOW, n - 1);
    const uint64_t near = at_most(target, n - target) / 2; /* within this distance a line is preferred */
    enum boundary best = INSIDE;
    ddl_status status =
        ddl_shard_set_read(h->set, DDL_SPLIT_TRAIN, first - 1, (size_t)(last - first) + 2, ids, err);
    *cut = target;
    for (uint64_t d = 0; !status && best < LINE && d <= WINDOW; d++) {
        const uint64_t places[2] = { target + d, target - at_most(d, target) };
        for (size_t i = 0; i < 2; i++) {
            if (places[i] < first || places[i] > last)
                continue;
            const int32_t *id = &ids[places[i] - first + 1];
            enum boundary found = boundary_between(h, id[-1], id[0]);
            if (found > best && (best == INSIDE || d <= near)) {
                best = found;
                *cut = places[i];
            }
        }
    }
    h->at = names[best];
    return status;
}

/* Appends the tokens from `cut` on to the validation shards. */
static ddl_status copy_end(struct ddl_hold_out *h, uint64_t cut, uint64_t n, int32_t *ids,
                           struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (uint64_t at = cut; !status && at < n;) {
        size_t take = (size_t)at_most(CHUNK, n - at);
        status = ddl_shard_set_read(h->set, DDL_SPLIT_TRAIN, at, take, ids, err);
        if (!status && at == cut && *ids != h->end_of_text) {
            h->divided = true;
            h->documents++;
            status = ddl_shard_set_append(h->set, DDL_SPLIT_VAL, &h->end_of_text, 1, err);
        }
        for (size_t i = 0; !status && i < take; i++) {
            size_t size = 0;
            if (ids[i] == h->end_of_text)
                h->documents++;
            else
                (void)ddl_tokenizer_bytes(h->tokenizer, ids[i], &size);
            h->bytes += size;
        }
        if (!status)
            status = ddl_shard_set_append(h->set, DDL_SPLIT_VAL, ids, take, err);
        if (!status)
            status = h->check(h->user, err);
        at += take;
    }
    return status;
}

ddl_status ddl_hold_out_end(struct ddl_hold_out *h, struct ddl_error *err)
{
    uint64_t n, cut;
    ddl_status status = ddl_shard_set_close(h->set, err);
    if (!status && h->set->split[DDL_SPLIT_TRAIN].tokens == 0)
        status = ddl_shard_set_make_train(h->set, err);
    if (status)
        return status;
    n = h->set->split[DDL_SPLIT_TRAIN].tokens;
    if (n < 3)
        return ddl_error_set(
            err, DDL_E_FORMAT,
            "val_fraction: a text of %llu token cannot be divided into training and validation",
            (unsigned long long)n - 1);
    uint64_t held = at_least((uint64_t)llround(h->share * (double)n), 1);
    status = find_cut(h, n, at_least(n - at_most(held, n), 2), &cut, err);
    int32_t *ids = malloc(CHUNK * sizeof *ids);
    if (!status && !ids)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory for %d tokens", CHUNK);
    if (!status)
        status = copy_end(h, cut, n, ids, err);
    free(ids);
    return status ? status : ddl_shard_set_truncate(h->set, DDL_SPLIT_TRAIN, cut, err);
}
