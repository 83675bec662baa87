/* The endpoints of the server. */
#ifndef DDL_CLI_SERVE_ENDPOINTS_H
#define DDL_CLI_SERVE_ENDPOINTS_H

#include "cli/serve/exchange.h"

extern const struct route routes[];

#endif
