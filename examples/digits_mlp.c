/* A residual multilayer perceptron on the optical digits, with additions or with the delta block.
 *
 *     X_0 = linear(pixels);  u = W2 relu(W1 norm(X) + b1) + b2;  X = residual(X, u), four times
 *     logits = linear(norm(X))
 *
 * The state X of an image has 64 numbers; the delta block uses them as 16 features of 4 channels. */
#include "digits.h"

#include <stdlib.h>
#include <string.h>

enum { D = 16, C = 4, WIDTH = D * C, HIDDEN = 64, LAYERS = 4 };

struct layer {
    struct nn_linear in, out;
    struct nn_residual residual;
    float *X, *normed, *hidden, *u; /* (n, WIDTH) twice, (n, HIDDEN), (n, WIDTH or C), for backward */
};
struct net {
    struct nn_linear first, last;
    struct layer layer[LAYERS];
    float *X, *normed;                 /* (n, WIDTH) after the last layer */
    float *G, *dnormed, *dhidden, *du; /* gradients */
};

static void *create(struct nn_params *params, int kind, size_t batch, ddl_backend *backend)
{
    struct net *net = calloc(1, sizeof *net);
    float **wide[] = { &net->X, &net->normed, &net->G, &net->dnormed, &net->du };
    if (!net)
        abort();
    net->first = nn_linear(params, PIXELS, WIDTH);
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &net->layer[l];
        layer->residual = nn_residual(params, kind == 1, D, C, batch, backend);
        layer->in = nn_linear(params, WIDTH, HIDDEN);
        layer->out = nn_linear(params, HIDDEN, nn_residual_inputs(&layer->residual));
        layer->X = nn_floats(batch * WIDTH);
        layer->normed = nn_floats(batch * WIDTH);
        layer->hidden = nn_floats(batch * HIDDEN);
        layer->u = nn_floats(batch * WIDTH);
    }
    net->last = nn_linear(params, WIDTH, CLASSES);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = nn_floats(batch * WIDTH);
    net->dhidden = nn_floats(batch * HIDDEN);
    return net;
}

static void free_net(void *object)
{
    struct net *net = object;
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &net->layer[l];
        ddl_block_free(layer->residual.block);
        free(layer->X);
        free(layer->normed);
        free(layer->hidden);
        free(layer->u);
    }
    free(net->X);
    free(net->normed);
    free(net->G);
    free(net->dnormed);
    free(net->dhidden);
    free(net->du);
    free(net);
}

static void forward(void *object, size_t n, const float *pixels, float *logits)
{
    struct net *net = object;
    nn_linear_forward(&net->first, n, pixels, net->layer[0].X);
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &net->layer[l];
        float *next = l + 1 < LAYERS ? net->layer[l + 1].X : net->X;
        nn_norm(n, WIDTH, layer->X, layer->normed);
        nn_linear_forward(&layer->in, n, layer->normed, layer->hidden);
        nn_relu(n * HIDDEN, layer->hidden);
        nn_linear_forward(&layer->out, n, layer->hidden, layer->u);
        nn_residual_forward(&layer->residual, n, layer->X, layer->u, next);
    }
    nn_norm(n, WIDTH, net->X, net->normed);
    nn_linear_forward(&net->last, n, net->normed, logits);
}

static void backward(void *object, size_t n, const float *pixels, const float *dlogits)
{
    struct net *net = object;
    memset(net->dnormed, 0, n * WIDTH * sizeof(float));
    memset(net->G, 0, n * WIDTH * sizeof(float));
    nn_linear_backward(&net->last, n, net->normed, dlogits, net->dnormed);
    nn_norm_backward(n, WIDTH, net->X, net->dnormed, net->G);
    for (size_t l = LAYERS; l-- > 0;) {
        struct layer *layer = &net->layer[l];
        memset(net->dhidden, 0, n * HIDDEN * sizeof(float));
        memset(net->dnormed, 0, n * WIDTH * sizeof(float));
        nn_residual_backward(&layer->residual, n, layer->X, layer->u, net->G, net->du);
        nn_linear_backward(&layer->out, n, layer->hidden, net->du, net->dhidden);
        nn_relu_backward(n * HIDDEN, layer->hidden, net->dhidden);
        nn_linear_backward(&layer->in, n, layer->normed, net->dhidden, net->dnormed);
        nn_norm_backward(n, WIDTH, layer->X, net->dnormed, net->G);
    }
    nn_linear_backward(&net->first, n, pixels, net->G, NULL);
}

int main(int argc, char **argv)
{
    static const struct digits_model model = { create, free_net, forward, backward };
    return digits_main(argc, argv, &model, 600);
}
