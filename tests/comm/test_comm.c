/* comm/comm.h: every collective with one to four ranks, against sums in the order of the ranks; time limits
 * and aborts. Ranks are threads (support/thread_comm.h). With an argument the program is itself a rank under
 * mpirun and runs what the argument names on the ranks that there are: tests/comm/mpi.sh. */
#define _POSIX_C_SOURCE 200809L
#include "support/support.h"
#include "support/thread_comm.h"

#include "base/bf16.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/process.h"
#include "comm/comm.h"
#include "comm/internal.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 4 };

/* ---- what every transport must do: bodies of ranks ---- */

static void names(ddl_comm *comm, void *user)
{
    (void)user;
    uint64_t seen[MAX_RANKS] = { 0 };
    assert_true(ddl_comm_rank(comm) < ddl_comm_size(comm));
    seen[ddl_comm_rank(comm)] = 1;
    ddl_comm_sum_u64(comm, MAX_RANKS, seen);
    for (size_t r = 0; r < ddl_comm_size(comm); r++) {
        assert_int_equal(seen[r], 1);
        assert_true(strlen(ddl_comm_host(comm, r)) > 0);
    }
}

/* `user`: a counter that all ranks share, if they are threads. */
static void barrier(ddl_comm *comm, void *user)
{
    atomic_size_t *counter = user;
    for (size_t i = 1; i <= 100; i++) {
        if (counter)
            atomic_fetch_add(counter, 1);
        ddl_comm_barrier(comm);
        if (counter)
            assert_true(atomic_load(counter) >= i * ddl_comm_size(comm));
    }
}

/* Number i of a rank: sums of them depend on the order. */
static double number(size_t rank, size_t i)
{
    static const double scale[MAX_RANKS] = { 1e16, 1, -1e16, 3 };
    return scale[rank % MAX_RANKS] * (1 + 1e-3 * (double)i);
}

static void sums(ddl_comm *comm, void *user)
{
    (void)user;
    static const size_t sizes[] = { 0, 1, 255, 256, 257, 1000 };
    size_t size = ddl_comm_size(comm), rank = ddl_comm_rank(comm);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double x[1000];
        uint64_t sum[1000], max[1000];
        for (size_t i = 0; i < sizes[s]; i++) {
            x[i] = number(rank, i);
            sum[i] = i << 40 | rank;
            max[i] = i == 7 ? UINT64_MAX - rank : i + rank;
        }
        ddl_comm_sum_f64(comm, sizes[s], x);
        ddl_comm_sum_u64(comm, sizes[s], sum);
        ddl_comm_max_u64(comm, sizes[s], max);
        for (size_t i = 0; i < sizes[s]; i++) {
            double expected = number(0, i);
            for (size_t r = 1; r < size; r++)
                expected += number(r, i);
            assert_memory_equal(&x[i], &expected, sizeof expected);
            assert_true(sum[i] == (i << 40) * size + size * (size - 1) / 2);
            assert_true(max[i] == (i == 7 ? UINT64_MAX : i + size - 1));
        }
    }
}

static unsigned char byte(size_t rank, size_t i)
{
    return (unsigned char)(31 * rank + 7 * i + i / 256);
}

static void gather(ddl_comm *comm, void *user)
{
    (void)user;
    static const size_t sizes[] = { 0, 1, 7, 1000, 100000 };
    size_t size = ddl_comm_size(comm), rank = ddl_comm_rank(comm);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t bytes = sizes[s];
        for (int in_place = 0; in_place < 2; in_place++) {
            unsigned char *mine = malloc(bytes + 1), *all = calloc(size, bytes + 1);
            assert_true(mine && all);
            unsigned char *own = in_place ? all + rank * bytes : mine;
            for (size_t i = 0; i < bytes; i++)
                own[i] = byte(rank, i);
            ddl_comm_gather(comm, bytes, own, all);
            for (size_t i = 0; i < size * bytes; i++)
                assert_int_equal(all[i], byte(i / bytes, i % bytes));
            free(mine);
            free(all);
        }
    }
}

static void broadcast(ddl_comm *comm, void *user)
{
    (void)user;
    static const size_t sizes[] = { 0, 1, 100, 200000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t root = 0; root < ddl_comm_size(comm); root++) {
            unsigned char *data = calloc(1, sizes[s] + 1);
            assert_non_null(data);
            for (size_t i = 0; ddl_comm_rank(comm) == root && i < sizes[s]; i++)
                data[i] = byte(root, i);
            ddl_comm_broadcast(comm, root, sizes[s], data);
            for (size_t i = 0; i < sizes[s]; i++)
                assert_int_equal(data[i], byte(root, i));
            assert_int_equal(data[sizes[s]], 0);
            free(data);
        }
    }
}

