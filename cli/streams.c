/* The standard streams of the process: a closed one is never the number of another file, and output that
 * could not be written is an error. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void reserve_streams(void)
{
    /* The wrong direction for input and output: reading and printing fail, as on a closed stream. Messages
     * on a closed standard error are discarded. */
    static const int modes[] = { O_WRONLY, O_RDONLY, O_WRONLY };
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        if (open("/dev/null", modes[fd]) != fd) { /* the lowest that is free */
            fprintf(stderr, "ddl: /dev/null: cannot open: %s\n", strerror(errno));
            _exit(EXIT_FAILED);
        }
    }
}

int close_output(int status)
{
    bool failed = ferror(stdout) != 0; /* then errno is of an earlier call, if no write follows */
    errno = 0;
    if (fflush(stdout) != 0)
        failed = true;
    int number = errno;
    if (fclose(stdout) != 0 && !failed) { /* a network file system may report it only here */
        failed = true;
        number = errno;
    }
    if (!failed)
        return status;
    fprintf(stderr, "ddl: cannot write standard output%s%s\n", number ? ": " : "",
            number ? strerror(number) : "");
    return status ? status : EXIT_FAILED;
}
