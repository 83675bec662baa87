/* The residual stream of a pass. Types only. */
#ifndef DDL_MODEL_STREAM_H
#define DDL_MODEL_STREAM_H

#include <stdbool.h>
#include <stddef.h>

struct state_form;

/* How backward gets the state that a sublayer was given; the choice of the layer's residual rule. */
enum stream_earlier {
    STREAM_REVERSED, /* write_bwd computes it in place from the state after the sublayer            */
    STREAM_SAVED,    /* forward keeps a copy, (N, d, c) in each sublayer, and backward continues in it */
    STREAM_KEPT,     /* write_fwd writes the new state to memory of the sublayer, and the state before remains
                        where it is. With DDL_RECOMPUTE_BLOCK that memory is shared by the first sublayers of
                        all blocks, and backward repeats their write_fwd. */
    STREAM_PLACED,   /* the form of the state has memory for all states of a pass (state_form.states), and the
                        rule moves the stream from one to the next */
};

/* The state that flows from sublayer to sublayer; memory of the backend. */
struct stream {
    float *X; /* (N, d, c) the state after the sublayers so far; in backward, before those still to come */
    float *X_next;  /* where write_fwd writes the new state: X, or with STREAM_KEPT perhaps other memory */
    float *dX;      /* (N, d, c) its gradient; NULL outside of training */
    uint16_t *dX16; /* the same in bfloat16 where what wrote it last wrote that too, or NULL */
    size_t channels;
    const struct state_form *form;
    bool is_read; /* x_in and the readout have memory of their own; see the form */
};

#endif
