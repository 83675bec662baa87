/* What the rules share: the read, x_in being the compressed state, and small helpers. */
#include "model/observe/probe_calls.h"
#include "model/pass/compress.h"
#include "model/residual/rule.h"

const float *read_stream_fwd(const struct sublayer *s, struct history *history)
{
    return compress_fwd(s->p, s->stream, s->layer, history, s->acts->x_in);
}

void read_stream_bwd(const struct sublayer *s)
{
    compress_bwd(s->p, s->stream, s->layer);
}

void add_scaled_fwd(const struct sublayer *s, size_t w, const float *lambda)
{
    const struct pass *p = s->p;
    p->ops->scale_fwd(p->ctx, &(struct scale_args){ .N = p->N,
                                                    .d = p->config->d_model,
                                                    .w = w,
                                                    .f = s->acts->f,
                                                    .lambda = lambda,
                                                    .X = s->stream->X });
}

struct operand add_scaled_bwd(const struct sublayer *s, size_t w, const float *lambda, float *dlambda)
{
    const struct pass *p = s->p;
    struct activation df = s->df;
    p->ops->scale_bwd(p->ctx, &(struct scale_grad_args){ .N = p->N,
                                                         .d = p->config->d_model,
                                                         .w = w,
                                                         .f = s->acts->f,
                                                         .lambda = lambda,
                                                         .G = s->stream->dX,
                                                         .X = s->stream->X,
                                                         .df = df.value,
                                                         .df16 = df.bf16,
                                                         .dlambda = dlambda });
    probe_tensor(p, "X", s->stream->X, p->config->d_model);
    probe_activation(p, "df", df, p->N, p->config->d_model);
    return operand_of(df);
}

size_t weights_per_row(const struct ddl_config *config)
{
    return config->per_feature ? config->d_model : 1;
}
