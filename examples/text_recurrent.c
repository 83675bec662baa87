/* A gated recurrent model of text, character by character, with additions or with the delta block.
 *
 *     X_t = E[character t];  x = norm(X)
 *     a = sigmoid(W_a x),  b = W_b x,  h_t = a (*) h_(t-1) + (1 - a) (*) b      a diagonal linear recurrence
 *     u = W_o h;  X = residual(X, u), twice;  logits = linear(norm(X))
 *
 * Only h mixes characters. A row of the delta block is a position of a sequence: state of 16 features of 4
 * channels. */
#include "nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 16, T = 64, N = B * T, V = 128, D = 16, C = 4, WIDTH = D * C, LAYERS = 2, MAX_SEEDS = 100 };

struct layer {
    struct nn_linear gate, input, out;
    struct nn_residual residual;
    float *X, *normed, *a, *b, *h, *u; /* (N, WIDTH) each */
};
struct net {
    struct nn_array *embedding; /* (V, WIDTH) */
    struct nn_linear last;
    struct layer layer[LAYERS];
    float *X, *normed, *logits;                       /* (N, WIDTH) twice, (N, V) */
    float *G, *dnormed, *da, *db, *dh, *du, *dlogits; /* gradients */
};

/* h (B, T, WIDTH) from a, which becomes its sigmoid, and b. */
static void scan(float *a, const float *b, float *h)
{
    for (size_t i = 0; i < N * WIDTH; i++) {
        float before = i / WIDTH % T ? h[i - WIDTH] : 0;
        a[i] = 1 / (1 + expf(-a[i]));
        h[i] = a[i] * before + (1 - a[i]) * b[i];
    }
}

/* dh becomes the gradient of h through all later positions; da is that before the sigmoid. */
static void scan_backward(const float *a, const float *b, const float *h, float *dh, float *da, float *db)
{
    for (size_t i = N * WIDTH; i-- > 0;) {
        bool first = i / WIDTH % T == 0, last = i / WIDTH % T == T - 1;
        float before = first ? 0 : h[i - WIDTH];
        if (!last)
            dh[i] += a[i + WIDTH] * dh[i + WIDTH];
        da[i] = dh[i] * (before - b[i]) * a[i] * (1 - a[i]);
        db[i] = dh[i] * (1 - a[i]);
    }
}

static void create(struct net *net, struct nn_params *params, bool delta, ddl_backend *backend)
{
    float **wide[] = {
        &net->X, &net->normed, &net->G, &net->dnormed, &net->da, &net->db, &net->dh, &net->du
    };
    net->embedding = nn_param(params, V * WIDTH, 1);
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &net->layer[l];
        float **of_layer[] = { &layer->X, &layer->normed, &layer->a, &layer->b, &layer->h, &layer->u };
        layer->residual = nn_residual(params, delta, D, C, N, backend);
        layer->gate = nn_linear(params, WIDTH, WIDTH);
        layer->input = nn_linear(params, WIDTH, WIDTH);
        layer->out = nn_linear(params, WIDTH, nn_residual_inputs(&layer->residual));
        for (size_t i = 0; i < sizeof of_layer / sizeof *of_layer; i++)
            *of_layer[i] = nn_floats(N * WIDTH);
    }
    net->last = nn_linear(params, WIDTH, V);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = nn_floats(N * WIDTH);
    net->logits = nn_floats(N * V);
    net->dlogits = nn_floats(N * V);
}

static void free_net(struct net *net)
{
    float *buffers[] = { net->X,  net->normed, net->G,  net->dnormed, net->da,
                         net->db, net->dh,     net->du, net->logits,  net->dlogits };
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &net->layer[l];
        ddl_block_free(layer->residual.block);
        float *of_layer[] = { layer->X, layer->normed, layer->a, layer->b, layer->h, layer->u };
        for (size_t i = 0; i < sizeof of_layer / sizeof *of_layer; i++)
            free(of_layer[i]);
    }
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
}

/* The mean loss of a batch; dlogits is set. */
static double forward(struct net *net, const int *tokens, const int *targets)
{
    for (size_t i = 0; i < N; i++)
        memcpy(net->layer[0].X + i * WIDTH, net->embedding->value + tokens[i] * WIDTH, WIDTH * sizeof(float));
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *layer = &net->layer[l];
        nn_norm(N, WIDTH, layer->X, layer->normed);
        nn_linear_forward(&layer->gate, N, layer->normed, layer->a);
        nn_linear_forward(&layer->input, N, layer->normed, layer->b);
        scan(layer->a, layer->b, layer->h);
        nn_linear_forward(&layer->out, N, layer->h, layer->u);
        nn_residual_forward(&layer->residual, N, layer->X, layer->u,
                            l + 1 < LAYERS ? net->layer[l + 1].X : net->X);
    }
    nn_norm(N, WIDTH, net->X, net->normed);
    nn_linear_forward(&net->last, N, net->normed, net->logits);
    return nn_cross_entropy(N, V, net->logits, targets, net->dlogits, NULL);
}