/* Each rank sends messages of all sizes to rank 0, which receives them rank by rank. */
static void messages(ddl_comm *comm, void *user)
{
    (void)user;
    static const size_t sizes[] = { 1, 0, 5000, 3, 1 << 20 };
    size_t rank = ddl_comm_rank(comm);
    for (size_t r = 1; r < ddl_comm_size(comm); r++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes && (rank == 0 || rank == r); s++) {
            unsigned char *data = calloc(1, sizes[s] + 1);
            assert_non_null(data);
            for (size_t i = 0; rank == r && i < sizes[s]; i++)
                data[i] = byte(r + s, i);
            if (rank == r)
                ddl_comm_send(comm, 0, sizes[s], data);
            else
                ddl_comm_receive(comm, r, sizes[s], data);
            for (size_t i = 0; i < sizes[s]; i++)
                assert_int_equal(data[i], byte(r + s, i));
            free(data);
        }
    }
}

/* The summands of a rank, as they are sent. */
static float *summands(size_t rank, size_t n, enum ddl_comm_dtype dtype)
{
    float *x = random_floats(n, 100 + rank);
    for (size_t i = 0; dtype == DDL_COMM_BF16 && i < n; i++)
        x[i] = ddl_bf16_widen(ddl_bf16_round(x[i]));
    return x;
}

/* sum (n) = the sum over all ranks, in their order. */
static float *expected_sum(size_t size, size_t n, enum ddl_comm_dtype dtype)
{
    float *sum = summands(0, n, dtype);
    for (size_t r = 1; r < size; r++) {
        float *x = summands(r, n, dtype);
        for (size_t i = 0; i < n; i++)
            sum[i] += x[i];
        ddl_mem_free(x);
    }
    return sum;
}

static const size_t lengths[] = { 0, 1, 15, 16, 17, 33, 100, 1000, 70001 };
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static void check_reduce_scatter(ddl_comm *comm, size_t n, enum ddl_comm_dtype dtype)
{
    struct ddl_comm_exchange *exchange;
    struct ddl_error err;
    size_t size = ddl_comm_size(comm), rank = ddl_comm_rank(comm);
    size_t begin = ddl_comm_cut(n, size, rank), end = ddl_comm_cut(n, size, rank + 1);
    float *x = random_floats(n, 100 + rank), *before = random_floats(n, 100 + rank);
    float *sum = expected_sum(size, n, size > 1 ? dtype : DDL_COMM_F32);
    assert_ok(ddl_comm_exchange_create(&exchange, comm, n, dtype, &err), err);
    ddl_comm_reduce_scatter_start(exchange, n, x);
    ddl_comm_progress(comm);
    ddl_comm_finish(exchange);
    ddl_comm_finish(exchange);
    assert_memory_equal(x + begin, sum + begin, (end - begin) * sizeof *x);
    assert_memory_equal(x, before, begin * sizeof *x);
    assert_memory_equal(x + end, before + end, (n - end) * sizeof *x);
    ddl_comm_exchange_free(exchange);
    ddl_mem_free(x);
    ddl_mem_free(before);
    ddl_mem_free(sum);
}

static void reduce_scatter(ddl_comm *comm, void *user)
{
    (void)user;
    for (size_t i = 0; i < N_LENGTHS; i++) {
        check_reduce_scatter(comm, lengths[i], DDL_COMM_F32);
        check_reduce_scatter(comm, lengths[i], DDL_COMM_BF16);
    }
}

static void all_gather(ddl_comm *comm, void *user)
{
    (void)user;
    size_t size = ddl_comm_size(comm), rank = ddl_comm_rank(comm);
    for (size_t i = 0; i < N_LENGTHS; i++) {
        size_t n = lengths[i], begin = ddl_comm_cut(n, size, rank), end = ddl_comm_cut(n, size, rank + 1);
        struct ddl_comm_exchange *exchange;
        struct ddl_error err;
        float *x = poisoned_floats(n), *expected = random_floats(n, 1);
        memcpy(x + begin, expected + begin, (end - begin) * sizeof *x);
        /* The format of summands has no effect. */
        assert_ok(ddl_comm_exchange_create(&exchange, comm, n, DDL_COMM_BF16, &err), err);
        ddl_comm_all_gather_start(exchange, n, x);
        ddl_comm_finish(exchange);
        assert_memory_equal(x, expected, n * sizeof *x);
        ddl_comm_exchange_free(exchange);
        ddl_mem_free(x);
        ddl_mem_free(expected);
    }
}

