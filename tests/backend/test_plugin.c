/* Backends in plugins: found, loaded, listed and refused. The plugins are tests/backend/twin.c: DDL_TWIN, and
 * DDL_TWIN_OTHER with another interface. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"

#include "backend/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const variables[] = { "DDL_BACKEND_PLUGIN",         "TWIN_DEVICES",
                                         "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                         "MV2_COMM_WORLD_LOCAL_RANK",  "FLUX_TASK_LOCAL_ID",
                                         "PALS_LOCAL_RANKID",          "SLURM_LOCALID" };
enum { N_VARIABLES = sizeof variables / sizeof *variables, RANKS = 2 /* the first local rank */ };

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_VARIABLES; i++)
        unsetenv(variables[i]);
    return setenv("DDL_BACKEND_PLUGIN", getenv("DDL_TWIN"), 1);
}

static void assert_opens(const char *name, const char *description)
{
    struct ddl_error err;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, name, 1, &err), err);
    assert_string_equal(ddl_backend_description(backend), description);
    ddl_backend_free(backend);
}

static void assert_refused(const char *name, ddl_status status, const char *gist)
{
    struct ddl_error err = { 0 };
    ddl_backend *backend;
    assert_int_equal(ddl_backend_create(&backend, name, 1, &err), status);
    assert_null(backend);
    assert_int_equal(ddl_backend_create(&backend, name, 1, NULL), status);
    if (!strstr(err.text, gist))
        fail_msg("%s: '%s' does not contain '%s'", name, err.text, gist);
}

static bool is_listed(const char *wanted)
{
    char name[DDL_BACKEND_NAME_SIZE];
    for (size_t i = 0; ddl_backend_list(i, name); i++) {
        if (strcmp(name, wanted) == 0)
            return true;
    }
    return false;
}

static void a_plugin_is_a_backend(void **state)
{
    (void)state;
    assert_opens("twin", "twin:0 (ref)");
    assert_opens("twin:2", "twin:2 (ref)");
    assert_true(is_listed("twin") && !is_listed("mpi"));
    struct ddl_error err;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "twin:1", 1, &err), err);
    assert_string_equal(ddl_backend_name(backend), "twin");
    float x = 2, y = 0;
    backend->ops->gelu_fwd(backend->ctx, &(struct gelu_args){ .n = 1, .x = &x, .y = &y });
    assert_true(y > 1.95f && y < 1.96f);
    ddl_backend_free(backend);
}

static void a_device_must_exist(void **state)
{
    (void)state;
    assert_refused("twin:3", DDL_E_USAGE, "backend twin:3: expected a device from twin:0 to twin:2");
    assert_refused("twin:", DDL_E_USAGE, "backend 'twin:': expected a device index after ':', found ''");
    setenv("TWIN_DEVICES", "1", 1);
    assert_refused("twin:1", DDL_E_USAGE, "backend twin:1: the only device of twin is twin:0");
    setenv("TWIN_DEVICES", "0", 1);
    assert_refused("twin", DDL_E_UNSUPPORTED, "backend twin: no driver");
    assert_refused("twin:1", DDL_E_UNSUPPORTED, "backend twin: no driver");
}

/* Processes on a machine take its devices in turn, unless the name has an index. */
static void a_process_takes_the_device_of_its_local_rank(void **state)
{
    (void)state;
    for (size_t i = RANKS; i < N_VARIABLES; i++) {
        setenv(variables[i], "1", 1);
        assert_opens("twin", "twin:1 (ref)");
        assert_opens("twin:0", "twin:0 (ref)");
        setenv(variables[i], "5", 1);
        assert_opens("twin", "twin:2 (ref)");
        assert_opens("ref", "ref (scalar, double accumulators)");
        unsetenv(variables[i]);
    }
    setenv("SLURM_LOCALID", "0", 1); /* of the batch script; mpirun's variable comes first */
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "2", 1);
    assert_opens("twin", "twin:2 (ref)");
}

static void other_files_are_refused(void **state)
{
    (void)state;
    char expected[4096], command[3 * 4096];
    setenv("DDL_BACKEND_PLUGIN", getenv("DDL_TWIN_OTHER"), 1);
    snprintf(expected, sizeof expected,
             "%s: the backend plugin is of another version: expected interface %u, found %u: "
             "install ddl and its plugins of one version",
             getenv("DDL_TWIN_OTHER"), DDL_BACKEND_ABI, DDL_BACKEND_ABI + 1);
    assert_refused("twin_other", DDL_E_UNSUPPORTED, expected);
    assert_true(is_listed("twin_other") && !is_listed("twin"));
    assert_refused("twin", DDL_E_USAGE, "; the plugin libddl_twin.so is not installed");
    setenv("DDL_BACKEND_PLUGIN", getenv("DDL_STUB"), 1);
    assert_refused("stub", DDL_E_UNSUPPORTED,
                   "libddl_stub.so: not a backend plugin: expected the symbol ddl_backend_plugin");
    setenv("DDL_BACKEND_PLUGIN", scratch_path("libddl_missing.so"), 1);
    assert_refused("missing", DDL_E_UNSUPPORTED, "libddl_missing.so: cannot load the backend plugin: ");
    setenv("DDL_BACKEND_PLUGIN", "libm.so.6", 1);
    assert_refused("missing", DDL_E_USAGE,
                   "DDL_BACKEND_PLUGIN: expected a file libddl_NAME.so, found 'libm.so.6'");
    assert_opens("ref", "ref (scalar, double accumulators)");
    snprintf(command, sizeof command, "cp '%s' '%s'", getenv("DDL_TWIN"), scratch_path("libddl_triplet.so"));
    assert_int_equal(run_command(command, expected, sizeof expected), 0);
    setenv("DDL_BACKEND_PLUGIN", scratch_path("libddl_triplet.so"), 1);
    assert_refused("triplet", DDL_E_UNSUPPORTED,
                   "libddl_triplet.so: expected the backend triplet, found twin");
}

