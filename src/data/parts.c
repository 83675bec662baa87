#include "data/parts.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANGES = 4096 }; /* in a part of small files */

/* Documents can be found from any position in the file. */
static bool can_divide(const struct ddl_input *input, const char *separator)
{
    return input->packing == DDL_PACKING_NONE && strcmp(input->path, "-") != 0 &&
           (input->json || separator[0] != '\0');
}

static size_t ranges_of(const struct ddl_input *input, const char *separator, size_t part_bytes)
{
    if (part_bytes == 0 || input->size <= part_bytes || !can_divide(input, separator))
        return 1;
    uint64_t n = input->size / part_bytes + (input->size % part_bytes != 0);
    return n > DDL_MAX_PARTS ? DDL_MAX_PARTS + 1 : (size_t)n;
}

static ddl_status too_many(size_t part_bytes, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_USAGE, "--part_bytes: more than %d parts of %zu bytes: increase it",
                         DDL_MAX_PARTS, part_bytes);
}

ddl_status ddl_parts_divide(struct ddl_parts *parts, const struct ddl_inputs *inputs, const char *separator,
                            size_t part_bytes, struct ddl_error *err)
{
    size_t n = 0;
    *parts = (struct ddl_parts){ 0 };
    for (size_t i = 0; i < inputs->n; i++) {
        size_t more = ranges_of(&inputs->items[i], separator, part_bytes);
        if (more > DDL_MAX_PARTS)
            return too_many(part_bytes, err);
        n += more;
    }
    parts->ranges = calloc(n, sizeof *parts->ranges);
    parts->first = calloc(n + 1, sizeof *parts->first);
    if (!parts->ranges || !parts->first)
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu parts", n);
    uint64_t size = 0; /* of the current part */
    n = 0;
    for (size_t i = 0; i < inputs->n; i++) {
        const struct ddl_input *input = &inputs->items[i];
        size_t ranges = ranges_of(input, separator, part_bytes);
        bool full = n > 0 && (ranges > 1 || size + input->size > part_bytes ||
                              n - parts->first[parts->n - 1] == MAX_RANGES);
        if (n == 0 || (part_bytes > 0 && full)) {
            parts->first[parts->n++] = n;
            size = 0;
        }
        for (size_t k = 0; k < ranges; k++) {
            uint64_t from = (uint64_t)k * part_bytes;
            if (k > 0)
                parts->first[parts->n++] = n;
            parts->ranges[n++] =
                (struct ddl_range){ i, from, k + 1 < ranges ? from + part_bytes : UINT64_MAX };
        }
        size = ranges > 1 ? part_bytes : size + input->size;
    }
    parts->first[parts->n] = n;
    return parts->n > DDL_MAX_PARTS ? too_many(part_bytes, err) : DDL_OK;
}

void ddl_parts_free(struct ddl_parts *parts)
{
    free(parts->ranges);
    free(parts->first);
    *parts = (struct ddl_parts){ 0 };
}

uint64_t ddl_parts_bytes(const struct ddl_parts *parts, const struct ddl_inputs *inputs, size_t i)
{
    uint64_t bytes = 0;
    for (size_t k = parts->first[i]; k < parts->first[i + 1]; k++) {
        const struct ddl_range *range = &parts->ranges[k];
        uint64_t size = inputs->items[range->input].size, to = range->to < size ? range->to : size;
        bytes += to - range->from;
    }
    return bytes;
}

struct weight {
    uint64_t bytes;
    size_t part;
};

static int by_weight(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

ddl_status ddl_parts_assign(const struct ddl_parts *parts, const struct ddl_inputs *inputs, size_t n,
                            size_t *owner, struct ddl_error *err)
{
    struct weight *weights = calloc(parts->n, sizeof *weights);
    uint64_t *load = calloc(n, sizeof *load);
    if (!weights || !load) {
        free(weights);
        free(load);
        return ddl_error_set(err, DDL_E_MEMORY, "out of memory for %zu parts", parts->n);
    }
    for (size_t i = 0; i < parts->n; i++)
        weights[i] = (struct weight){ ddl_parts_bytes(parts, inputs, i), i };
    qsort(weights, parts->n, sizeof *weights, by_weight);
    for (size_t i = 0; i < parts->n; i++) {
        size_t least = 0;
        for (size_t p = 1; p < n; p++)
            least = load[p] < load[least] ? p : least;
        owner[weights[i].part] = least;
        load[least] += weights[i].bytes + 1; /* empty files have work too */
    }
    free(weights);
    free(load);
    return DDL_OK;
}