/* Several exchanges in flight, finished in another order, with blocking calls between. */
static void overlap(ddl_comm *comm, void *user)
{
    (void)user;
    enum { IN_FLIGHT = 5, N = 3000 };
    size_t size = ddl_comm_size(comm), rank = ddl_comm_rank(comm);
    struct ddl_comm_exchange *exchanges[IN_FLIGHT];
    float *x[IN_FLIGHT], *expected = expected_sum(size, N, DDL_COMM_F32);
    struct ddl_error err;
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        x[i] = random_floats(N, 100 + rank);
        assert_ok(ddl_comm_exchange_create(&exchanges[i], comm, N, DDL_COMM_F32, &err), err);
    }
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < IN_FLIGHT; i++) {
            float *fresh = random_floats(N, 100 + rank);
            memcpy(x[i], fresh, N * sizeof *fresh);
            ddl_mem_free(fresh);
            ddl_comm_reduce_scatter_start(exchanges[i], N, x[i]);
            uint64_t ranks = 1;
            ddl_comm_sum_u64(comm, 1, &ranks);
            assert_int_equal(ranks, size);
        }
        for (size_t i = 0; i < IN_FLIGHT; i++)
            ddl_comm_finish(exchanges[(i + rank + 2) % IN_FLIGHT]);
        for (size_t i = 0; i < IN_FLIGHT; i++)
            ddl_comm_all_gather_start(exchanges[i], N, x[i]);
        for (size_t i = 0; i < IN_FLIGHT; i++) {
            ddl_comm_finish(exchanges[i]);
            assert_memory_equal(x[i], expected, N * sizeof *expected);
        }
    }
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        ddl_comm_exchange_free(exchanges[i]);
        ddl_mem_free(x[i]);
    }
    ddl_mem_free(expected);
}

/* Data larger than a message may hold. */
static void split_messages(ddl_comm *comm, void *user)
{
    if (comm)
        comm->message_limit = 64;
    gather(comm, user);
    check_reduce_scatter(comm, 1000, DDL_COMM_F32);
    check_reduce_scatter(comm, 1001, DDL_COMM_BF16);
    if (comm)
        comm->message_limit = SIZE_MAX;
}

/* `failing`: a bit per rank. All ranks get the error of the first. */
static void check_agree(ddl_comm *comm, unsigned failing)
{
    size_t size = ddl_comm_size(comm), rank = ddl_comm_rank(comm), first = 0;
    struct ddl_error err = { 0 };
    failing &= (1u << size) - 1;
    ddl_status status = DDL_OK;
    if (failing >> rank & 1)
        status = ddl_error_set(&err, DDL_E_IO, "file %zu: missing", rank);
    status = ddl_comm_agree(comm, status, &err);
    if (!failing) {
        assert_int_equal(status, DDL_OK);
        return;
    }
    while (!(failing >> first & 1))
        first++;
    char expected[256] = "", text[64];
    if (size > 1)
        snprintf(expected, sizeof expected, "rank %zu of %zu (host %s): ", first, size,
                 ddl_comm_host(comm, first));
    snprintf(text, sizeof text, "file %zu: missing", first);
    strcat(expected, text);
    assert_int_equal(status, DDL_E_IO);
    assert_int_equal(err.status, DDL_E_IO);
    assert_string_equal(err.text, expected);
}

static void agree(ddl_comm *comm, void *user)
{
    (void)user;
    for (unsigned failing = 0; failing < 1 << MAX_RANKS; failing++)
        check_agree(comm, failing);
    struct ddl_error err;
    ddl_status status = ddl_error_set(&err, DDL_E_USAGE, "steps: missing");
    assert_int_equal(ddl_comm_agree(comm, status, &err), DDL_E_USAGE);
    assert_string_equal(err.text, "steps: missing"); /* the same everywhere */
}

static const struct {
    const char *name;
    thread_comm_body *run;
} bodies[] = {
    { "names", names },
    { "barrier", barrier },
    { "sums", sums },
    { "gather", gather },
    { "broadcast", broadcast },
    { "messages", messages },
    { "reduce_scatter", reduce_scatter },
    { "all_gather", all_gather },
    { "overlap", overlap },
    { "split_messages", split_messages },
    { "agree", agree },
};
enum { N_BODIES = sizeof bodies / sizeof *bodies };

