#include "train/step/values.h"

#include "base/locale.h"
#include "ops/ops.h"

#include <math.h>
#include <stdio.h>

static void count(struct ddl_values *v, float x)
{
    v->nan += isnan(x) ? 1 : 0;
    v->inf += isinf(x) ? 1 : 0;
    if (!isfinite(x)) {
        v->first = v->first < v->n ? v->first : v->n;
    } else {
        v->largest = fmax(v->largest, fabs((double)x));
        v->first += v->first == v->n; /* none yet: it stays past the end */
    }
    v->n++;
}

struct ddl_values ddl_values_of(ddl_backend *backend, const float *x, size_t n)
{
    enum { PIECE = 4096 };
    float piece[PIECE];
    struct ddl_values v = { 0 };
    for (size_t at = 0; at < n; at += PIECE) {
        size_t m = n - at < PIECE ? n - at : PIECE;
        backend->ops->download(backend->ctx, piece, x + at, m * sizeof *piece);
        for (size_t i = 0; i < m; i++)
            count(&v, piece[i]);
    }
    return v;
}

bool ddl_values_finite(const struct ddl_values *values)
{
    return values->nan == 0 && values->inf == 0;
}

void ddl_values_text(const struct ddl_values *v, char *out, size_t size)
{
    char largest[32];
    ddl_format_double(largest, sizeof largest, 3, 'g', v->largest);
    snprintf(out, size, "%zu NaN and %zu infinite of %zu numbers, the largest other %s", v->nan, v->inf, v->n,
             largest);
}
