/* A small convolutional network on the optical digits, with additions or with the delta block.
 *
 *     X_0 = conv(pixels);  u = W2 relu(conv(norm(X))) + b2;  X = residual(X, u), twice
 *     logits = linear(norm(X))
 *
 * Convolutions are 3 x 3 with zeros outside of the image. Each of the 64 positions has a state of 16 numbers,
 * 8 features of 2 channels for the delta block, and a gate and a direction of its own: to the block positions
 * are rows, as images are in digits_mlp.c. */
#include "digits.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 8, TAPS = 9, D = 8, C = 2, WIDTH = D * C, HIDDEN = 16, LAYERS = 2 };

struct layer {
    struct nn_linear conv, out; /* of (TAPS * WIDTH) numbers; of HIDDEN */
    struct nn_residual residual;
    float *X, *hidden, *u; /* (n, PIXELS, WIDTH), (n, PIXELS, HIDDEN), (n, PIXELS, WIDTH or C) */
};
struct net {
    struct nn_linear first, last;
    struct layer layer[LAYERS];
    float *X, *normed, *patches;                  /* (n, PIXELS, WIDTH) twice, (n, PIXELS, TAPS, WIDTH) */
    float *G, *dnormed, *dhidden, *du, *dpatches; /* gradients */
};

/* Position `p` moved by tap `tap` (0 to 8), or PIXELS outside of the image. */
static size_t neighbor(size_t p, size_t tap)
{
    size_t row = p / SIDE + tap / 3, column = p % SIDE + tap % 3; /* both are one too high */
    return row < 1 || row > SIDE || column < 1 || column > SIDE ? PIXELS : (row - 1) * SIDE + column - 1;
}

/* x (n, PIXELS, width) -> patches (n, PIXELS, TAPS, width): the neighbors of each position. */
static void gather(size_t n, size_t width, const float *x, float *patches)
{
    for (size_t i = 0; i < n * PIXELS * TAPS; i++, patches += width) {
        size_t image = i / (PIXELS * TAPS), from = neighbor(i / TAPS % PIXELS, i % TAPS);
        if (from < PIXELS)
            memcpy(patches, x + (image * PIXELS + from) * width, width * sizeof *x);
        else
            memset(patches, 0, width * sizeof *x);
    }
}

/* Its backward pass: added to dx. */
static void scatter(size_t n, size_t width, const float *dpatches, float *dx)
{
    for (size_t i = 0; i < n * PIXELS * TAPS; i++, dpatches += width) {
        size_t image = i / (PIXELS * TAPS), to = neighbor(i / TAPS % PIXELS, i % TAPS);
        for (size_t j = 0; j < width && to < PIXELS; j++)
            dx[(image * PIXELS + to) * width + j] += dpatches[j];
    }
}

static void *create(struct nn_params *params, int kind, size_t batch, ddl_backend *backend)
{
    struct net *net = calloc(1, sizeof *net);
    size_t rows = batch * PIXELS;
    float **wide[] = { &net->X, &net->normed, &net->G, &net->dnormed, &net->du };
    if (!net)
        abort();
    net->first = nn_linear(params, TAPS, WIDTH);
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &net->layer[l];
        layer->residual = nn_residual(params, kind == 1, D, C, rows, backend);
        layer->conv = nn_linear(params, TAPS * WIDTH, HIDDEN);
        layer->out = nn_linear(params, HIDDEN, nn_residual_inputs(&layer->residual));
        layer->X = nn_floats(rows * WIDTH);
        layer->hidden = nn_floats(rows * HIDDEN);
        layer->u = nn_floats(rows * WIDTH);
    }
    net->last = nn_linear(params, PIXELS * WIDTH, CLASSES);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = nn_floats(rows * WIDTH);
    net->dhidden = nn_floats(rows * HIDDEN);
    net->patches = nn_floats(rows * TAPS * WIDTH);
    net->dpatches = nn_floats(rows * TAPS * WIDTH);
    return net;
}

static void free_net(void *object)
{
    struct net *net = object;
    float *buffers[] = { net->X,       net->normed,  net->patches, net->G,
                         net->dnormed, net->dhidden, net->du,      net->dpatches };
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &net->layer[l];
        ddl_block_free(layer->residual.block);
        free(layer->X);
        free(layer->hidden);
        free(layer->u);
    }
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    free(net);
}

static void forward(void *object, size_t n, const float *pixels, float *logits)
{
    struct net *net = object;
    size_t rows = n * PIXELS;
    gather(n, 1, pixels, net->patches);
    nn_linear_forward(&net->first, rows, net->patches, net->layer[0].X);
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &net->layer[l];
        float *next = l + 1 < LAYERS ? net->layer[l + 1].X : net->X;
        nn_norm(rows, WIDTH, layer->X, net->normed);
        gather(n, WIDTH, net->normed, net->patches);
        nn_linear_forward(&layer->conv, rows, net->patches, layer->hidden);
        nn_relu(rows * HIDDEN, layer->hidden);
        nn_linear_forward(&layer->out, rows, layer->hidden, layer->u);
        nn_residual_forward(&layer->residual, rows, layer->X, layer->u, next);
    }
    nn_norm(rows, WIDTH, net->X, net->normed);
    nn_linear_forward(&net->last, n, net->normed, logits);
}

static void backward(void *object, size_t n, const float *pixels, const float *dlogits)
{
    struct net *net = object;
    size_t rows = n * PIXELS;
    memset(net->dnormed, 0, rows * WIDTH * sizeof(float));
    memset(net->G, 0, rows * WIDTH * sizeof(float));
    nn_linear_backward(&net->last, n, net->normed, dlogits, net->dnormed);
    nn_norm_backward(rows, WIDTH, net->X, net->dnormed, net->G);
    for (size_t l = LAYERS; l-- > 0;) {
        struct layer *layer = &net->layer[l];
        memset(net->dhidden, 0, rows * HIDDEN * sizeof(float));
        memset(net->dpatches, 0, rows * TAPS * WIDTH * sizeof(float));
        memset(net->dnormed, 0, rows * WIDTH * sizeof(float));
        nn_residual_backward(&layer->residual, rows, layer->X, layer->u, net->G, net->du);
        nn_linear_backward(&layer->out, rows, layer->hidden, net->du, net->dhidden);
        nn_relu_backward(rows * HIDDEN, layer->hidden, net->dhidden);
        nn_norm(rows, WIDTH, layer->X, net->normed); /* recomputed, as are the patches */
        gather(n, WIDTH, net->normed, net->patches);
        nn_linear_backward(&layer->conv, rows, net->patches, net->dhidden, net->dpatches);
        scatter(n, WIDTH, net->dpatches, net->dnormed);
        nn_norm_backward(rows, WIDTH, layer->X, net->dnormed, net->G);
    }
    gather(n, 1, pixels, net->patches);
    nn_linear_backward(&net->first, rows, net->patches, net->G, NULL);
}

int main(int argc, char **argv)
{
    static const struct digits_model model = { create, free_net, forward, backward };
    return digits_main(argc, argv, &model, 200);
}
