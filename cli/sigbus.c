/* SIGBUS handler. Tensors, shards and texts are memory-mapped; if another process truncates such a file, or
 * its device fails, the next access raises SIGBUS. Prints an error message and exits. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include <signal.h>
#include <unistd.h>

/* Only async-signal-safe functions: write and _exit. */
static void on_lost_page(int number, siginfo_t *info, void *context)
{
    static const char text[] =
        "ddl: a file became shorter while it was being read, or its device failed: restore it, or see "
        "the system log, then start again\n";
    (void)context;
    if (info->si_code == BUS_ADRERR) {
        ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        (void)written;
        _exit(EXIT_FAILED);
    }
    signal(number, SIG_DFL);
    raise(number);
}

void explain_lost_pages(void)
{
    struct sigaction action = { .sa_sigaction = on_lost_page };
    action.sa_flags = (int)SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
