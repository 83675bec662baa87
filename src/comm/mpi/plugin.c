/* The transport over MPI: the plugin libddl_mpi.so, and the only file that uses MPI. Standard calls only: it
 * compiles with Open MPI, MPICH and what derives from them. */
#define _POSIX_C_SOURCE 200809L
#include "comm/transport.h"

#include "ddl/status.h"

#include <mpi.h>

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* MPI has one state per process. */
static struct state {
    MPI_Comm comm;
    int rank, size;
    char host[DDL_COMM_HOST_SIZE];
} state;

_Static_assert(sizeof(MPI_Request) <= sizeof(struct ddl_comm_request), "a request fits");

static MPI_Request get_request(const struct ddl_comm_request *request)
{
    MPI_Request r;
    memcpy(&r, &request->value, sizeof r);
    return r;
}

static void set_request(struct ddl_comm_request *request, MPI_Request r)
{
    memcpy(&request->value, &r, sizeof r);
}

static void mpi_abort(void *ctx, const char *message)
{
    (void)ctx;
    fprintf(stderr, "%s\n", message);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

/* Ends all ranks if an MPI call has failed. */
static void check(int code, const char *call)
{
    char reason[MPI_MAX_ERROR_STRING] = "", message[MPI_MAX_ERROR_STRING + 256];
    int length = 0;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, reason, &length);
    snprintf(message, sizeof message, "ddl: rank %d of %d on %s: %s: %s", state.rank, state.size, state.host,
             call, reason);
    mpi_abort(NULL, message);
}

static void mpi_send(void *ctx, struct ddl_comm_request *request, size_t to, int tag, const void *data,
                     size_t bytes)
{
    (void)ctx;
    MPI_Request r;
    check(MPI_Isend(data, (int)bytes, MPI_BYTE, (int)to, tag, state.comm, &r), "MPI_Isend");
    set_request(request, r);
}

static void mpi_receive(void *ctx, struct ddl_comm_request *request, size_t from, int tag, void *data,
                        size_t bytes)
{
    (void)ctx;
    MPI_Request r;
    check(MPI_Irecv(data, (int)bytes, MPI_BYTE, (int)from, tag, state.comm, &r), "MPI_Irecv");
    set_request(request, r);
}

static bool is_truncated(int code)
{
    int class = MPI_SUCCESS;
    return code != MPI_SUCCESS && MPI_Error_class(code, &class) == MPI_SUCCESS && class == MPI_ERR_TRUNCATE;
}

static bool mpi_test(void *ctx, struct ddl_comm_request *request, size_t *bytes)
{
    (void)ctx;
    MPI_Request r = get_request(request);
    MPI_Status status;
    int is_complete = 0, count = 0;
    int code = MPI_Test(&r, &is_complete, &status);
    if (is_truncated(code)) {
        *bytes = SIZE_MAX;
        return true;
    }
    check(code, "MPI_Test");
    set_request(request, r);
    if (is_complete)
        check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    *bytes = (size_t)count;
    return is_complete != 0;
}

static bool mpi_poll(void *ctx, size_t *from, int tag, void *data, size_t bytes)
{
    (void)ctx;
    MPI_Status status;
    int has_arrived = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, tag, state.comm, &has_arrived, &status), "MPI_Iprobe");
    if (!has_arrived)
        return false;
    *from = (size_t)status.MPI_SOURCE;
    check(MPI_Recv(data, (int)bytes, MPI_BYTE, status.MPI_SOURCE, tag, state.comm, MPI_STATUS_IGNORE),
          "MPI_Recv");
    return true;
}

static void mpi_close(void *ctx)
{
    (void)ctx;
    check(MPI_Comm_free(&state.comm), "MPI_Comm_free");
    check(MPI_Finalize(), "MPI_Finalize");
}

static const struct ddl_comm_transport_ops ops = {
    .send = mpi_send,
    .receive = mpi_receive,
    .test = mpi_test,
    .poll = mpi_poll,
    .abort = mpi_abort,
    .close = mpi_close,
};

/* MPI_Init_thread waits for all processes of the job, without a limit. This thread ends the process after
 * `limit` seconds, and the launcher then the others. */
struct watch {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct timespec end; /* CLOCK_MONOTONIC */
    double limit;
    bool is_over;
};

