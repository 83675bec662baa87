/* Checks of a session's inputs. */
#ifndef DDL_INFER_SESSION_CHECK_H
#define DDL_INFER_SESSION_CHECK_H

#include "ddl/session.h"

struct session_sizes {
    size_t V;      /* of the vocabulary          */
    size_t length; /* tokens in the input's slot */
    size_t tokens; /* that it may hold           */
};
/* DDL_E_USAGE as for ddl_session_prefill; the input's slot exists and is in no other input. */
ddl_status session_check_input(const struct session_sizes *sizes, const struct ddl_session_input *in,
                               struct ddl_error *err);

#endif
