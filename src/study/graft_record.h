/* What a sweep of grafts keeps in its folder: its settings, and the result of each layer. */
#ifndef DDL_STUDY_GRAFT_RECORD_H
#define DDL_STUDY_GRAFT_RECORD_H

#include "ddl/graft.h"

/* Writes the settings to graft.json of the sweep's folder, or compares them with those in it: DDL_E_USAGE,
 * with the first that differs. */
ddl_status graft_record_settings(const struct ddl_graft_sweep *sweep, struct ddl_error *err);

/* The loss of the source, NAN if it is not finite, and the number of scored tokens. */
struct graft_source {
    double loss;
    uint64_t tokens;
};
/* Each of these reads or writes one file; reading sets *found. */
ddl_status graft_record_read_source(const char *out, struct graft_source *source, bool *found,
                                    struct ddl_error *err);
ddl_status graft_record_write_source(const char *out, const struct graft_source *source,
                                     struct ddl_error *err);
/* `name`: of the row's run. Reading sets the measured members. */
ddl_status graft_record_read_row(const char *out, const char *name, struct ddl_graft_row *row, bool *found,
                                 struct ddl_error *err);
ddl_status graft_record_write_row(const char *out, const char *name, const struct ddl_graft_row *row,
                                  struct ddl_error *err);

#endif
