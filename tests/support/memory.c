#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* wait4 */
#include "support/memory.h"

#include "support/support.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

size_t peak_memory_of(const char *program, const char *const arguments[])
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)!freopen("/dev/null", "w", stdout);
        execv(program, (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    int status;
    struct rusage usage;
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return (size_t)usage.ru_maxrss * 1024;
}

size_t peak_memory(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (size_t)usage.ru_maxrss * 1024;
}
