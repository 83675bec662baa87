/* The reduced formats of the weights, and access to parameters during a pass. */
#ifndef DDL_MODEL_PRECISION_H
#define DDL_MODEL_PRECISION_H

#include "model/pass/operand.h"
#include "model/pass/pass.h"

/* Value of row `param`. NULL for -1, and for rows that an inference-only model has in another format. */
float *param_value(const struct pass *p, int param);
/* Row `param` in the model's precision, and in float32 whatever that is (gates). */
struct weight param_weight(const struct pass *p, int param);
struct weight param_exact(const struct pass *p, int param);

/* Recomputes the reduced format if it is stale; frees it. */
void precision_refresh(struct ddl_model *model);
void precision_drop(struct ddl_model *model);
/* Replaces the reduced format, if the model is not inference-only. */
ddl_status precision_change(struct ddl_model *model, enum ddl_precision precision, struct ddl_error *err);
/* Makes a model inference-only whose value buffer leaves out the rows in products. Drop after a failure too.
 */
ddl_status precision_make_only(struct ddl_model *model, enum ddl_precision precision, struct ddl_error *err);
/* Whether products read the float32 values: there is no reduced format. */
static inline bool precision_is_float32(enum ddl_precision precision)
{
    return precision == DDL_PRECISION_F32 || precision == DDL_PRECISION_TF32;
}
/* DDL_E_UNSUPPORTED for DDL_PRECISION_TF32 on a backend without it. */
ddl_status precision_check_backend(enum ddl_precision precision, const struct ddl_backend *backend,
                                   struct ddl_error *err);
/* DDL_E_USAGE for a number that is no precision. */
ddl_status precision_check(enum ddl_precision precision, struct ddl_error *err);
/* DDL_E_USAGE for an inference-only model; `what` is the advice: "to train, load". */
ddl_status precision_check_values(const ddl_model *model, const char *what, struct ddl_error *err);
/* Bytes of row i of a table in the format that passes of that precision read. In 8 bits the format is that of
 * `backend`, which may be NULL for other precisions. */
size_t precision_row_bytes(const struct params *params, size_t i, enum ddl_precision precision,
                           const struct ddl_backend *backend);
/* Row i in bfloat16; NULL where there is no such format. */
uint16_t *precision_bf16(const ddl_model *model, size_t i);
/* Numbers [start, start + n) of row i from host memory into the formats that the model keeps, and back as
 * float32. At most precision_piece(i) at a time, and starting at a multiple of it; that is at most
 * precision_largest_piece. */
size_t precision_piece(const ddl_model *model, size_t i);
size_t precision_largest_piece(const ddl_model *model);
void precision_write(ddl_model *model, size_t i, size_t start, size_t n, const float *host);
void precision_read(const ddl_model *model, size_t i, size_t start, size_t n, float *host);

#endif
