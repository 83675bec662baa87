/* The description of the API in OpenAPI's format, from the tables of endpoints and fields. */
#ifndef DDL_CLI_SERVE_OPENAPI_H
#define DDL_CLI_SERVE_OPENAPI_H

#include "cli/serve/exchange.h"
#include "ddl/json.h"

/* tokens: the ids of the served models that have the fewest. */
void openapi_write(struct ddl_json *json, const struct route *routes, size_t tokens);

#endif