static void *watch(void *user)
{
    struct watch *w = user;
    int code = 0;
    pthread_mutex_lock(&w->mutex);
    while (!w->is_over && code == 0)
        code = pthread_cond_timedwait(&w->changed, &w->mutex, &w->end);
    if (!w->is_over) {
        char host[DDL_COMM_HOST_SIZE] = "";
        (void)gethostname(host, sizeof host - 1);
        fprintf(stderr,
                "ddl: a rank on %s: another rank did not reach the start of the program within %g s\n", host,
                w->limit);
        _exit(1);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* False if there is no thread for it: the start is then not limited. */
static bool watch_begin(struct watch *w, double limit)
{
    pthread_condattr_t attributes;
    *w = (struct watch){ .mutex = PTHREAD_MUTEX_INITIALIZER, .limit = limit };
    if (limit <= 0 || limit > 1e9 || clock_gettime(CLOCK_MONOTONIC, &w->end) != 0)
        return false;
    w->end.tv_sec += (time_t)limit + 1;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pthread_create(&w->thread, NULL, watch, w) == 0)
        return true;
    pthread_cond_destroy(&w->changed);
    return false;
}

static void watch_end(struct watch *w)
{
    pthread_mutex_lock(&w->mutex);
    w->is_over = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
}

/* MPI_Init_thread for one thread that communicates, within `limit` seconds. */
static int init_within(double limit, int *provided)
{
    struct watch w;
    const bool watched = watch_begin(&w, limit);
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, provided);
    if (watched)
        watch_end(&w);
    return code;
}

/* Gives the ranks a communicator of their own. Ends all if one of them does not take part. */
static void duplicate_world(double limit)
{
    MPI_Request request;
    int is_complete = 0;
    double start = MPI_Wtime();
    check(MPI_Comm_idup(MPI_COMM_WORLD, &state.comm, &request), "MPI_Comm_idup");
    for (;;) {
        check(MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE), "MPI_Comm_idup");
        if (is_complete)
            return;
        if (limit > 0 && MPI_Wtime() - start > limit) {
            char message[256];
            snprintf(message, sizeof message,
                     "ddl: rank %d of %d on %s: a rank did not reach the start of the program within %g s",
                     state.rank, state.size, state.host, limit);
            mpi_abort(NULL, message);
        }
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    }
}

static bool mpi_open(struct ddl_comm_transport *out, double limit, char *error, size_t size)
{
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    int provided = MPI_THREAD_SINGLE, is_initialized = 0, length = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized) {
        snprintf(error, size, "already initialized in this process");
        return false;
    }
    if (init_within(limit, &provided) != MPI_SUCCESS) {
        snprintf(error, size, "MPI_Init_thread failed");
        return false;
    }
    if (provided < MPI_THREAD_FUNNELED) {
        MPI_Finalize();
        snprintf(error, size, "the library has no support for threads: expected MPI_THREAD_FUNNELED");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &state.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &state.size);
    MPI_Get_processor_name(host, &length);
    snprintf(state.host, sizeof state.host, "%.*s", (int)sizeof state.host - 1, host);
    duplicate_world(limit);
    MPI_Comm_set_errhandler(state.comm, MPI_ERRORS_RETURN);
    *out = (struct ddl_comm_transport){ .ops = &ops, .rank = (size_t)state.rank, .size = (size_t)state.size };
    memcpy(out->host, state.host, sizeof out->host);
    return true;
}

/* "Open MPI v4.1.4, package: ..." and "MPICH Version:      4.0.2\nMPICH Release date: ..." up to the first
 * comma or newline, with single spaces. */
static void mpi_library(char *out, size_t size)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    size_t n = 0;
    MPI_Get_library_version(text, &length);
    for (const char *c = text; *c && *c != ',' && *c != '\n' && n + 1 < size; c++) {
        bool is_space = isspace((unsigned char)*c) != 0;
        if (!is_space)
            out[n++] = *c;
        else if (n > 0 && out[n - 1] != ' ')
            out[n++] = ' ';
    }
    out[n] = '\0';
}

DDL_API extern const struct ddl_comm_plugin ddl_comm_plugin;
const struct ddl_comm_plugin ddl_comm_plugin = {
    .abi = DDL_COMM_ABI,
    .library = mpi_library,
    .open = mpi_open,
};
