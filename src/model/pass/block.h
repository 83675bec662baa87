/* One sublayer of a block. */
#ifndef DDL_MODEL_BLOCK_H
#define DDL_MODEL_BLOCK_H

#include "model/pass/pass.h"
#include "model/pass/stream.h"

/* Applies sublayer `sub` (ATTN, MLP) of a layer to the stream; bwd takes the stream back to the state before
 * it, and its gradient likewise. */
void sublayer_fwd(const struct pass *p, struct stream *stream, size_t layer, int sub);
void sublayer_bwd(const struct pass *p, struct stream *stream, size_t layer, int sub);

#endif
