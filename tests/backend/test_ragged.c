/* Ops on ragged batches: attention against ref, pieces against the whole dense sequence, sequences alone. */
#include "support/attention_case.h"

#include <string.h>

enum { MAX_B = 6 };

/* A sequence of a batch: tokens before it, its rows, its slot. The histories are 2 slot + 1 -> 2 slot, or, in
 * place, 2 slot -> 2 slot. */
static const struct sequence {
    size_t past, rows, slot;
} batches[][MAX_B] = {
    { { 0, 1, 0 } },
    { { 5, 1, 2 }, { 0, 1, 0 }, { 70, 1, 1 } },
    { { 0, 7, 3 }, { 1, 63, 0 }, { 2, 1, 1 }, { 100, 100, 2 } },
    { { 570, 12, 1 }, { 575, 9, 0 }, { 3, 8, 4 }, { 0, 13, 2 }, { 577, 1, 3 } },
    { { 1, 2, 5 }, { 2, 2, 4 }, { 3, 1, 3 }, { 0, 2, 2 }, { 0, 3, 1 }, { 900, 1, 0 } },
};
enum { BATCHES = sizeof batches / sizeof *batches, SLOTS = MAX_B };

static int32_t *integers(size_t n)
{
    return (int32_t *)(void *)some_floats(n); /* until release_all */
}

static struct ddl_ragged ragged_of(const struct sequence *s, bool in_place)
{
    struct ddl_ragged r = { 0 };
    for (; r.B < MAX_B && s[r.B].rows; r.B++) {
        size_t rows = s[r.B].rows, span = s[r.B].past + rows;
        r.N += rows;
        r.max_rows = rows > r.max_rows ? rows : r.max_rows;
        r.max_span = span > r.max_span ? span : r.max_span;
    }
    int32_t *sequence = integers(r.N), *position = integers(r.N), *first = integers(r.B + 1),
            *past = integers(r.B), *slot = integers(r.B), *from = integers(r.B), *to = integers(r.B);
    size_t n = 0;
    for (size_t b = 0; b < r.B; b++) {
        first[b] = (int32_t)n;
        past[b] = (int32_t)s[b].past;
        slot[b] = (int32_t)s[b].slot;
        to[b] = 2 * slot[b];
        from[b] = in_place ? to[b] : to[b] + 1;
        for (size_t t = 0; t < s[b].rows; t++, n++) {
            sequence[n] = (int32_t)b;
            position[n] = (int32_t)(s[b].past + t);
        }
    }
    first[r.B] = (int32_t)n;
    r.sequence = sequence, r.position = position, r.first = first, r.past = past;
    r.slot = slot, r.from = from, r.to = to;
    return r;
}

static struct attention_args attention_of(struct ddl_ragged r, size_t H, size_t h, size_t format)
{
    return attention_case((struct attention_args){ .B = 1, .T = r.N, .H = H, .h = h, .ragged = r }, SLOTS,
                          r.max_span, 2, (enum attention_format)format);
}

static void test_attention(void **state)
{
    (void)state;
    static const size_t heads[][2] = { { 1, 1 }, { 3, 64 }, { 2, 63 }, { 1, 100 } };
    enum { FORMATS = ATTENTION_FORMATS };
    for (size_t i = 0; i < BATCHES * 4 * FORMATS; i++) {
        struct ddl_ragged r = ragged_of(batches[i / 4 / FORMATS], false);
        const size_t *head = heads[i / FORMATS % 4];
        compare_attention(attention_of(r, head[0], head[1], i % FORMATS), r.max_span, 2e-6);
        release_all();
    }
}

/* ---- in pieces as in one ---- */

enum { T = 40, D = 21, C = 3, K = 4, H = 2, WIDTH = 14 };

/* Two sequences of T rows, through the ops in pieces: rows of pieces of the first, then of the second. */
struct whole {
    const struct ddl_backend *backend;
    float *X, *e, *x_in, *q, *k, *v, *y; /* dense: (2, T, ...) */
    float *x_in_found, *y_found, *history, *K_cache, *V_cache;
};

static void gather(float *to, const float *from, const struct sequence *s, size_t width)
{
    for (size_t b = 0; b < 2; to += s[b++].rows * width)
        memcpy(to, from + (s[b].slot * T + s[b].past) * width, s[b].rows * width * sizeof *to);
}

static void scatter(float *to, const float *from, const struct sequence *s, size_t width)
{
    for (size_t b = 0; b < 2; from += s[b++].rows * width)
        memcpy(to + (s[b].slot * T + s[b].past) * width, from, s[b].rows * width * sizeof *to);
}