static void backward(struct net *net, const int *tokens)
{
    const size_t bytes = N * WIDTH * sizeof(float);
    memset(net->dnormed, 0, bytes);
    memset(net->G, 0, bytes);
    nn_linear_backward(&net->last, N, net->normed, net->dlogits, net->dnormed);
    nn_norm_backward(N, WIDTH, net->X, net->dnormed, net->G);
    for (size_t l = LAYERS; l-- > 0;) {
        struct layer *layer = &net->layer[l];
        memset(net->dh, 0, bytes);
        memset(net->dnormed, 0, bytes);
        nn_residual_backward(&layer->residual, N, layer->X, layer->u, net->G, net->du);
        nn_linear_backward(&layer->out, N, layer->h, net->du, net->dh);
        scan_backward(layer->a, layer->b, layer->h, net->dh, net->da, net->db);
        nn_linear_backward(&layer->gate, N, layer->normed, net->da, net->dnormed);
        nn_linear_backward(&layer->input, N, layer->normed, net->db, net->dnormed);
        nn_norm_backward(N, WIDTH, layer->X, net->dnormed, net->G);
    }
    for (size_t i = 0; i < N * WIDTH; i++)
        net->embedding->grad[(size_t)tokens[i / WIDTH] * WIDTH + i % WIDTH] += net->G[i];
}

/* ---- the text ---- */

struct text {
    unsigned char *bytes;
    size_t size, train; /* the first `train` bytes are for training, the rest is for validation */
};

static struct text read_text(const char *path)
{
    struct text text = { .bytes = malloc(1 << 21) };
    FILE *file = fopen(path, "rb");
    if (!file || !text.bytes || (text.size = fread(text.bytes, 1, 1 << 21, file)) < 100 * T) {
        fprintf(stderr, "%s: expected a text of at least %d bytes\n", path, 100 * T);
        exit(1);
    }
    fclose(file);
    text.train = text.size / 10 * 9;
    return text;
}

/* Random sequences of bytes [from, to), and the characters that follow each; characters other than ASCII
 * become 0. */
static void batch(const struct text *text, size_t from, size_t to, struct nn_rng *rng, int *tokens,
                  int *targets)
{
    for (size_t i = 0; i < N; i += T) {
        size_t at = from + (size_t)(nn_uniform(rng) * (double)(to - from - T));
        for (size_t t = 0; t < T; t++) {
            tokens[i + t] = text->bytes[at + t] < V ? text->bytes[at + t] : 0;
            targets[i + t] = text->bytes[at + t + 1] < V ? text->bytes[at + t + 1] : 0;
        }
    }
}

/* Trains one model; returns the validation loss in nats per character. *fell: whether it is below the first
 * training loss. */
static double train(const struct text *text, bool delta, size_t steps, uint64_t seed, ddl_backend *backend,
                    size_t *n_params, bool *fell)
{
    enum { VAL_BATCHES = 16 };
    struct nn_params params = { .rng = { seed } };
    struct nn_rng rng = { seed + 1000 }, val_rng = { 1 };
    static int tokens[N], targets[N];
    struct net net = { 0 };
    double first = 0, val = 0;
    create(&net, &params, delta, backend);
    for (size_t step = 0; step < steps; step++) {
        batch(text, 0, text->train, &rng, tokens, targets);
        double loss = forward(&net, tokens, targets);
        first = step ? first : loss;
        backward(&net, tokens);
        nn_adam(&params, 5e-3 * (1 - (double)step / (double)steps));
    }
    for (size_t i = 0; i < VAL_BATCHES; i++) {
        batch(text, text->train, text->size, &val_rng, tokens, targets);
        val += forward(&net, tokens, targets) / VAL_BATCHES;
    }
    printf("  seed %llu: first training loss %.4f, validation loss %.4f\n", (unsigned long long)seed, first,
           val);
    *n_params = nn_count(&params);
    *fell = val < first;
    free_net(&net);
    nn_free(&params);
    return val;
}

int main(int argc, char **argv)
{
    size_t steps = argc > 2 ? strtoul(argv[2], NULL, 10) : 500,
           seeds = argc > 3 ? strtoul(argv[3], NULL, 10) : 3;
    struct ddl_error err;
    ddl_backend *backend;
    bool all_fell = true;
    if (argc < 2 || steps < 2 || seeds < 1 || seeds > MAX_SEEDS) {
        fprintf(stderr, "usage: %s TEXT [STEPS [SEEDS]]\n", argv[0]);
        return 2;
    }
    struct text text = read_text(argv[1]);
    nn_check(ddl_backend_create(&backend, "cpu", 1, &err), &err);
    for (int kind = 0; kind < 2; kind++) {
        double val[MAX_SEEDS], mean, deviation;
        size_t n_params;
        printf("%s\n", kind ? "delta" : "addition");
        for (size_t s = 0; s < seeds; s++) {
            bool fell;
            val[s] = train(&text, kind == 1, steps, s + 1, backend, &n_params, &fell);
            all_fell = all_fell && fell;
        }
        nn_mean(val, seeds, &mean, &deviation);
        printf("  %zu parameters, %zu steps, %zu seeds: validation loss %.4f, standard deviation %.4f\n",
               n_params, steps, seeds, mean, deviation);
    }
    ddl_backend_free(backend);
    free(text.bytes);
    return all_fell ? 0 : 1;
}
