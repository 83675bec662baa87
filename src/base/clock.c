#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double ddl_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double ddl_clock_unix(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* VmHWM rather than getrusage: the latter's figure is inherited from what the process was before exec. */
size_t ddl_clock_peak_memory(void)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "VmHWM:");
    return line ? (size_t)strtoull(line + strlen("VmHWM:"), NULL, 10) * 1024 : 0;
}
