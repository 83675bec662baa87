/* The transport over MPI: the plugin libddl_mpi.so, and the only file that uses MPI. Standard calls only: it
 * compiles with Open MPI, MPICH and what derives from them. */
#define _POSIX_C_SOURCE 200809L
#include "comm/transport.h"

#include "ddl/status.h"

#include <mpi.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static bool mpi_test(void *ctx, struct ddl_comm_request *request)
{
    (void)ctx;
    MPI_Request r = get_request(request);
    int is_complete = 0;
    check(MPI_Test(&r, &is_complete, MPI_STATUS_IGNORE), "MPI_Test");
    set_request(request, r);
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

static bool mpi_open(struct ddl_comm_transport *out, char *error, size_t size)
{
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    int provided = MPI_THREAD_SINGLE, is_initialized = 0, length = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized) {
        snprintf(error, size, "already initialized in this process");
        return false;
    }
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
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
    check(MPI_Comm_dup(MPI_COMM_WORLD, &state.comm), "MPI_Comm_dup");
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
