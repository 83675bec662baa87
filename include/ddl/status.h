/* Status codes and the error message.
 *
 * A function that depends on the world (files, memory, input) returns a ddl_status and, where the caller
 * passes one, fills a struct ddl_error with one message: file, item, expected, found. Programming errors are
 * asserts. */
#ifndef DDL_STATUS_H
#define DDL_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DDL_API __attribute__((visibility("default"))) /* exported */
#define DDL_PRINTF(f, a)                                                                                     \
    __attribute__((format(printf, f, a)))      /* argument f is a format for those from a on */
#define DDL_NORETURN __attribute__((noreturn)) /* does not return */
#else
#define DDL_API          /* exported */
#define DDL_PRINTF(f, a) /* argument f is a format for those from a on */
#define DDL_NORETURN     /* does not return */
#endif

/* Result of a call; struct ddl_error has the message. */
typedef enum ddl_status {
    DDL_OK = 0,        /* done                                                                 */
    DDL_E_USAGE,       /* an argument, flag, key or value that is out of range or unknown      */
    DDL_E_IO,          /* the operating system refused: open, read, write, rename, ...         */
    DDL_E_FORMAT,      /* a file that is not what it should be: truncated, malformed, mismatch */
    DDL_E_MEMORY,      /* out of memory                                                        */
    DDL_E_UNSUPPORTED, /* well-formed, but not something this build can do                     */
    DDL_E_INTERRUPTED, /* a callback requested it                                              */
    DDL_E_NUMERIC,     /* a value that is not finite, out of a dtype's range, or wrong in a check */
    DDL_E_DEVICE,      /* the device of a backend failed; what its memory holds is lost         */
} ddl_status;

/* An error, filled by the call that failed; the caller's, on its stack. */
struct ddl_error {
    ddl_status status; /* as the call returned it */
    char text[1024];   /* one line without a newline; empty if there was no error */
    bool has_no_hint;  /* the text is about an unknown name, and names none that resembles it */
};

/* Fills *err (if not NULL) with a message, `format` applied as by printf but in the C locale, and returns
 * `status`, so that a failing function can end in `return ddl_error_set(err, DDL_E_IO, "...", ...)`. Newlines
 * in the text become spaces. */
DDL_API ddl_status ddl_error_set(struct ddl_error *err, ddl_status status, const char *format, ...)
    DDL_PRINTF(3, 4);

/* Puts "prefix: " before the message in *err; returns `status`. err may be NULL. */
DDL_API ddl_status ddl_error_prefix(struct ddl_error *err, ddl_status status, const char *prefix);

/* Progress of a long operation: `done` of `total` units. Called on the caller's thread several times a
 * second, also with an unchanged `done`. A nonzero return value ends the operation with DDL_E_INTERRUPTED. */
typedef int ddl_progress_fn(void *user, uint64_t done, uint64_t total);

/* A short constant name of a status: "ok", "usage", "io", ... */
DDL_API const char *ddl_status_name(ddl_status status);

/* Receives one warning; the message is valid during the call. */
typedef void ddl_warn_fn(void *user, const char *message);

#ifdef __cplusplus
}
#endif
#endif
