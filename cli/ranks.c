/* Commands that divide their work between the ranks that a launcher started. */
#include "cli/cli.h"

#include "ddl/version.h"

/* The ranks may have been started with different commands or programs, whose calls do not match. */
static ddl_status compare_programs(ddl_comm *comm, struct ddl_error *err)
{
    if (!comm)
        return DDL_OK;
    ddl_comm_list *list = ddl_comm_list_create();
    ddl_comm_list_add(list, "program: %s of %s", ddl_version(), DDL_VERSION_DATE);
    ddl_comm_list_add(list, "command: %s", current_command->name);
    return ddl_comm_list_compare(comm, list, err);
}

int on_ranks(ranks_body *body, int argc, char **argv)
{
    struct ddl_error err = { 0 };
    ddl_comm *comm;
    if (ddl_comm_open(&comm, &err))
        return report_error(&err);
    int code = compare_programs(comm, &err) ? report_agreed(comm, &err) : body(comm, argc, argv);
    ddl_comm_close(comm);
    return code;
}

int report_agreed(const ddl_comm *comm, const struct ddl_error *err)
{
    return ddl_comm_rank(comm) == 0 ? report_error(err) : error_exit(err->status);
}
