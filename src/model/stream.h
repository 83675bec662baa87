/* The residual stream of a pass. */
#ifndef DDL_MODEL_STREAM_H
#define DDL_MODEL_STREAM_H

#include <stddef.h>

/* How backward gets the state that a sublayer was given; the choice of the layer's residual rule. A rule
 * whose state is neither reversible nor worth saving would add a third way here: recomputing it from an
 * earlier one. */
enum stream_earlier {
    STREAM_REVERSED, /* write_bwd computes it in place from the state after the sublayer            */
    STREAM_SAVED,    /* forward keeps a copy, (N, d, c) in each sublayer, and backward continues in it */
};

/* The state that flows from sublayer to sublayer; memory of the backend. */
struct stream {
    float *X;  /* (N, d, c) the state after the sublayers so far; in backward, before those still to come */
    float *dX; /* (N, d, c) its gradient; NULL outside of training */
    size_t channels;
};

#endif