static void one_to_four_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_BODIES; i++) {
        for (size_t size = 1; size <= MAX_RANKS; size++) {
            atomic_size_t counter = 0;
            thread_comm_run(size, bodies[i].run, bodies[i].run == barrier ? &counter : NULL);
        }
    }
}

static void no_communicator(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_BODIES; i++)
        bodies[i].run(NULL, NULL);
    assert_string_equal(ddl_comm_host(NULL, 0), "localhost");
    ddl_comm_describe(NULL, "nothing");
    ddl_comm_set_time_limit(NULL, 1);
    ddl_comm_progress(NULL);
    ddl_comm_close(NULL);
}

/* ---- pieces and sizes ---- */

static void cuts(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 9; size++) {
        for (size_t n = 0; n < 400; n++) {
            size_t least = SIZE_MAX, most = 0;
            assert_int_equal(ddl_comm_cut(n, size, 0), 0);
            assert_int_equal(ddl_comm_cut(n, size, size), n);
            for (size_t r = 0; r < size; r++) {
                size_t begin = ddl_comm_cut(n, size, r), end = ddl_comm_cut(n, size, r + 1);
                assert_true(begin <= end && (begin == n || begin % 16 == 0));
                least = end - begin < least ? end - begin : least;
                most = end - begin > most ? end - begin : most;
            }
            assert_true(most - least <= 31); /* 16, and less than 16 that the last piece lacks */
            assert_int_equal(ddl_comm_exchange_traffic(n, size, DDL_COMM_F32), (n - least) * 4);
            assert_int_equal(ddl_comm_exchange_traffic(n, size, DDL_COMM_BF16), (n - least) * 2);
        }
    }
    assert_int_equal(ddl_comm_exchange_bytes(1024, 4, DDL_COMM_F32), 3 * 256 * 4);
    assert_int_equal(ddl_comm_exchange_bytes(1024, 4, DDL_COMM_BF16), 3 * 256 * 2 + 1024 * 2);
    assert_int_equal(ddl_comm_exchange_bytes(1024, 1, DDL_COMM_BF16), 0);
}

/* ---- cores ---- */

/* A host of four ranks, and one of one. On the first, two ranks may use the same cores. */
static void divide_cores(ddl_comm *comm, void *user)
{
    (void)user;
    static const uint64_t cores[] = { 7, 8, 7, 9, 7 };
    const size_t rank = ddl_comm_rank(comm), own = ddl_process_cores(), half = own / 2 ? own / 2 : 1;
    const size_t expected[] = { half, own, half, own, 0 };
    for (size_t r = 0; r < 5; r++) {
        assert_true(comm->cores[r] == ddl_process_cores_hash());
        comm->cores[r] = cores[r];
        strcpy(comm->hosts[r], r < 4 ? "a" : "b");
    }
    assert_int_equal(ddl_comm_threads(comm, 0), expected[rank]);
    assert_int_equal(ddl_comm_threads(comm, 3), 3);
}

static void ranks_divide_the_cores_that_they_share(void **state)
{
    (void)state;
    thread_comm_run(5, divide_cores, NULL);
    assert_int_equal(ddl_comm_threads(NULL, 0), 0);
}

/* ---- ranks that fail ---- */

/* The time limit of the ranks. On a busy machine a rank that does not hang may be too late for a short one.
 */
static double limit_seconds;

/* Runs the ranks with longer and longer limits until the job ends with the expected message, a format for the
 * limit. */
static void assert_ends_with(size_t ranks, thread_comm_body *body, void *user, const char *format)
{
    char expected[512];
    struct thread_comm_end end = { 0 };
    for (limit_seconds = 0.5; limit_seconds < 100; limit_seconds *= 4) {
        end = thread_comm_try(ranks, body, user);
        assert_true(end.is_aborted);
        snprintf(expected, sizeof expected, "%s", format);
        char *number = strstr(expected, "LIMIT");
        if (number)
            snprintf(number, sizeof expected - (size_t)(number - expected), "%g%s", limit_seconds,
                     strstr(format, "LIMIT") + strlen("LIMIT"));
        if (strcmp(end.message, expected) == 0)
            return;
    }
    assert_string_equal(end.message, expected);
}

/* `user`: a bit for each rank that hangs. */
static void some_hang(ddl_comm *comm, void *user)
{
    const unsigned *hanging = user;
    ddl_comm_set_time_limit(comm, limit_seconds);
    ddl_comm_barrier(comm);
    if (*hanging >> ddl_comm_rank(comm) & 1)
        thread_comm_hang(comm);
    ddl_comm_describe(comm, "the gradients of step %d", 120);
    ddl_comm_barrier(comm);
}

