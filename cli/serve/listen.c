#define _GNU_SOURCE /* setgroups */
#include "cli/serve/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* The first descriptor that systemd passes, sd_listen_fds(3). */
enum { FIRST_PASSED = 3 };

bool listen_is_passed(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    return pid && n && strtol(pid, NULL, 10) == (long)getpid() && strtol(n, NULL, 10) == 1;
}

/* An address of the loopback interface, or a socket in the file system. */
static bool is_loopback_address(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return address->ss_family == AF_UNIX;
}

static ddl_status describe(int fd, char *shown, size_t size, bool *is_loopback, struct ddl_error *err)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN], port[16];
    if (getsockname(fd, (struct sockaddr *)&address, &length))
        return ddl_error_set(err, DDL_E_IO, "the listening socket: %s", strerror(errno));
    *is_loopback = is_loopback_address(&address);
    if (getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        snprintf(shown, size, "a socket in the file system");
    else
        snprintf(shown, size, address.ss_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s", host, port);
    return DDL_OK;
}

/* A socket that listens at one address, or -1. */
static int bind_to(const struct addrinfo *address)
{
    int on = 1;
    int fd =
        socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, 128) == 0)
        return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

ddl_status listen_open(int *out, const char *host, size_t port, char *shown, size_t size, bool *is_loopback,
                       struct ddl_error *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    struct addrinfo *found = NULL;
    char service[16];
    *out = -1;
    if (listen_is_passed()) {
        *out = FIRST_PASSED;
        fcntl(*out, F_SETFD, FD_CLOEXEC);
        fcntl(*out, F_SETFL, fcntl(*out, F_GETFL) | O_NONBLOCK);
        return describe(*out, shown, size, is_loopback, err);
    }
    snprintf(service, sizeof service, "%zu", port);
    int code = getaddrinfo(host, service, &hints, &found);
    if (code)
        return ddl_error_set(err, DDL_E_IO, "--host: %s: %s", host, gai_strerror(code));
    for (const struct addrinfo *at = found; at && *out < 0; at = at->ai_next)
        *out = bind_to(at);
    code = errno;
    freeaddrinfo(found);
    if (*out < 0)
        return ddl_error_set(err, DDL_E_IO, "cannot listen at %s, port %zu: %s", host, port, strerror(code));
    return describe(*out, shown, size, is_loopback, err);
}

size_t raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 1024;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    return (size_t)limit.rlim_cur;
}

ddl_status drop_privileges(const char *user, struct ddl_error *err)
{
    if (geteuid() != 0)
        return DDL_OK;
    const struct passwd *entry = getpwnam(user);
    if (!entry)
        return ddl_error_set(err, DDL_E_USAGE, "--user: there is no user '%s'", user);
    if (setgroups(0, NULL) || setgid(entry->pw_gid) || setuid(entry->pw_uid))
        return ddl_error_set(err, DDL_E_IO, "--user: cannot become '%s': %s", user, strerror(errno));
    return DDL_OK;
}
