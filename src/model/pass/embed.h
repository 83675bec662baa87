/* The input embedding. */
#ifndef DDL_MODEL_EMBED_H
#define DDL_MODEL_EMBED_H

#include "model/pass/pass.h"
#include "model/pass/stream.h"

/* The embeddings of the workspace's tokens -> x (N, d), which is returned. */
float *embed_gather(const struct pass *p, float *x);
/* Tokens -> X0, and dX0 -> gradients. */
void embed_fwd(const struct pass *p, const struct stream *stream);
void embed_bwd(const struct pass *p, const struct stream *stream);

#endif
