/* What observes the passes of a session. */
#ifndef DDL_INFER_SESSION_ROWS_H
#define DDL_INFER_SESSION_ROWS_H

#include "ddl/session.h"
#include "model/observe/probe.h"

/* Passes call *probe (borrowed) until it is set to NULL. Not for a session with `progress`. */
void session_set_probe(ddl_session *session, struct ddl_probe *probe);

/* The rows of a slot in a pass: n from `row` on, which are the slot's tokens from number `past` on. */
struct session_rows {
    size_t row, past, n;
};
/* Sets *out for the pass that runs; false: the slot has no rows in it. */
bool session_rows_of(const ddl_session *session, size_t slot, struct session_rows *out);

#endif
