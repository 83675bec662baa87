/* GOMP_SPINCOUNT for this process.
 *
 * GCC's OpenMP threads spin for milliseconds while they wait for their team. If another process runs on one
 * of the cores, that takes the core from the thread that is waited for: five times slower, measured with one
 * busy neighbor (docs/performance.md). A short spin costs nothing on a quiet machine.
 *
 * libgomp reads the variable in its constructor, before main. Functions in .preinit_array run earlier, but
 * there setenv() has no effect: the C library takes over the kernel's array of variables afterwards. That
 * array has no free entry, so one entry that no library's constructor reads is replaced for as long as the
 * constructors run, and restored by restore_environment(). Restarting the program with the variable set
 * would be simpler, but would leave valgrind and run the loader under ld.so. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"

#include <stdlib.h>

/* .preinit_array runs before the sanitizers are ready. */
#define EARLY __attribute__((no_sanitize("address", "thread", "undefined")))

static char spin_count[] = "GOMP_SPINCOUNT=3000";
static char *replaced; /* the entry that spin_count has taken the place of, or NULL */

EARLY static bool is_variable(const char *entry, const char *name)
{
    for (; *name && *entry == *name; name++)
        entry++;
    return *name == '\0' && *entry == '=';
}

EARLY static char **find_variable(char **entries, const char *name)
{
    while (*entries && !is_variable(*entries, name))
        entries++;
    return *entries ? entries : NULL;
}

EARLY static void set_spin_count(int argc, char **argv, char **environment)
{
    static const char *const unused[] = { "_",    "OLDPWD", "SHLVL",    "PWD",  "TERM", "SHELL",
                                          "USER", "MAIL",   "HOSTNAME", "HOME", "PATH" };
    (void)argc;
    (void)argv;
    /* The user's own setting wins. */
    if (find_variable(environment, "GOMP_SPINCOUNT") || find_variable(environment, "OMP_WAIT_POLICY"))
        return;
    for (size_t i = 0; i < sizeof unused / sizeof *unused && !replaced; i++) {
        char **entry = find_variable(environment, unused[i]);
        if (entry) {
            replaced = *entry;
            *entry = spin_count;
        }
    }
}

typedef void early_fn(int argc, char **argv, char **environment);
__attribute__((section(".preinit_array"), used)) static early_fn *const at_start = set_spin_count;

void restore_environment(void)
{
    if (replaced)
        (void)putenv(replaced); /* without memory the variable stays unset; nothing here reads it */
    replaced = NULL;
}
