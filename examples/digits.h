/* The optical digits: 1,797 images of 8 x 8 pixels in ten classes (data/digits/digits.bin), divided into
 * training and test images. */
#ifndef EXAMPLES_DIGITS_H
#define EXAMPLES_DIGITS_H

#include "nn.h"

enum { DIGITS = 1797, DIGITS_TRAIN = 1297, PIXELS = 64, CLASSES = 10 };

struct digits {
    float pixel[DIGITS][PIXELS]; /* 0 to 1; the first DIGITS_TRAIN images are for training */
    int label[DIGITS];
};
/* Reads the file at `path`; ends the program if that fails. The division is the same for all programs. */
void digits_read(struct digits *digits, const char *path);
/* Copies n random training images and their labels. */
void digits_batch(const struct digits *digits, struct nn_rng *rng, size_t n, float *pixels, int *labels);

/* A model that a program brings: `kind` is 0 for the addition, 1 for the delta block. */
struct digits_model {
    void *(*create)(struct nn_params *params, int kind, size_t batch, ddl_backend *backend);
    void (*free)(void *net);
    /* pixels (n, PIXELS) -> logits (n, CLASSES); n is at most the batch of create. */
    void (*forward)(void *net, size_t n, const float *pixels, float *logits);
    void (*backward)(void *net, size_t n, const float *pixels, const float *dlogits);
};
/* The program: `NAME DATA [STEPS [SEEDS]]` trains both kinds from each seed and prints the accuracy on the
 * test images. Returns the exit status: 1 if a loss did not fall. */
int digits_main(int argc, char **argv, const struct digits_model *model, size_t default_steps);

#endif
