/* One sublayer of a block. */
#ifndef DDL_MODEL_BLOCK_H
#define DDL_MODEL_BLOCK_H

#include "model/pass.h"

void sublayer_fwd(const struct pass *p, size_t layer, int sub);
void sublayer_bwd(const struct pass *p, size_t layer, int sub);

#endif
