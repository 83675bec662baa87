/* Compressors: the state X (N, d, c) -> x_in (N, d). */
#ifndef DDL_MODEL_COMPRESS_H
#define DDL_MODEL_COMPRESS_H

#include "model/pass/history.h"
#include "model/params/params.h"
#include "model/pass/pass.h"
#include "model/pass/stream.h"

/* X -> x_in with the compressor of a layer, or with the readout: layer n_layers. `history` is NULL without a
 * cache. For c = 1 the result is X itself. bwd adds dx_in's share to dX and to the compressor's gradients. */
const float *compress_fwd(const struct pass *p, const struct stream *stream, size_t layer,
                          struct history *history, float *x_in);
void compress_bwd(const struct pass *p, const struct stream *stream, size_t layer);
/* Tokens that the compressor reads: its kernel for token compression, else 1. */
size_t compress_taps(const struct ddl_config *config);

#endif