static char printed[1 << 16];

/* The program in a folder of its own, with the plugin in it. */
static int run_next_to_plugin(const char *environment, const char *arguments)
{
    char command[3 * 4096];
    snprintf(
        command, sizeof command,
        "mkdir -p '%s' && cd '%s' && { ln -f '%s' ddl 2>/dev/null || cp '%s' ddl; } && "
        "cp '%s' libddl_twin.so && cp '%s' libddl_mpi.so && touch libddl_.so libddl_UP.so libddl_x.so.1 && "
        "%s '%s/ddl' %s 2>&1",
        scratch_path("beside"), scratch_path("beside"), ddl_program(), ddl_program(), getenv("DDL_TWIN"),
        getenv("DDL_STUB"), environment, scratch_path("beside"), arguments);
    return run_command(command, printed, sizeof printed);
}

static void found_next_to_the_program(void **state)
{
    (void)state;
    char arguments[4096];
    unsetenv("DDL_BACKEND_PLUGIN");
    assert_int_equal(run_next_to_plugin("", "--version --verbose"), 0);
    assert_non_null(strstr(printed, "\nbackends: cpu ref twin\n"));
    assert_int_equal(run_next_to_plugin("", "completion bash"), 0);
    assert_non_null(strstr(printed, "cpu ref twin"));
    snprintf(arguments, sizeof arguments, "verify '%s' --backend twin:1", source_path("tests/golden/add"));
    assert_int_equal(run_next_to_plugin("", arguments), 0);
    assert_non_null(strstr(printed, " twin "));
    snprintf(arguments, sizeof arguments, "verify '%s' --backend all", source_path("tests/golden/add"));
    assert_int_equal(run_next_to_plugin("", arguments), 0);
    assert_non_null(strstr(printed, " twin "));
}

/* Of all backends, one without a device is left out; alone it is an error. */
static void without_a_device(void **state)
{
    (void)state;
    char arguments[4096];
    unsetenv("DDL_BACKEND_PLUGIN");
    snprintf(arguments, sizeof arguments, "verify '%s'", source_path("tests/golden/add"));
    assert_int_equal(run_next_to_plugin("TWIN_DEVICES=0", arguments), 0);
    assert_non_null(strstr(printed, "SKIP: backend twin: no driver\n"));
    assert_non_null(strstr(printed, " 0 failed, 1 skipped\n"));
    snprintf(arguments, sizeof arguments, "verify '%s' --backend twin", source_path("tests/golden/add"));
    assert_int_equal(run_next_to_plugin("TWIN_DEVICES=0", arguments), 1);
    assert_non_null(strstr(printed, "ddl: backend twin: no driver"));
}

/* Ops that it leaves out are composed of others, or reported when a model needs them. */
static void without_some_ops(void **state)
{
    (void)state;
    char arguments[4096];
    unsetenv("DDL_BACKEND_PLUGIN");
    snprintf(arguments, sizeof arguments, "verify '%s' --backend twin", source_path("tests/golden/gated"));
    assert_int_equal(run_next_to_plugin("TWIN_LACKS=,gated_fwd,weighted_sum,", arguments), 0);
    assert_non_null(strstr(printed, " 0 failed, 0 skipped\n"));
    assert_int_equal(run_next_to_plugin("TWIN_LACKS=,swiglu_fwd,gated_bwd,", arguments), 1);
    assert_non_null(strstr(printed, "backend twin: the op swiglu_fwd is missing, which a model needs"));
    assert_int_equal(run_next_to_plugin("TWIN_LACKS=,gated_bwd,", arguments), 1);
    assert_non_null(
        strstr(printed, "backend twin: the op gated_bwd is missing, which ddl_residual gated needs"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_plugin_is_a_backend, clear_environment),
        cmocka_unit_test_setup(a_device_must_exist, clear_environment),
        cmocka_unit_test_setup(a_process_takes_the_device_of_its_local_rank, clear_environment),
        cmocka_unit_test_setup(other_files_are_refused, clear_environment),
        cmocka_unit_test_setup(found_next_to_the_program, clear_environment),
        cmocka_unit_test_setup(without_a_device, clear_environment),
        cmocka_unit_test_setup(without_some_ops, clear_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
