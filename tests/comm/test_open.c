/* ddl_comm_open: which launchers it finds, DDL_COMM, DDL_COMM_TIMEOUT, plugins that are missing or do not
 * fit. The plugins are tests/comm/plugin_stub.c: DDL_STUB, and DDL_STUB_OTHER with another interface. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"
#include "support/support.h"

#include "base/plugin.h"
#include "comm/comm.h"
#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const variables[] = { "OMPI_COMM_WORLD_SIZE",
                                         "PMI_SIZE",
                                         "MV2_COMM_WORLD_SIZE",
                                         "FLUX_JOB_SIZE",
                                         "SLURM_STEP_NUM_TASKS",
                                         "PMIX_RANK",
                                         "OMPI_COMM_WORLD_RANK",
                                         "PMI_RANK",
                                         "MV2_COMM_WORLD_RANK",
                                         "FLUX_TASK_RANK",
                                         "SLURM_PROCID",
                                         "DDL_COMM",
                                         "DDL_COMM_TIMEOUT",
                                         "DDL_COMM_PLUGIN",
                                         "STUB_FAILS",
                                         "STUB_CLOSED",
                                         "STUB_SIZE",
                                         "STUB_LIMIT" };

/* An environment without launcher, with the stub as the plugin. */
static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return setenv("DDL_COMM_PLUGIN", getenv("DDL_STUB"), 1);
}

/* Fails to open, with this message. */
static void assert_refused(ddl_status status, const char *expected)
{
    struct ddl_error err;
    ddl_comm *comm;
    assert_int_equal(ddl_comm_open(&comm, &err), status);
    assert_null(comm);
    assert_string_equal(err.text, expected);
    assert_int_equal(ddl_comm_open(&comm, NULL), status);
}

static void assert_single(void)
{
    struct ddl_error err;
    ddl_comm *comm;
    assert_ok(ddl_comm_open(&comm, &err), err);
    assert_null(comm);
    assert_int_equal(ddl_comm_rank(comm), 0);
    assert_int_equal(ddl_comm_size(comm), 1);
}

static void no_launcher(void **state)
{
    (void)state;
    assert_single();
    setenv("SLURM_NTASKS", "4", 1); /* of a batch script, which srun did not start */
    assert_single();
    setenv("DDL_COMM", "", 1);
    assert_single();
}

static void launchers(void **state)
{
    (void)state;
    setenv("STUB_FAILS", "1", 1);
    for (size_t i = 0; i < 5; i++) {
        setenv(variables[i], "1", 1);
        assert_single();
        setenv(variables[i], "2", 1);
        assert_refused(DDL_E_UNSUPPORTED, "MPI: no network");
        setenv("DDL_COMM", "none", 1);
        assert_single();
        unsetenv("DDL_COMM");
        unsetenv(variables[i]);
    }
    setenv("PMIX_RANK", "0", 1); /* of an unknown number */
    assert_refused(DDL_E_UNSUPPORTED, "MPI: no network");
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1); /* comes first */
    assert_single();
    setenv("DDL_COMM", "mpi", 1);
    assert_refused(DDL_E_UNSUPPORTED, "MPI: no network");
}

static void one_rank(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_comm *comm;
    char library[64];
    double x = 3;
    setenv("DDL_COMM", "mpi", 1);
    setenv("DDL_COMM_TIMEOUT", "2.5", 1);
    assert_ok(ddl_comm_open(&comm, &err), err);
    assert_non_null(comm);
    assert_string_equal(getenv("STUB_LIMIT"), "2.5");
    assert_int_equal(ddl_comm_size(comm), 1);
    assert_string_equal(ddl_comm_host(comm, 0), "stub");
    ddl_comm_set_time_limit(comm, 7); /* the environment's remains */
    assert_true(comm->time_limit == 2.5);
    ddl_comm_set_time_limit(comm, 0); /* where other ranks may take any time */
    assert_true(comm->time_limit == 0);
    ddl_comm_set_time_limit(comm, 7);
    assert_true(comm->time_limit == 2.5);
    ddl_comm_sum_f64(comm, 1, &x);
    assert_true(x == 3);
    ddl_comm_library(library, sizeof library);
    assert_string_equal(library, "stub 1.0");
    assert_null(getenv("STUB_CLOSED"));
    ddl_comm_close(comm);
    assert_non_null(getenv("STUB_CLOSED"));
}

static void own_file(void **state)
{
    (void)state;
    char path[DDL_PLUGIN_PATH_SIZE];
    assert_true(ddl_plugin_own_file(path));
    assert_int_equal(path[0], '/');
    assert_int_equal(access(path, R_OK), 0);
}

static void time_limits(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_comm *comm;
    setenv("DDL_COMM", "mpi", 1);
    assert_ok(ddl_comm_open(&comm, &err), err);
    assert_true(comm->time_limit == 600);
    assert_string_equal(getenv("STUB_LIMIT"), "600");
    ddl_comm_set_time_limit(comm, 7);
    assert_true(comm->time_limit == 7);
    ddl_comm_close(comm);
    static const char *const wrong[] = { "ten", "-1", "1s", "inf", "nan" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "DDL_COMM_TIMEOUT: not a time limit: expected seconds, or 0 for none, found '%s'", wrong[i]);
        setenv("DDL_COMM_TIMEOUT", wrong[i], 1);
        assert_refused(DDL_E_USAGE, expected);
    }
}

