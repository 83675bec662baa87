/* Nonblocking reduce-scatter and all-gather of floats.
 *
 * In a reduce-scatter each rank sends piece r to rank r, which adds the pieces in the order of the ranks. A
 * library's own reduction may use any order, also another one in the next run. */
#include "comm/internal.h"

#include "base/bf16.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum { CUT = 16, BLOCK = 1024 };

struct ddl_comm_exchange {
    ddl_comm *comm;
    size_t capacity;
    enum ddl_comm_dtype dtype;
    struct ddl_comm_batch batch;
    unsigned char *received; /* (size - 1, largest piece) pieces of the other ranks, in their order */
    uint16_t *rounded;       /* BF16: (capacity) */
    size_t n;
    float *x;
    bool is_in_flight, sums;
};

size_t ddl_comm_cut(size_t n, size_t size, size_t rank)
{
    size_t blocks = (n + CUT - 1) / CUT, begin = blocks * rank / size * CUT;
    return begin < n ? begin : n;
}

static size_t largest_piece(size_t n, size_t size)
{
    size_t blocks = (n + CUT - 1) / CUT;
    return (blocks + size - 1) / size * CUT;
}

static size_t element_bytes(enum ddl_comm_dtype dtype)
{
    return dtype == DDL_COMM_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static size_t received_bytes(size_t capacity, size_t size, enum ddl_comm_dtype dtype)
{
    return (size - 1) * largest_piece(capacity, size) * element_bytes(dtype);
}

static size_t rounded_bytes(size_t capacity, size_t size, enum ddl_comm_dtype dtype)
{
    return size > 1 && dtype == DDL_COMM_BF16 ? capacity * sizeof(uint16_t) : 0;
}

size_t ddl_comm_exchange_bytes(size_t capacity, size_t size, enum ddl_comm_dtype dtype)
{
    return received_bytes(capacity, size, dtype) + rounded_bytes(capacity, size, dtype);
}

size_t ddl_comm_exchange_traffic(size_t n, size_t size, enum ddl_comm_dtype dtype)
{
    size_t most = 0;
    for (size_t r = 0; r < size; r++) {
        size_t own = ddl_comm_cut(n, size, r + 1) - ddl_comm_cut(n, size, r);
        most = n - own > most ? n - own : most;
    }
    return most * element_bytes(dtype);
}

ddl_status ddl_comm_exchange_create(struct ddl_comm_exchange **out, ddl_comm *comm, size_t capacity,
                                    enum ddl_comm_dtype dtype, struct ddl_error *err)
{
    size_t size = ddl_comm_size(comm);
    *out = NULL;
    if (!comm)
        return DDL_OK;
    struct ddl_comm_exchange *e = ddl_mem_zalloc(sizeof *e);
    if (e) {
        e->comm = comm;
        e->capacity = capacity;
        e->dtype = dtype;
        e->batch.transfers = ddl_mem_alloc(ddl_comm_transfers(size) * sizeof *e->batch.transfers);
        e->received = ddl_mem_alloc(received_bytes(capacity, size, dtype));
        e->rounded = ddl_mem_alloc(rounded_bytes(capacity, size, dtype));
    }
    if (!e || !e->batch.transfers || !e->received || !e->rounded) {
        ddl_comm_exchange_free(e);
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the exchange of %zu floats", capacity);
    }
    *out = e;
    return DDL_OK;
}

void ddl_comm_exchange_free(struct ddl_comm_exchange *e)
{
    if (!e)
        return;
    assert(!e->is_in_flight);
    ddl_mem_free(e->batch.transfers);
    ddl_mem_free(e->received);
    ddl_mem_free(e->rounded);
    ddl_mem_free(e);
}

/* Where the piece of another rank is received. */
static unsigned char *received_piece(const struct ddl_comm_exchange *e, size_t from)
{
    size_t rank = ddl_comm_rank(e->comm), slot = from < rank ? from : from - 1;
    size_t piece = largest_piece(e->n, ddl_comm_size(e->comm));
    return e->received + slot * piece * element_bytes(e->dtype);
}

static size_t piece_size(const struct ddl_comm_exchange *e, size_t rank)
{
    size_t size = ddl_comm_size(e->comm);
    return ddl_comm_cut(e->n, size, rank + 1) - ddl_comm_cut(e->n, size, rank);
}

static void begin(struct ddl_comm_exchange *e, size_t n, float *x, bool sums)
{
    assert(!e->is_in_flight && n <= e->capacity);
    e->n = n;
    e->x = x;
    e->sums = sums;
    e->is_in_flight = true;
    ddl_comm_batch_begin(e->comm, &e->batch);
}

void ddl_comm_reduce_scatter_start(struct ddl_comm_exchange *e, size_t n, float *x)
{
    if (!e)
        return;
    size_t size = ddl_comm_size(e->comm), rank = ddl_comm_rank(e->comm), bytes = element_bytes(e->dtype);
    int tag = ddl_comm_next_tag(e->comm);
    begin(e, n, x, true);
    const unsigned char *source = (const unsigned char *)x;
    if (size > 1 && e->dtype == DDL_COMM_BF16) {
        for (size_t i = 0; i < n; i++)
            e->rounded[i] = ddl_bf16_round(x[i]);
        source = (const unsigned char *)e->rounded;
    }
    for (size_t i = 1; i < size; i++) {
        size_t from = (rank + size - i) % size;
        ddl_comm_batch_receive(&e->batch, from, tag, piece_size(e, rank) * bytes, received_piece(e, from));
    }
    for (size_t i = 1; i < size; i++) {
        size_t to = (rank + i) % size;
        ddl_comm_batch_send(&e->batch, to, tag, piece_size(e, to) * bytes,
                            source + ddl_comm_cut(n, size, to) * bytes);
    }
    ddl_comm_batch_start(e->comm, &e->batch);
}

void ddl_comm_all_gather_start(struct ddl_comm_exchange *e, size_t n, float *x)
{
    if (!e)
        return;
    size_t size = ddl_comm_size(e->comm), rank = ddl_comm_rank(e->comm);
    int tag = ddl_comm_next_tag(e->comm);
    begin(e, n, x, false);
    for (size_t i = 1; i < size; i++) {
        size_t from = (rank + size - i) % size;
        ddl_comm_batch_receive(&e->batch, from, tag, piece_size(e, from) * sizeof *x,
                               x + ddl_comm_cut(n, size, from));
    }
    for (size_t i = 1; i < size; i++)
        ddl_comm_batch_send(&e->batch, (rank + i) % size, tag, piece_size(e, rank) * sizeof *x,
                            x + ddl_comm_cut(n, size, rank));
    ddl_comm_batch_start(e->comm, &e->batch);
}

/* sum (n) += floats [first, first + n) of a rank's piece. */
static void add_piece(const struct ddl_comm_exchange *e, size_t rank, size_t first, size_t n, float *sum)
{
    size_t own = ddl_comm_rank(e->comm), begin_own = ddl_comm_cut(e->n, ddl_comm_size(e->comm), own);
    if (e->dtype == DDL_COMM_BF16) {
        const uint16_t *piece =
            rank == own ? e->rounded + begin_own : (const uint16_t *)received_piece(e, rank);
        for (size_t i = 0; i < n; i++)
            sum[i] += ddl_bf16_widen(piece[first + i]);
    } else {
        const float *piece = rank == own ? e->x + begin_own : (const float *)received_piece(e, rank);
        for (size_t i = 0; i < n; i++)
            sum[i] += piece[first + i];
    }
}

static void sum_pieces(const struct ddl_comm_exchange *e)
{
    size_t size = ddl_comm_size(e->comm), own = ddl_comm_rank(e->comm), n = piece_size(e, own);
    float *x = e->x + ddl_comm_cut(e->n, size, own), sum[BLOCK];
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t count = n - first < BLOCK ? n - first : BLOCK;
        for (size_t i = 0; i < count; i++)
            sum[i] = -0.0f; /* the neutral element of addition, for 0 and -0 */
        for (size_t r = 0; r < size; r++)
            add_piece(e, r, first, count, sum);
        memcpy(x + first, sum, count * sizeof *sum);
    }
}

void ddl_comm_finish(struct ddl_comm_exchange *e)
{
    if (!e || !e->is_in_flight)
        return;
    ddl_comm_batch_wait(e->comm, &e->batch);
    if (e->sums && ddl_comm_size(e->comm) > 1)
        sum_pieces(e);
    e->is_in_flight = false;
}
