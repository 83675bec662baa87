/* Which processes a launcher has started, and the connection between them. */
#include "comm/internal.h"
#include "comm/plugin.h"

#include "base/locale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What launchers put into the environment of the processes that they start. A process may have the variables
 * of several, if one runs under another: the first row counts. */
static const struct launcher {
    const char *name, *variable;
    bool has_size;    /* the variable is the number of processes */
    const char *rank; /* the variable with the number of this process */
} launchers[] = {
    { "Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", true, "OMPI_COMM_WORLD_RANK" },
    { "MPICH's mpiexec", "PMI_SIZE", true, "PMI_RANK" },
    { "MVAPICH2's mpirun", "MV2_COMM_WORLD_SIZE", true, "MV2_COMM_WORLD_RANK" },
    { "Flux", "FLUX_JOB_SIZE", true, "FLUX_TASK_RANK" },
    { "Slurm's srun", "SLURM_STEP_NUM_TASKS", true, "SLURM_PROCID" },
    { "a PMIx launcher", "PMIX_RANK", false, "PMIX_RANK" },
};

static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (getenv(launchers[i].variable))
            return &launchers[i];
    }
    return NULL;
}

static size_t number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text ? (size_t)strtoull(text, NULL, 10) : 0;
}

struct ddl_comm_launch ddl_comm_launched(void)
{
    const struct launcher *launcher = find_launcher();
    const char *choice = getenv("DDL_COMM");
    if (!launcher || (choice && strcmp(choice, "none") == 0))
        return (struct ddl_comm_launch){ .size = 1 };
    return (struct ddl_comm_launch){ .launcher = launcher->name,
                                     .variable = launcher->variable,
                                     .size = launcher->has_size ? number_in(launcher->variable) : 0,
                                     .rank = number_in(launcher->rank) };
}

static ddl_status read_time_limit(double *seconds, struct ddl_error *err)
{
    const char *text = getenv("DDL_COMM_TIMEOUT");
    char *end;
    *seconds = -1;
    if (!text || !*text)
        return DDL_OK;
    *seconds = ddl_parse_double(text, &end);
    if (*end != '\0' || !isfinite(*seconds) || *seconds < 0)
        return ddl_error_set(
            err, DDL_E_USAGE,
            "DDL_COMM_TIMEOUT: not a time limit: expected seconds, or 0 for none, found '%s'", text);
    return DDL_OK;
}

/* Whether the plugin is to be loaded. */
static ddl_status choose(bool *uses_mpi, const struct ddl_comm_launch *launch, struct ddl_error *err)
{
    const char *choice = getenv("DDL_COMM");
    *uses_mpi = launch->size != 1;
    if (!choice || !*choice)
        return DDL_OK;
    *uses_mpi = strcmp(choice, "mpi") == 0;
    if (!*uses_mpi && strcmp(choice, "none") != 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "DDL_COMM: unknown communicator: expected mpi or none, found '%s'", choice);
    return DDL_OK;
}

static ddl_status connect(struct ddl_comm_transport *transport, const struct ddl_comm_launch *launch,
                          double limit, struct ddl_error *err)
{
    const struct ddl_comm_plugin *plugin;
    ddl_status status = ddl_comm_plugin_load(&plugin, err);
    if (status && launch->launcher) {
        char found[sizeof err->text];
        snprintf(found, sizeof found, "%.700s", err->text);
        return ddl_error_set(
            err, status, "%s; or set DDL_COMM=none if the processes that %s started (%s=%s) are independent",
            found, launch->launcher, launch->variable, getenv(launch->variable));
    }
    if (!status)
        status = ddl_comm_plugin_open(plugin, transport, limit, err);
    if (status || !launch->launcher || launch->size == 0 || transport->size == launch->size)
        return status;
    ddl_error_set(
        err, DDL_E_UNSUPPORTED,
        "%s: the launcher and MPI do not fit: expected %zu processes, found %zu: use the mpirun of the "
        "MPI library that the plugin is linked with, or with Slurm srun --mpi=pmix",
        launch->variable, launch->size, transport->size);
    transport->ops->close(transport->ctx);
    return DDL_E_UNSUPPORTED;
}

ddl_status ddl_comm_open(ddl_comm **out, struct ddl_error *err)
{
    struct ddl_comm_transport transport;
    const struct ddl_comm_launch launch = ddl_comm_launched();
    struct ddl_error unused;
    double seconds;
    bool uses_mpi;
    *out = NULL;
    err = err ? err : &unused;
    ddl_status status = choose(&uses_mpi, &launch, err);
    if (!status)
        status = read_time_limit(&seconds, err);
    if (status || !uses_mpi)
        return status;
    status = connect(&transport, &launch, seconds < 0 ? DDL_COMM_TIME_LIMIT : seconds, err);
    if (!status)
        *out = ddl_comm_create(&transport, seconds);
    return status;
}

void ddl_comm_library(char *out, size_t size)
{
    const struct ddl_comm_plugin *plugin;
    struct ddl_error err;
    if (ddl_comm_plugin_load(&plugin, &err))
        snprintf(out, size, "none (%s)", err.text);
    else
        plugin->library(out, size);
}