/* The limit of the environment applies to the first messages too. */
static void time_limit_of_the_start(void **state)
{
    (void)state;
    static const char expected[] =
        "ddl: rank 0 of 2 on stub: rank 1 (host unknown) did not reach the start of "
        "the program within 0.5 s\n";
    int status;
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("STUB_SIZE", "2", 1);
    setenv("DDL_COMM_TIMEOUT", "0.5", 1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ddl_comm *comm;
        alarm(60);
        if (!freopen(scratch_path("errors"), "w", stderr))
            _exit(2);
        _exit(ddl_comm_open(&comm, NULL) ? 3 : 4);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    char *found = read_file(scratch_path("errors"), NULL);
    assert_string_equal(found, expected);
    free(found);
}

static void wrong_choice(void **state)
{
    (void)state;
    setenv("DDL_COMM", "gloo", 1);
    assert_refused(DDL_E_USAGE, "DDL_COMM: unknown communicator: expected mpi or none, found 'gloo'");
}

/* As many processes as the launcher started have to be connected. */
static void wrong_number(void **state)
{
    (void)state;
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_refused(
        DDL_E_UNSUPPORTED,
        "SLURM_STEP_NUM_TASKS: the launcher and MPI do not fit: expected 4 processes, found 1: use the "
        "mpirun of the MPI library that the plugin is linked with, or with Slurm srun --mpi=pmix");
    assert_non_null(getenv("STUB_CLOSED"));
}

static void wrong_plugins(void **state)
{
    (void)state;
    char expected[1024], library[1024];
    setenv("DDL_COMM", "mpi", 1);
    setenv("DDL_COMM_PLUGIN", getenv("DDL_STUB_OTHER"), 1);
    snprintf(expected, sizeof expected,
             "%s: the MPI plugin is of another version: expected interface %d, found %d: "
             "install ddl and its plugins of one version",
             getenv("DDL_STUB_OTHER"), DDL_COMM_ABI, DDL_COMM_ABI + 1);
    assert_refused(DDL_E_UNSUPPORTED, expected);
    setenv("DDL_COMM_PLUGIN", "libm.so.6", 1);
    assert_refused(DDL_E_UNSUPPORTED, "libm.so.6: not an MPI plugin: expected the symbol ddl_comm_plugin");
    ddl_comm_library(library, sizeof library);
    assert_string_equal(library, "none (libm.so.6: not an MPI plugin: expected the symbol ddl_comm_plugin)");
    ddl_comm_library(library, 6);
    assert_string_equal(library, "none ");
}

/* What the environment says, without a connection. */
static void launched(void **state)
{
    (void)state;
    const char *const *sizes = variables, *const *ranks = variables + 6;
    struct ddl_comm_launch launch = ddl_comm_launched();
    assert_true(!launch.launcher && !launch.variable && launch.size == 1 && launch.rank == 0);
    for (size_t i = 0; i < 5; i++) {
        setenv(sizes[i], "4", 1);
        setenv(ranks[i], "3", 1);
        launch = ddl_comm_launched();
        assert_non_null(launch.launcher);
        assert_string_equal(launch.variable, sizes[i]);
        assert_true(launch.size == 4 && launch.rank == 3);
        setenv("DDL_COMM", "none", 1);
        launch = ddl_comm_launched();
        assert_true(!launch.launcher && launch.size == 1 && launch.rank == 0);
        unsetenv("DDL_COMM");
        unsetenv(sizes[i]);
        unsetenv(ranks[i]);
    }
    setenv("PMIX_RANK", "2", 1); /* of an unknown number */
    launch = ddl_comm_launched();
    assert_true(launch.size == 0 && launch.rank == 2);
}

/* Several processes without a plugin would all be rank 0: each error names the launcher. */
static void missing_plugin(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_comm *comm;
    setenv("DDL_COMM_PLUGIN", scratch_path("missing.so"), 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_int_equal(ddl_comm_open(&comm, &err), DDL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "missing.so: cannot load the MPI plugin: "));
    assert_non_null(strstr(err.text, "; or set DDL_COMM=none if the processes that Open MPI's mpirun started "
                                     "(OMPI_COMM_WORLD_SIZE=4) are independent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_launcher, clear_environment),
        cmocka_unit_test_setup(launchers, clear_environment),
        cmocka_unit_test_setup(launched, clear_environment),
        cmocka_unit_test(own_file),
        cmocka_unit_test_setup(one_rank, clear_environment),
        cmocka_unit_test_setup(time_limits, clear_environment),
        cmocka_unit_test_setup(time_limit_of_the_start, clear_environment),
        cmocka_unit_test_setup(wrong_choice, clear_environment),
        cmocka_unit_test_setup(wrong_number, clear_environment),
        cmocka_unit_test_setup(wrong_plugins, clear_environment),
        cmocka_unit_test_setup(missing_plugin, clear_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