static void hanging_ranks_are_named(void **state)
{
    (void)state;
    static const struct {
        unsigned hanging;
        const char *expected;
    } rows[] = {
        { 1u << 3,
          "ddl: rank 0 of 4 on host0: rank 3 (host host3) did not reach the gradients of step 120 within "
          "LIMIT s" },
        { 1u << 0 | 1u << 2,
          "ddl: rank 1 of 4 on host1: ranks 0 (host host0), 2 (host host2) did not reach the "
          "gradients of step 120 within LIMIT s" },
        { 7,
          "ddl: rank 3 of 4 on host3: ranks 0 (host host0), 1 (host host1), 2 (host host2) did not reach the "
          "gradients of step 120 within LIMIT s" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned hanging = rows[i].hanging;
        assert_ends_with(MAX_RANKS, some_hang, &hanging, rows[i].expected);
    }
}

/* Of many ranks only the first are named. */
static void many_hanging_ranks(void **state)
{
    (void)state;
    unsigned hanging = 0x7fe;
    assert_ends_with(
        12, some_hang, &hanging,
        "ddl: rank 0 of 12 on host0: ranks 1 (host host1), 2 (host host2), 3 (host host3), 4 (host "
        "host4), 5 (host host5), 6 (host host6), 7 (host host7), 8 (host host8) and 2 more did not "
        "reach the gradients of step 120 within LIMIT s");
}

/* An exchange keeps the description that it was started with. */
static void exchange_hangs(ddl_comm *comm, void *user)
{
    (void)user;
    static struct ddl_comm_exchange *exchanges[MAX_RANKS]; /* in flight at the end, therefore never freed */
    static float x[MAX_RANKS][100];
    struct ddl_error err;
    size_t rank = ddl_comm_rank(comm);
    ddl_comm_set_time_limit(comm, limit_seconds);
    if (rank == 1)
        thread_comm_hang(comm);
    assert_ok(ddl_comm_exchange_create(&exchanges[rank], comm, 100, DDL_COMM_F32, &err), err);
    ddl_comm_describe(comm, "bucket 7");
    ddl_comm_reduce_scatter_start(exchanges[rank], 100, x[rank]);
    ddl_comm_describe(comm, "something else");
    ddl_comm_finish(exchanges[rank]);
}

static void hanging_exchange(void **state)
{
    (void)state;
    assert_ends_with(3, exchange_hangs, NULL,
                     "ddl: rank 0 of 3 on host0: rank 1 (host host1) did not reach bucket 7 within LIMIT s");
}

/* Complete at the third call. */
static bool third_time(void *user)
{
    int *calls = user;
    return ++*calls == 3;
}

static void wait_until(ddl_comm *comm, void *user)
{
    (void)user;
    int calls = 0;
    ddl_comm_wait_until(comm, third_time, &calls);
    assert_int_equal(calls, comm ? 3 : 0);
}

static void waiting_for_a_condition(void **state)
{
    (void)state;
    thread_comm_run(2, wait_until, NULL);
    wait_until(NULL, NULL);
}

static bool never(void *user)
{
    (void)user;
    return false;
}

/* Rank 1 does not come. */
static void condition_fails(ddl_comm *comm, void *user)
{
    (void)user;
    ddl_comm_set_time_limit(comm, limit_seconds);
    ddl_comm_describe(comm, "step 7");
    if (ddl_comm_rank(comm) == 1)
        thread_comm_hang(comm);
    ddl_comm_wait_until(comm, never, NULL);
}

static void hanging_condition(void **state)
{
    (void)state;
    assert_ends_with(3, condition_fails, NULL,
                     "ddl: rank 0 of 3 on host0: rank 1 (host host1) did not reach step 7 within LIMIT s");
}

static void abort_call(ddl_comm *comm, void *user)
{
    (void)user;
    ddl_comm_describe(comm, "step 7");
    if (ddl_comm_rank(comm) == 1)
        ddl_comm_abort_call(comm, "the device is lost");
    ddl_comm_barrier(comm);
}

static void aborting_call(void **state)
{
    (void)state;
    struct thread_comm_end end = thread_comm_try(2, abort_call, NULL);
    assert_true(end.is_aborted);
    assert_string_equal(end.message, "ddl: rank 1 of 2 on host1: step 7: the device is lost");
}

static void calls_differ(ddl_comm *comm, void *user)
{
    (void)user;
    uint64_t x = 0;
    ddl_comm_set_time_limit(comm, limit_seconds);
    ddl_comm_describe(comm, ddl_comm_rank(comm) == 1 ? "the validation loss" : "the gradients");
    if (ddl_comm_rank(comm) == 1)
        ddl_comm_receive(comm, 0, sizeof x, &x);
    else
        ddl_comm_max_u64(comm, 1, &x);
}

static void different_calls(void **state)
{
    (void)state;
    assert_ends_with(3, calls_differ, NULL,
                     "ddl: rank 0 of 3 on host0: ranks wait for different calls: rank 0 (host host0) "
                     "for the gradients, rank 1 (host host1) for the validation loss");
}

/* Each rank waits for a message that the other does not send. */
static void all_receive(ddl_comm *comm, void *user)
{
    (void)user;
    char byte;
    ddl_comm_set_time_limit(comm, limit_seconds);
    ddl_comm_describe(comm, "a message");
    ddl_comm_receive(comm, ddl_comm_rank(comm) == 0 ? 1 : 0, 1, &byte);
}

static void lost_messages(void **state)
{
    (void)state;
    assert_ends_with(2, all_receive, NULL,
                     "ddl: rank 0 of 2 on host0: all ranks reached a message, but messages did not "
                     "arrive within LIMIT s: check the network between the hosts (with NCCL also the GPUs: "
                     "NCCL_DEBUG=INFO)");
}

static void rank_2_aborts(ddl_comm *comm, void *user)
{
    (void)user;
    ddl_comm_barrier(comm);
    if (ddl_comm_rank(comm) == 2)
        ddl_comm_abort(comm, "%s: cannot write: %d", "file", 28);
    ddl_comm_set_time_limit(comm, 0);
    ddl_comm_barrier(comm);
}

static void aborts_end_all_ranks(void **state)
{
    (void)state;
    for (size_t size = 3; size <= MAX_RANKS; size++) {
        char expected[128];
        snprintf(expected, sizeof expected, "ddl: rank 2 of %zu on host2: file: cannot write: 28", size);
        struct thread_comm_end end = thread_comm_try(size, rank_2_aborts, NULL);
        assert_true(end.is_aborted);
        assert_string_equal(end.message, expected);
    }
}

/* A slow rank does not end the job before the limit, nor without one. */
static void slow_rank(ddl_comm *comm, void *user)
{
    const double *limit = user;
    ddl_comm_set_time_limit(comm, *limit);
    if (ddl_comm_rank(comm) == 1)
        nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
    ddl_comm_barrier(comm);
}

static void slow_ranks_may_be_slow(void **state)
{
    (void)state;
    static const double limits[] = { 0, 60 };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        double limit = limits[i];
        thread_comm_run(3, slow_rank, &limit);
    }
}

