#include "base/clock.h"
#include "data/build.h"

ddl_status ddl_build_show(struct ddl_build *b, bool always, struct ddl_error *err)
{
    double t = ddl_clock_seconds();
    if (!b->progress || (!always && t - b->reported < 1e-3 * DDL_BUILD_PROGRESS_MS))
        return DDL_OK;
    b->reported = t;
    b->shown.seconds = t - b->start;
    return b->progress(b->user, &b->shown) == 0 ? DDL_OK
                                                : ddl_error_set(err, DDL_E_INTERRUPTED, "interrupted");
}
