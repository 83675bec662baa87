/* Commands that divide their work between the ranks that a launcher started. */
#include "cli/cli.h"

int on_ranks(ranks_body *body, int argc, char **argv)
{
    struct ddl_error err = { 0 };
    ddl_comm *comm;
    if (ddl_comm_open(&comm, &err))
        return report_error(&err);
    int code = body(comm, argc, argv);
    ddl_comm_close(comm);
    return code;
}

int report_agreed(const ddl_comm *comm, const struct ddl_error *err)
{
    return ddl_comm_rank(comm) == 0 ? report_error(err) : error_exit(err->status);
}
