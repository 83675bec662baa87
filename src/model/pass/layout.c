#include "model/pass/layout.h"

enum { ALIGNED_BF16 = 8 }; /* numbers */

static void *take(const struct layout *l, bool wanted, size_t rows, size_t width, size_t element)
{
    size_t n;
    if (!ddl_size_mul(rows, width, &n)) {
        l->arena->overflow = true;
        return NULL;
    }
    return wanted ? ddl_arena_take(l->arena, n, element) : NULL;
}

float *layout_floats(const struct layout *l, bool wanted, size_t rows, size_t width)
{
    return take(l, wanted, rows, width, sizeof(float));
}

uint16_t *layout_bf16(const struct layout *l, bool wanted, size_t rows, size_t width)
{
    return take(l, wanted, rows, width, sizeof(uint16_t));
}

float *layout_rows(const struct layout *l, bool wanted, size_t width)
{
    return layout_floats(l, wanted, l->N, width);
}

struct activation layout_factor(const struct layout *l, bool wanted, size_t width)
{
    return (struct activation){ .value = layout_rows(l, wanted && !l->bf16, width),
                                .bf16 = layout_bf16(l, wanted && l->bf16, l->N, width) };
}

struct activation layout_aligned_factor(const struct layout *l, bool wanted, size_t width)
{
    if (!l->bf16 || width % ALIGNED_BF16 == 0)
        return layout_factor(l, wanted, width);
    size_t stride = (width / ALIGNED_BF16 + 1) * ALIGNED_BF16; /* a width is far below SIZE_MAX */
    return (struct activation){ .bf16 = layout_bf16(l, wanted, l->N, stride), .stride = stride };
}
