/* Errors as OpenAI's API reports them: a status code and an object. */
#ifndef DDL_CLI_SERVE_API_ERROR_H
#define DDL_CLI_SERVE_API_ERROR_H

#include "cli/output/buffer.h"
#include "ddl/status.h"

#include <stdbool.h>

struct api_error {
    int status;         /* of HTTP; 0: no error                              */
    const char *code;   /* "context_length_exceeded", or NULL                */
    char param[64];     /* the field of the request that it is about, or ""  */
    char message[1024]; /* printable */
};

/* Fills *e; `param` may be NULL. Returns false, for callers that return whether they succeeded. */
bool api_fail(struct api_error *e, int status, const char *code, const char *param, const char *format, ...)
    DDL_PRINTF(5, 6);
/* The same for an error of the library: 400 for DDL_E_USAGE and DDL_E_FORMAT, 503 for DDL_E_MEMORY, else 500.
 */
bool api_fail_with(struct api_error *e, const char *param, const struct ddl_error *err);
/* 503 for a request. */
bool api_no_memory(struct api_error *e);
/* Appends {"error": {...}}. False without memory. */
bool api_error_write(const struct api_error *e, struct buffer *out);

#endif