struct late {
    bool hangs;     /* rank 2, in the last call */
    size_t queries; /* of rank 0 */
};

/* Rank 1 of three is later than the limit, but not by as much as the others wait for replies. */
static void late_rank(ddl_comm *comm, void *user)
{
    struct late *late_ranks = user;
    ddl_comm_set_time_limit(comm, limit_seconds);
    for (int i = 0; i < 2; i++) {
        double late = limit_seconds + 0.4 * (limit_seconds < 5 ? limit_seconds : 5);
        ddl_comm_describe(comm, "call %d", i);
        if (ddl_comm_rank(comm) == 1)
            nanosleep(&(struct timespec){ (time_t)late, (long)(1e9 * (late - (double)(time_t)late)) }, NULL);
        gather(comm, NULL);
    }
    if (ddl_comm_rank(comm) == 0)
        late_ranks->queries = (size_t)comm->n_queries;
    if (late_ranks->hangs && ddl_comm_rank(comm) == 2)
        thread_comm_hang(comm);
    ddl_comm_describe(comm, "the last call");
    ddl_comm_barrier(comm);
}

static void late_ranks_are_waited_for(void **state)
{
    (void)state;
    struct late late = { 0 };
    struct thread_comm_end end = { 0 };
    for (limit_seconds = 0.5; late.queries < 2 && limit_seconds < 30; limit_seconds *= 2) {
        late.queries = 0;
        end = thread_comm_try(3, late_rank, &late);
    }
    assert_false(end.is_aborted);
    assert_int_equal(late.queries, 2);
    late.hangs = true;
    assert_ends_with(
        3, late_rank, &late,
        "ddl: rank 0 of 3 on host0: rank 2 (host host2) did not reach the last call within LIMIT s");
}

