/* The place of a rank in the job, descriptions of calls, and the end of all ranks. */
#include "comm/internal.h"

#include "base/locale.h"
#include "base/process.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t ddl_comm_rank(const ddl_comm *comm)
{
    return comm ? comm->transport.rank : 0;
}

size_t ddl_comm_size(const ddl_comm *comm)
{
    return comm ? comm->transport.size : 1;
}

const char *ddl_comm_host(const ddl_comm *comm, size_t rank)
{
    return comm ? comm->hosts[rank] : "localhost";
}

size_t ddl_comm_local_size(const ddl_comm *comm)
{
    const char *own = ddl_comm_host(comm, ddl_comm_rank(comm));
    size_t local = 0;
    for (size_t rank = 0; rank < ddl_comm_size(comm); rank++)
        local += strcmp(ddl_comm_host(comm, rank), own) == 0;
    return local;
}

size_t ddl_comm_threads(const ddl_comm *comm, size_t threads)
{
    if (threads || ddl_comm_local_size(comm) == 1)
        return threads;
    const size_t own = ddl_comm_rank(comm);
    size_t sharers = 0;
    for (size_t rank = 0; rank < ddl_comm_size(comm); rank++)
        sharers += comm->cores[rank] == comm->cores[own] && strcmp(comm->hosts[rank], comm->hosts[own]) == 0;
    const size_t share = ddl_process_cores() / sharers;
    return share ? share : 1;
}

void ddl_comm_set_time_limit(ddl_comm *comm, double seconds)
{
    if (comm)
        comm->time_limit = seconds > 0 && comm->limit_instead >= 0 ? comm->limit_instead : seconds;
}

static void format_text(char *out, size_t size, const char *format, va_list args)
{
    struct ddl_c_locale scope = ddl_c_locale_enter();
    vsnprintf(out, size, format, args);
    ddl_c_locale_leave(&scope);
}

void ddl_comm_describe(ddl_comm *comm, const char *format, ...)
{
    if (!comm)
        return;
    va_list args;
    va_start(args, format);
    format_text(comm->what, sizeof comm->what, format, args);
    va_end(args);
}

void ddl_comm_abort(ddl_comm *comm, const char *format, ...)
{
    char reason[1024], message[1200];
    va_list args;
    va_start(args, format);
    format_text(reason, sizeof reason, format, args);
    va_end(args);
    if (comm) {
        const struct ddl_comm_transport *t = &comm->transport;
        snprintf(message, sizeof message, "ddl: rank %zu of %zu on %s: %s", t->rank, t->size, t->host,
                 reason);
        t->ops->abort(t->ctx, message);
    } else {
        fprintf(stderr, "ddl: %s\n", reason);
    }
    exit(1);
}

void ddl_comm_abort_call(ddl_comm *comm, const char *message)
{
    ddl_comm_abort(comm, "%s: %s", comm ? comm->what : "", message);
}
