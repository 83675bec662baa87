/* Floating-point operations of a token, counted from the model's equations: a multiply and an add are two.
 *
 *   forward(T) = 2 P                       every active matrix, applied once
 *              + 2 V d                     the tied head
 *              + L 4 H h (T + 1) / 2       scores and weighted values, over the tokens that a token sees
 *              + the residual rule's       each sublayer, of delta 4 d c + 4 d (residual/)
 *              + (S + 1) 2 taps d c        compressors and readout, c > 1; taps: K for token, 1 for the
 * others
 *              + 2 K d c                   the conv embedding
 *              + (L - 1) 3 H h             values mixed with those of layer 0, value_residual
 *              + 2 d c per state           of each weighted sum between blocks
 *
 * with P the numbers in matrices that take part, L layers, S sublayers. Norms, activations, rotations
 * and the softmax are left out, as usual. The backward pass costs twice the forward. */
#include "model/pass/average.h"
#include "model/pass/compress.h"
#include "model/residual/table.h"

#include <math.h>
#include <stdlib.h>

double ddl_config_flops_per_token(const struct ddl_config *config, size_t T, bool train)
{
    struct ddl_param *rows;
    size_t n;
    if (ddl_params_plan(config, &rows, &n, NULL))
        return (double)NAN;
    double d = (double)config->d_model, c = (double)config->channels, flops = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].group == DDL_GROUP_MATRIX && rows[i].active)
            flops += 2 * (double)rows[i].count;
    }
    free(rows);
    double S = 2 * (double)config->n_layers, attended = ((double)T + 1) / 2;
    for (size_t l = 0; l < config->n_layers; l++) {
        const struct residual_rule *rule = residual_rule_of(config, l);
        flops += rule->flops ? 2 * rule->flops(config) : 0;
        flops += ddl_config_mixes_values(config, l) ? 3 * (double)(config->n_heads * config->head_dim) : 0;
    }
    flops += 2 * (double)config->vocab_size * d;
    flops += (double)config->n_layers * 4 * (double)(config->n_heads * config->head_dim) * attended;
    if (config->channels > 1)
        flops += (S + 1) * 2 * (double)compress_taps(config) * d * c;
    if (config->channels > 1 && config->embed == DDL_EMBED_CONV)
        flops += 2 * (double)config->embed_kernel * d * c;
    if (config->dense_average)
        flops += average_flops(config);
    return train ? 3 * flops : flops;
}
