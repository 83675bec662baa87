/* The forward pass. */
#ifndef DDL_MODEL_FORWARD_H
#define DDL_MODEL_FORWARD_H

#include "model/pass/pass.h"
#include "model/pass/stream.h"

/* The stream of a pass, in the workspace's memory. */
struct stream model_stream(const struct pass *p);
/* The workspace's tokens -> the last state in *stream, and the input of the final norm (N, d), borrowed until
 * the next pass. */
const float *model_forward(const struct pass *p, struct stream *stream);

#endif
