/* The rotary tables. Each workspace and each cache has its own, with as many positions as it has:
 * config.json's block_size alone claims no memory. */
#include "model/pass/rope.h"

#include "model/pass/pass.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* cos and sin of position * base^(-2i/R); base^(2i/R), its inverse, the angle, cos and sin each rounded to
 * float32, as the release computes them. */
static void fill(const struct ddl_config *k, size_t positions, size_t pairs, float *cosines, float *sines)
{
    for (size_t i = 0; i < pairs; i++) {
        float exponent = (float)(2 * i) / (float)(2 * pairs);
        float inverse = 1.0f / (float)pow((double)k->rope_base, (double)exponent);
        for (size_t t = 0; t < positions; t++) {
            float angle = (float)t * inverse;
            cosines[t * pairs + i] = (float)cos((double)angle);
            sines[t * pairs + i] = (float)sin((double)angle);
        }
    }
}

size_t rope_bytes(const struct ddl_config *config, size_t positions)
{
    size_t bytes;
    return ddl_size_mul(positions, ddl_config_rope_dims(config) / 2 * 2 * sizeof(float), &bytes) ? bytes
                                                                                                 : SIZE_MAX;
}

ddl_status rope_make(struct rope *rope, const struct ddl_model *model, size_t positions,
                     struct ddl_error *err)
{
    const struct ddl_backend *backend = model->backend;
    size_t bytes = rope_bytes(&model->config, positions);
    *rope = (struct rope){ .R = ddl_config_rope_dims(&model->config) };
    size_t pairs = rope->R / 2, n = positions * pairs;
    float *host = NULL;
    if (bytes != SIZE_MAX) {
        host = ddl_mem_alloc(bytes);
        rope->cos = host ? backend->ops->alloc(backend->ctx, bytes / 2) : NULL;
        rope->sin = rope->cos ? backend->ops->alloc(backend->ctx, bytes / 2) : NULL;
    }
    if (rope->sin) {
        fill(&model->config, positions, pairs, host, host + n);
        backend->ops->upload(backend->ctx, rope->cos, host, bytes / 2);
        backend->ops->upload(backend->ctx, rope->sin, host + n, bytes / 2);
    }
    ddl_mem_free(host);
    if (rope->sin)
        return DDL_OK;
    rope_free(rope, model);
    return ddl_error_set(err, DDL_E_MEMORY, "out of memory for the rotary tables of %zu positions",
                         positions);
}

void rope_free(struct rope *rope, const struct ddl_model *model)
{
    const struct ddl_backend *backend = model->backend;
    if (rope->cos)
        backend->ops->free(backend->ctx, rope->cos);
    if (rope->sin)
        backend->ops->free(backend->ctx, rope->sin);
    *rope = (struct rope){ 0 };
}
