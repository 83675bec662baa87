/* The socket of a server, and the user that it runs as. */
#ifndef DDL_CLI_SERVE_LISTEN_H
#define DDL_CLI_SERVE_LISTEN_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Opens a listening socket at host and port (0: any that is free), or takes the one that systemd has opened
 * (LISTEN_FDS). `shown` receives "http://127.0.0.1:8080"; *is_loopback, whether only this machine reaches it.
 */
ddl_status listen_open(int *out, const char *host, size_t port, char *shown, size_t size, bool *is_loopback,
                       struct ddl_error *err);
/* Whether listen_open takes the socket that systemd has opened. */
bool listen_is_passed(void);
/* Raises the limit of open files to what is allowed, and returns it. */
size_t raise_file_limit(void);
/* If the process has root's rights, gives them up and becomes `user`. */
ddl_status drop_privileges(const char *user, struct ddl_error *err);

#endif
