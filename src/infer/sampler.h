/* From logits to a token. */
#ifndef DDL_INFER_SAMPLER_H
#define DDL_INFER_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

struct ddl_sampler {
    float temperature; /* 0: the largest logit, the lowest id among equals       */
    size_t top_k;      /* 0: all                                                 */
    float top_p;       /* 1: all                                                 */
    float min_p;       /* 0: all                                                 */
    int32_t *heap;     /* (V) scratch                                            */
};

/* An id below V, or -1 where no logit is finite. `u` in [0, 1) is the only source of randomness: the same u
 * gives the same id. Candidates are the top_k likeliest (lowest ids first among equals), of these the
 * fewest whose probabilities, scaled to sum to 1, reach top_p, and of these those with at least min_p times
 * the largest probability. */
int32_t ddl_sampler_pick(const struct ddl_sampler *sampler, const float *logits, size_t V, double u);

#endif
