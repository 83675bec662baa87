/* A reader of Python's pickles (protocols 2 to 5) that executes nothing: containers, numbers and strings are
 * stored, a call is recorded and not made, and only names in the caller's table are accepted. */
#ifndef DDL_TENSOR_PICKLE_H
#define DDL_TENSOR_PICKLE_H

#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A global that a pickle may name. makes_dict: a call without arguments gives an empty dict. */
struct ddl_pickle_global {
    const char *module, *name;
    bool makes_dict;
};

enum ddl_pickle_kind {
    DDL_PICKLE_NONE,
    DDL_PICKLE_BOOL,
    DDL_PICKLE_INT,
    DDL_PICKLE_FLOAT,
    DDL_PICKLE_TEXT,
    DDL_PICKLE_TUPLE,
    DDL_PICKLE_LIST,
    DDL_PICKLE_DICT,
    DDL_PICKLE_GLOBAL,     /* a name of the table           */
    DDL_PICKLE_CALL,       /* items: the global, the tuple of its arguments */
    DDL_PICKLE_PERSISTENT, /* items: what identifies an object outside of the pickle */
    DDL_PICKLE_OTHER,      /* bytes, or an integer of more than 64 bits */
    DDL_PICKLE_KINDS
};

/* A value is known by its number. Values may be shared, and containers may contain themselves. */
typedef uint32_t ddl_pickle_ref;

struct ddl_pickle_value {
    enum ddl_pickle_kind kind;
    uint32_t n; /* items (a dict: of pairs), or bytes of a text */
    union {
        int64_t number;            /* INT, BOOL; GLOBAL: row of the table */
        double real;               /* FLOAT */
        const unsigned char *text; /* TEXT, in the pickle, UTF-8, no NUL after it */
        struct {
            uint32_t first, last; /* items, in a list; valid where n > 0 */
        } items;
    } as;
};

/* An item of a container; `key` is of dicts only. */
struct ddl_pickle_item {
    ddl_pickle_ref key, value;
    uint32_t next; /* its number; of the last item without meaning */
};

struct ddl_pickle {
    struct ddl_pickle_value *values;
    struct ddl_pickle_item *items;
    ddl_pickle_ref root;
};

enum { DDL_PICKLE_MAX = 16 << 20 }; /* bytes of a pickle */

/* Reads one pickle of `size` bytes, to which the values point. Memory is bounded by a multiple of `size`
 * (some 100 bytes a byte), time is linear in it. DDL_E_FORMAT for what is truncated or malformed;
 * DDL_E_UNSUPPORTED with the name for a global that is not in the table of n rows. `path` is for messages.
 * Close after a success. */
ddl_status ddl_pickle_read(struct ddl_pickle *out, const unsigned char *data, size_t size,
                           const struct ddl_pickle_global *globals, size_t n, const char *path,
                           struct ddl_error *err);
void ddl_pickle_close(struct ddl_pickle *pickle);

/* A kind for messages: "a dict". */
const char *ddl_pickle_kind_name(enum ddl_pickle_kind kind);
/* Copies the first `n` items of a tuple to out; false if it is no tuple or has fewer. */
bool ddl_pickle_tuple(const struct ddl_pickle *pickle, ddl_pickle_ref tuple, size_t n,
                      const struct ddl_pickle_value **out);
/* True if the value is this text. */
bool ddl_pickle_is_text(const struct ddl_pickle_value *value, const char *text);

#endif
