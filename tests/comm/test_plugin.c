/* Where the MPI plugin is loaded from: beside the program by the system's name for it, beside the shared
 * library by its absolute path, and from DDL_COMM_PLUGIN. Never from the current folder, whatever argv[0] and
 * the path of the library are. The plugin of a stranger is tests/comm/plugin_stub.c, in the current folder.
 */
#define _GNU_SOURCE
#include "support/files.h"

#include "ddl/comm.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

static char printed[1 << 14];

/* The folder of the stranger, with the plugin at every place where one is searched for. */
static const char *strange_folder(void)
{
    static const char *const places[] = { "", "/ddl", "/lib", "/lib/ddl", "/bin", "/lib64/ddl" };
    const char *stub = getenv("DDL_STUB");
    char command[3 * 4096], out[64];
    assert_non_null(stub);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(command, sizeof command, "mkdir -p '%s%s' && cp '%s' '%s%s/libddl_mpi.so'",
                 scratch_path("strange/here"), places[i], stub, scratch_path("strange/here"), places[i]);
        assert_int_equal(run_command(command, out, sizeof out), 0);
    }
    snprintf(command, sizeof command, "cp -r '%s/lib' '%s/'", scratch_path("strange/here"),
             scratch_path("strange"));
    assert_int_equal(run_command(command, out, sizeof out), 0);
    return scratch_path("strange/here");
}

static void run_as(const char *name, const char *environment, const char *arguments)
{
    char command[3 * 4096];
    snprintf(command, sizeof command, "cd '%s' && export %s && exec -a '%s' '%s' %s 2>&1", strange_folder(),
             environment, name, ddl_program(), arguments);
    char shell[4 * 4096];
    write_file(scratch_path("script.sh"), command, strlen(command)); /* exec -a is bash's */
    snprintf(shell, sizeof shell, "bash '%s'", scratch_path("script.sh"));
    (void)run_command(shell, printed, sizeof printed);
}

static void started_under_another_name(void **state)
{
    (void)state;
    char absolute[4096], out[64];
    if (run_command("bash -c 'exec -a x true'", out, sizeof out) != 0)
        skip();
    snprintf(absolute, sizeof absolute, "%s/ddl", strange_folder());
    const char *const names[] = { "./ddl", "ddl", "", "bin/ddl", "../ddl", "/ddl", absolute },
                      *const launchers[] = { "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0",
                                             "PMI_SIZE=2 PMI_RANK=0", "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0",
                                             "DDL_COMM=mpi", "DDL_COMM_PLUGIN=" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t k = 0; k < sizeof launchers / sizeof *launchers; k++) {
            run_as(names[i], launchers[k], "--version --verbose");
            if (!strstr(printed, "\nMPI: ") || strstr(printed, "stub"))
                fail_msg("exec -a '%s', %s: %s", names[i], launchers[k], printed);
        }
    }
    char chosen[4096];
    snprintf(chosen, sizeof chosen, "DDL_COMM_PLUGIN='%s'", getenv("DDL_STUB"));
    run_as("./ddl", chosen, "--version --verbose");
    assert_non_null(strstr(printed, "\nMPI: stub 1.0"));
}

typedef void library_fn(char *out, size_t size);

/* In a process of its own: loads the library by this path from this folder, then goes to the stranger's. */
static int load(const char *folder, const char *library, const char *strange)
{
    char found[1100];
    union {
        void *address;
        library_fn *function;
    } symbol;
    if (chdir(folder) != 0)
        return 2;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle || chdir(strange) != 0)
        return 3;
    symbol.address = dlsym(handle, "ddl_comm_library");
    if (!symbol.address)
        return 4;
    symbol.function(found, sizeof found);
    return strstr(found, "stub") ? 1 : 0;
}

/* The shared library, loaded by a program of its own: by an absolute and by relative paths. */
static void loaded_by_another_program(void **state)
{
    (void)state;
    const char *library = getenv("DDL_SHARED");
    char folder[4096], strange[4096], relative[4200];
    if (!library || !ddl_file_exists(library))
        skip();
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(library, '/') - library), library);
    snprintf(relative, sizeof relative, "./%s", strrchr(library, '/') + 1);
    snprintf(strange, sizeof strange, "%s", strange_folder());
    const char *const paths[] = { library, relative };
    for (size_t i = 0; i < 2; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            _exit(load(folder, paths[i], strange));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0)
            fail_msg("%s: %d", paths[i], WEXITSTATUS(status));
    }
}

/* Plugins are loaded in one place. (What a plugin loads is its own: the CUDA driver.) */
static void one_loader(void **state)
{
    (void)state;
    char command[4096], out[256];
    snprintf(command, sizeof command,
             "cd '%s' && grep -rl --include=*.c --exclude-dir=cuda 'dlopen(' src cli", source_path("."));
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_string_equal(out, "src/base/plugin.c\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_loader),
        cmocka_unit_test(started_under_another_name),
        cmocka_unit_test(loaded_by_another_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
