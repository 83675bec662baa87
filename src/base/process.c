#define _GNU_SOURCE /* sched_getaffinity */
#include "base/process.h"

#include "base/crc32c.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char program[] = "/proc/self/exe"; /* also after the file was replaced by a new build */

static bool is_variable(const char *entry, const char *const *names)
{
    for (; names && *names; names++) {
        size_t n = strlen(*names);
        if (strncmp(entry, *names, n) == 0 && entry[n] == '=')
            return true;
    }
    return false;
}

/* Whether an entry is of a variable that is set. */
static bool is_set(const char *entry, const char *const *set)
{
    for (; set && *set; set++) {
        size_t n = strcspn(*set, "=");
        if (strncmp(entry, *set, n) == 0 && entry[n] == '=')
            return true;
    }
    return false;
}

/* The environment of the child (malloc'ed; its entries are borrowed); NULL without memory. */
static char **make_environment(const struct ddl_process_options *options)
{
    size_t n = 0, more = 0, kept = 0;
    while (environ[n])
        n++;
    while (options->set && options->set[more])
        more++;
    char **out = malloc((n + more + 1) * sizeof *out);
    for (size_t i = 0; out && i < n; i++) {
        if (!is_set(environ[i], options->set) && !is_variable(environ[i], options->unset))
            out[kept++] = environ[i];
    }
    for (size_t i = 0; out && i < more; i++)
        out[kept++] = (char *)(uintptr_t)options->set[i]; /* only read */
    if (out)
        out[kept] = NULL;
    return out;
}

/* In the child, where only async-signal-safe functions may be called. Returns only after an error. */
static void run_child(const char *const *argv, char **environment, int output, pid_t parent)
{
    sigset_t none;
    close(STDIN_FILENO);
    sigemptyset(&none);
    if (open("/dev/null", O_RDONLY) != STDIN_FILENO || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(output, STDERR_FILENO) < 0)
        return;
    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
        return;
    if (getppid() != parent) /* it ended before prctl */
        _exit(EXIT_FAILURE);
    if (sigprocmask(SIG_SETMASK, &none, NULL) == 0)
        execve(program, (char *const *)(uintptr_t)argv, environment);
}

/* Waits for the child's execve, which closes the pipe, or for the error that it reports. Returns the error,
 * or 0. */
static int wait_for_exec(int fd, pid_t pid)
{
    int error = 0;
    ssize_t n;
    do {
        n = read(fd, &error, sizeof error);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof error)
        return 0;
    (void)waitpid(pid, NULL, 0);
    return error;
}

/* Replaces a descriptor by one that is not a standard stream: the caller's may be closed, and the child's are
 * opened over them. False with errno; then it is closed. */
static bool move_above_streams(int *fd)
{
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), number = errno;
    close(*fd);
    *fd = moved;
    errno = number;
    return moved >= 0;
}

static ddl_status start(long *pid, const struct ddl_process_options *options, char **environment, int output,
                        struct ddl_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ddl_file_error(err, program, "run");
    if (!move_above_streams(&ends[1])) {
        ddl_status status = ddl_file_error(err, program, "run");
        close(ends[0]);
        return status;
    }
    const pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        run_child(options->argv, environment, output, parent);
        int error = errno;
        ssize_t written = write(ends[1], &error, sizeof error);
        _exit(written == (ssize_t)sizeof error ? EXIT_FAILURE : 127);
    }
    int error = child < 0 ? errno : 0;
    close(ends[1]);
    if (child > 0)
        error = wait_for_exec(ends[0], child);
    close(ends[0]);
    *pid = (long)child;
    errno = error;
    return error ? ddl_file_error(err, program, "run") : DDL_OK;
}

ddl_status ddl_process_start(long *pid, const struct ddl_process_options *options, struct ddl_error *err)
{
    int output;
    ddl_status status = ddl_file_open_append(&output, options->output, err);
    if (status)
        return status;
    if (!move_above_streams(&output))
        return ddl_file_error(err, options->output, "open");
    char **environment = make_environment(options);
    status = environment ? start(pid, options, environment, output, err)
                         : ddl_error_set(err, DDL_E_MEMORY, "out of memory for an environment");
    free(environment);
    close(output);
    return status;
}

bool ddl_process_poll(long pid, struct ddl_process_end *end)
{
    int status;
    pid_t found = waitpid((pid_t)pid, &status, WNOHANG);
    if (found == 0 || (found < 0 && errno == EINTR))
        return false;
    *end = (struct ddl_process_end){ 0 };
    if (found < 0) /* the host program ignores SIGCHLD: how it ended is unknown */
        end->status = EXIT_FAILURE;
    else if (WIFSIGNALED(status))
        end->signal = WTERMSIG(status);
    else
        end->status = WEXITSTATUS(status);
    return true;
}

void ddl_process_terminate(long pid)
{
    (void)kill((pid_t)pid, SIGTERM);
}

size_t ddl_process_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (size_t)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

uint64_t ddl_process_cores_hash(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? ddl_crc32c(&set, sizeof set) : 0;
}

/* A process may have the variables of several launchers, if one runs under another: the first row counts. */
size_t ddl_process_local_rank(void)
{
    static const char *const variables[] = { "DDL_LOCAL_RANK",     "OMPI_COMM_WORLD_LOCAL_RANK",
                                             "MPI_LOCALRANKID",    "MV2_COMM_WORLD_LOCAL_RANK",
                                             "FLUX_TASK_LOCAL_ID", "PALS_LOCAL_RANKID",
                                             "SLURM_LOCALID" };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i]);
        if (text && *text)
            return (size_t)strtoull(text, NULL, 10);
    }
    return 0;
}