static void run_piece(struct whole *w, const struct sequence *s)
{
    const struct ddl_backend *on = w->backend;
    struct ddl_ragged r = ragged_of(s, true);
    float *X = some_floats(r.N * D * C), *x_in = some_floats(r.N * D), *q = some_floats(r.N * WIDTH),
          *y = some_floats(r.N * WIDTH);
    gather(X, w->X, s, D * C);
    on->ops->compress_fwd(on->ctx, &(struct compress_args){ .B = 1,
                                                            .T = r.N,
                                                            .d = D,
                                                            .c = C,
                                                            .taps = K,
                                                            .X = X,
                                                            .e = w->e,
                                                            .x_in = x_in,
                                                            .ragged = r,
                                                            .history = w->history });
    on->ops->history_push(on->ctx, &(struct history_push_args){ r, K - 1, D * C, X, w->history });
    scatter(w->x_in_found, x_in, s, D);
    gather(q, w->k, s, WIDTH);
    struct cache_append_args append = { .ragged = r,
                                        .width = WIDTH,
                                        .src = q,
                                        .src_stride = WIDTH,
                                        .dst = w->K_cache,
                                        .slot_stride = T * WIDTH };
    on->ops->cache_append(on->ctx, &append);
    gather(q, w->v, s, WIDTH);
    append.dst = w->V_cache;
    on->ops->cache_append(on->ctx, &append);
    gather(q, w->q, s, WIDTH);
    on->ops->attention_fwd(on->ctx, &(struct attention_args){ .B = 1,
                                                              .T = r.N,
                                                              .H = H,
                                                              .h = WIDTH / H,
                                                              .ragged = r,
                                                              .scale = 0.5f,
                                                              .q = q,
                                                              .q_stride = WIDTH,
                                                              .k = w->K_cache,
                                                              .v = w->V_cache,
                                                              .k_stride = WIDTH,
                                                              .v_stride = WIDTH,
                                                              .k_batch = T * WIDTH,
                                                              .v_batch = T * WIDTH,
                                                              .y = y });
    scatter(w->y_found, y, s, WIDTH);
}

static void run_whole(struct whole *w)
{
    const struct ddl_backend *on = w->backend;
    on->ops->compress_fwd(
        on->ctx, &(struct compress_args){
                     .B = 2, .T = T, .d = D, .c = C, .taps = K, .X = w->X, .e = w->e, .x_in = w->x_in });
    on->ops->attention_fwd(on->ctx, &(struct attention_args){ .B = 2,
                                                              .T = T,
                                                              .H = H,
                                                              .h = WIDTH / H,
                                                              .scale = 0.5f,
                                                              .q = w->q,
                                                              .q_stride = WIDTH,
                                                              .k = w->k,
                                                              .v = w->v,
                                                              .k_stride = WIDTH,
                                                              .v_stride = WIDTH,
                                                              .k_batch = T * WIDTH,
                                                              .v_batch = T * WIDTH,
                                                              .y = w->y });
}

static void pieces_are_the_whole(void **state)
{
    (void)state;
    static const struct sequence pieces[][2] = {
        { { 0, 1, 1 }, { 0, 20, 0 } },  { { 1, 1, 1 }, { 20, 2, 0 } },   { { 2, 1, 1 }, { 22, 1, 0 } },
        { { 3, 13, 1 }, { 23, 4, 0 } }, { { 16, 2, 1 }, { 27, 12, 0 } }, { { 18, 22, 1 }, { 39, 1, 0 } },
    };
    struct ddl_backend *backends[2] = { NULL, cpu_backend(NULL, 2) };
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backends[0], "ref", 1, &err), err);
    for (size_t i = 0; i < 2; i++) {
        size_t tokens = 2 * T;
        struct whole w = { .backend = backends[i],
                           .X = some_floats(tokens * D * C),
                           .e = some_floats(K * D * C),
                           .x_in = some_floats(tokens * D),
                           .q = some_floats(tokens * WIDTH),
                           .k = some_floats(tokens * WIDTH),
                           .v = some_floats(tokens * WIDTH),
                           .y = some_floats(tokens * WIDTH),
                           .x_in_found = some_floats(tokens * D),
                           .y_found = some_floats(tokens * WIDTH),
                           .history = some_floats(4 * (K - 1) * D * C),
                           .K_cache = some_floats(tokens * WIDTH),
                           .V_cache = some_floats(tokens * WIDTH) };
        run_whole(&w);
        for (size_t piece = 0; piece < sizeof pieces / sizeof *pieces; piece++) {
            struct sequence s[MAX_B] = { pieces[piece][0], pieces[piece][1] };
            run_piece(&w, s);
        }
        assert_memory_equal(w.x_in_found, w.x_in, tokens * D * sizeof *w.x_in);
        assert_true(relative_error(tokens * WIDTH, w.y_found, w.y) <= 2e-6);
        release_all();
        ddl_backend_free(backends[i]);
    }
}

/* ---- a sequence's result does not depend on the others ---- */

static void each_sequence_by_itself(void **state)
{
    (void)state;
    struct ddl_backend *cpu = cpu_backend(NULL, 2);
    for (size_t i = 0; i < BATCHES * ATTENTION_FORMATS; i++) {
        const struct sequence *batch = batches[i / ATTENTION_FORMATS];
        struct ddl_ragged r = ragged_of(batch, false);
        struct attention_args all = attention_of(r, 3, 48, i % ATTENTION_FORMATS);
        size_t width = 144;
        all.y = some_floats(r.N * width);
        float *alone = some_floats(r.N * width);
        call_attention_fwd(cpu, &all);
        for (size_t b = 0; b < r.B; b++) {
            struct sequence s[MAX_B] = { batch[b] };
            size_t first = (size_t)r.first[b];
            struct attention_args one = all;
            one.ragged = ragged_of(s, false);
            one.T = one.ragged.N;
            if (one.q16)
                one.q16 += first * one.q_stride;
            else
                one.q += first * one.q_stride;
            one.y = alone + first * width;
            call_attention_fwd(cpu, &one);
        }
        assert_memory_equal(alone, all.y, r.N * width * sizeof *alone);
        release_all();
    }
    ddl_backend_free(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(each_sequence_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
