#include "digits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, SEEDS = 5, MAX_SEEDS = 100 };

void digits_read(struct digits *digits, const char *path)
{
    struct nn_rng rng = { 1 };
    unsigned char record[DIGITS][PIXELS + 1]; /* pixels from 0 to 16, then the label */
    size_t order[DIGITS];
    FILE *file = fopen(path, "rb");
    if (!file || fread(record, sizeof *record, DIGITS, file) != DIGITS) {
        fprintf(stderr, "%s: expected %d images, found fewer\n", path, DIGITS);
        exit(1);
    }
    fclose(file);
    for (size_t i = 0; i < DIGITS; i++) { /* a random order: neighbors in the file are of one writer */
        size_t j = (size_t)(nn_uniform(&rng) * (double)(i + 1));
        order[i] = i;
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t i = 0; i < DIGITS; i++) {
        for (size_t p = 0; p < PIXELS; p++)
            digits->pixel[i][p] = (float)record[order[i]][p] / 16;
        digits->label[i] = record[order[i]][PIXELS];
    }
}

void digits_batch(const struct digits *digits, struct nn_rng *rng, size_t n, float *pixels, int *labels)
{
    for (size_t i = 0; i < n; i++) {
        size_t image = (size_t)(nn_uniform(rng) * DIGITS_TRAIN);
        memcpy(pixels + i * PIXELS, digits->pixel[image], sizeof digits->pixel[image]);
        labels[i] = digits->label[image];
    }
}

static double test_accuracy(const struct digits *digits, const struct digits_model *model, void *net)
{
    float logits[BATCH * CLASSES];
    size_t right = 0;
    for (size_t i = DIGITS_TRAIN, n; i < DIGITS; i += n) {
        n = DIGITS - i < BATCH ? DIGITS - i : BATCH;
        model->forward(net, n, digits->pixel[i], logits);
        nn_cross_entropy(n, CLASSES, logits, digits->label + i, NULL, &right);
    }
    return (double)right / (DIGITS - DIGITS_TRAIN);
}

/* Trains one model. The learning rate falls linearly to 0. *fell: whether the loss fell. */
static double train(const struct digits *digits, const struct digits_model *model, int kind, size_t steps,
                    uint64_t seed, ddl_backend *backend, size_t *n_params, bool *fell)
{
    struct nn_params params = { .rng = { seed } };
    struct nn_rng rng = { seed + 1000 };
    float pixels[BATCH * PIXELS], logits[BATCH * CLASSES], dlogits[BATCH * CLASSES];
    int labels[BATCH];
    double first = 0, last = 0;
    void *net = model->create(&params, kind, BATCH, backend);
    for (size_t step = 0; step < steps; step++) {
        digits_batch(digits, &rng, BATCH, pixels, labels);
        model->forward(net, BATCH, pixels, logits);
        last = nn_cross_entropy(BATCH, CLASSES, logits, labels, dlogits, NULL);
        first = step ? first : last;
        model->backward(net, BATCH, pixels, dlogits);
        nn_adam(&params, 3e-3 * (1 - (double)step / (double)steps));
    }
    *n_params = nn_count(&params);
    *fell = last < first;
    double accuracy = test_accuracy(digits, model, net);
    printf("  seed %llu: training loss %.4f to %.4f, test accuracy %.4f\n", (unsigned long long)seed, first,
           last, accuracy);
    model->free(net);
    nn_free(&params);
    return accuracy;
}

int digits_main(int argc, char **argv, const struct digits_model *model, size_t default_steps)
{
    static const char *const names[] = { "addition", "delta" };
    static struct digits digits;
    size_t steps = argc > 2 ? strtoul(argv[2], NULL, 10) : default_steps;
    size_t seeds = argc > 3 ? strtoul(argv[3], NULL, 10) : SEEDS;
    struct ddl_error err;
    ddl_backend *backend;
    bool all_fell = true;
    if (argc < 2 || steps < 2 || seeds < 1 || seeds > MAX_SEEDS) {
        fprintf(stderr, "usage: %s DATA [STEPS [SEEDS]]\n", argv[0]);
        return 2;
    }
    digits_read(&digits, argv[1]);
    nn_check(ddl_backend_create(&backend, "cpu", 1, &err), &err);
    for (int kind = 0; kind < 2; kind++) {
        double accuracy[MAX_SEEDS], mean, deviation;
        size_t n_params;
        printf("%s\n", names[kind]);
        for (size_t s = 0; s < seeds; s++) {
            bool fell;
            accuracy[s] = train(&digits, model, kind, steps, s + 1, backend, &n_params, &fell);
            all_fell = all_fell && fell;
        }
        nn_mean(accuracy, seeds, &mean, &deviation);
        printf("  %zu parameters, %zu steps, %zu seeds: test accuracy %.4f, standard deviation %.4f\n",
               n_params, steps, seeds, mean, deviation);
    }
    ddl_backend_free(backend);
    return all_fell ? 0 : 1;
}