/* Sleeps for so many seconds, without those in which the process is stopped. */
static void sleep_while_running(double seconds)
{
    double last = ddl_clock_seconds(), slept = 0;
    while (slept < seconds) {
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        double now = ddl_clock_seconds();
        slept += now - last < 0.5 ? now - last : 0;
        last = now;
    }
}

static void needs_half_of_the_limit(ddl_comm *comm, void *user)
{
    size_t *queries = user;
    ddl_comm_set_time_limit(comm, limit_seconds);
    if (ddl_comm_rank(comm) == 1)
        sleep_while_running(limit_seconds / 2);
    ddl_comm_barrier(comm);
    if (ddl_comm_rank(comm) == 0)
        *queries = (size_t)comm->n_queries;
}

/* Exit status 0 if no rank reached the limit. */
static int run_stopped_job(void)
{
    size_t queries = 0;
    struct thread_comm_end end = thread_comm_try(2, needs_half_of_the_limit, &queries);
    return end.is_aborted || queries > 0;
}

/* The time in which all ranks are stopped (scontrol suspend) does not count. */
static void stopped_jobs_continue(void **state)
{
    (void)state;
    int status = -1;
    for (limit_seconds = 2; status != 0 && limit_seconds < 20; limit_seconds *= 2) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            _exit(run_stopped_job());
        sleep_while_running(limit_seconds / 4);
        assert_int_equal(kill(pid, SIGSTOP), 0);
        sleep_while_running(1.5 * limit_seconds);
        assert_int_equal(kill(pid, SIGCONT), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    assert_int_equal(status, 0);
}

/* Rank 0 expects 8 bytes, and gets `user` bytes. */
static void send_another_size(ddl_comm *comm, void *user)
{
    const size_t *bytes = user;
    unsigned char data[16] = { 0 };
    ddl_comm_describe(comm, "step 7");
    if (ddl_comm_rank(comm) == 1)
        ddl_comm_send(comm, 0, *bytes, data);
    else
        ddl_comm_receive(comm, 1, 8, data);
}

static void sizes_differ(void **state)
{
    (void)state;
    static const size_t sizes[] = { 4, 16 };
    static const char *const found[] = { "4", "more" };
    for (size_t i = 0; i < 2; i++) {
        char expected[256];
        size_t bytes = sizes[i];
        struct thread_comm_end end = thread_comm_try(2, send_another_size, &bytes);
        snprintf(
            expected, sizeof expected,
            "ddl: rank 0 of 2 on host0: step 7: message of rank 1 (host host1): expected 8 bytes, found %s: "
            "the ranks do not run the same program with the same options",
            found[i]);
        assert_true(end.is_aborted);
        assert_string_equal(end.message, expected);
    }
}

/* Rank 1 makes the calls of ddl_comm_agree with other values. */
static void agree_with_another_program(ddl_comm *comm, void *user)
{
    (void)user;
    struct ddl_error err = { 0 }, all[2];
    uint64_t any = DDL_E_IO;
    if (ddl_comm_rank(comm) == 0)
        ddl_comm_agree(comm, DDL_OK, &err);
    ddl_comm_max_u64(comm, 1, &any);
    ddl_comm_gather(comm, sizeof err, &err, all);
}

static void no_rank_has_the_error(void **state)
{
    (void)state;
    struct thread_comm_end end = thread_comm_try(2, agree_with_another_program, NULL);
    assert_true(end.is_aborted);
    assert_non_null(strstr(end.message,
                           ": a rank reported an error that no rank has: the ranks do not run the "
                           "same program"));
}

/* ---- as a rank under mpirun ---- */

static volatile sig_atomic_t last_signal;

static void remember_signal(int s)
{
    last_signal = s;
}

/* Signal handlers are the program's, before and after the communicator is opened. */
static void set_signals(void)
{
    sigaction(SIGTERM, &(struct sigaction){ .sa_handler = remember_signal }, NULL);
    sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
}

static void signals(ddl_comm *comm, void *user)
{
    (void)comm, (void)user;
    struct sigaction action;
    sigaction(SIGSEGV, NULL, &action);
    assert_true(action.sa_handler == SIG_DFL);
    raise(SIGUSR1);
    raise(SIGTERM);
    assert_int_equal(last_signal, SIGTERM);
}

/* For tests/comm/mpi.sh. */
static void write_process_id(size_t rank)
{
    char name[32];
    snprintf(name, sizeof name, "rank.%zu", rank);
    FILE *file = fopen(scratch_path(name), "w");
    assert_non_null(file);
    fprintf(file, "%ld\n", (long)getpid());
    fclose(file);
}

/* Connects to the launcher as the plugin does, and does not continue. */
static void only_initialize(void)
{
    union {
        void *address;
        int (*function)(int *argc, char ***argv);
    } init;
    void *plugin = dlopen(getenv("DDL_COMM_PLUGIN"), RTLD_NOW | RTLD_GLOBAL);
    init.address = plugin ? dlsym(plugin, "MPI_Init") : NULL;
    if (!init.address || init.function(NULL, NULL) != 0)
        exit(1);
    write_process_id(1);
    pause();
}

/* Rank 1 fails in one of several ways; the others wait for it. */
static void fail_rank(ddl_comm *comm, const char *how)
{
    write_process_id(ddl_comm_rank(comm));
    ddl_comm_barrier(comm);
    if (ddl_comm_rank(comm) == 1) {
        if (strcmp(how, "stop") == 0)
            raise(SIGSTOP);
        else if (strcmp(how, "kill") == 0)
            raise(SIGKILL);
        else if (strcmp(how, "exit") == 0)
            _exit(7);
        else if (strcmp(how, "abort") == 0)
            ddl_comm_abort(comm, "cannot continue");
    }
    if (strcmp(how, "short") == 0 || strcmp(how, "long") == 0) {
        size_t bytes = how[0] == 's' ? 4 : 16;
        send_another_size(comm, &bytes);
    }
    ddl_comm_describe(comm, "the gradients of step 120");
    ddl_comm_barrier(comm);
}

/* Steps without end, for tests that disturb a job from outside; after some the file of the rank is written.
 */
static void run_steps(ddl_comm *comm)
{
    enum { N = 1 << 16, SOME = 10 };
    struct ddl_comm_exchange *exchange;
    struct ddl_error err;
    float *x = random_floats(N, 1);
    assert_ok(ddl_comm_exchange_create(&exchange, comm, N, DDL_COMM_F32, &err), err);
    for (unsigned step = 1;; step++) {
        ddl_comm_describe(comm, "the gradients of step %u", step);
        ddl_comm_reduce_scatter_start(exchange, N, x);
        ddl_comm_finish(exchange);
        ddl_comm_all_gather_start(exchange, N, x);
        ddl_comm_finish(exchange);
        if (step == SOME)
            write_process_id(ddl_comm_rank(comm));
    }
}

/* `what`: "all", "steps", "initialize", or how rank 1 fails. */
static int run_as_rank(const char *what)
{
    ddl_comm *comm;
    struct ddl_error err;
    setenv("CMOCKA_TEST_ABORT", "1", 1); /* print the message of an assertion that fails outside of a test */
    set_signals();
    if (strcmp(what, "initialize") == 0 && ddl_comm_launched().rank == 1)
        only_initialize();
    if (ddl_comm_open(&comm, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (strcmp(what, "steps") == 0)
        run_steps(comm);
    if (strcmp(what, "all") != 0) {
        fail_rank(comm, what);
        return 0;
    }
    signals(comm, NULL);
    for (size_t i = 0; i < N_BODIES; i++) {
        bodies[i].run(comm, NULL);
        ddl_comm_barrier(comm);
        if (ddl_comm_rank(comm) == 0)
            printf("%s with %zu ranks\n", bodies[i].name, ddl_comm_size(comm));
    }
    ddl_comm_close(comm);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return run_as_rank(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_to_four_ranks),
        cmocka_unit_test(no_communicator),
        cmocka_unit_test(cuts),
        cmocka_unit_test(ranks_divide_the_cores_that_they_share),
        cmocka_unit_test(hanging_ranks_are_named),
        cmocka_unit_test(many_hanging_ranks),
        cmocka_unit_test(waiting_for_a_condition),
        cmocka_unit_test(hanging_condition),
        cmocka_unit_test(aborting_call),
        cmocka_unit_test(hanging_exchange),
        cmocka_unit_test(different_calls),
        cmocka_unit_test(lost_messages),
        cmocka_unit_test(aborts_end_all_ranks),
        cmocka_unit_test(slow_ranks_may_be_slow),
        cmocka_unit_test(late_ranks_are_waited_for),
        cmocka_unit_test(stopped_jobs_continue),
        cmocka_unit_test(sizes_differ),
        cmocka_unit_test(no_rank_has_the_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
