/* test_emulator KERNEL SEED: launches a kernel of kernels.cu on the emulator. Prints "ok", or the launch's
 * failure, or how the results differ from those of a loop. Built plain, with AddressSanitizer and with
 * ThreadSanitizer: emulator.sh.
 */
#include "emulator.h"
#include "kernels.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static const unsigned COLUMNS = 1000, ROWS = 5, THREADS = 256, MOST_SHARED = 8192; /* bytes */

static float bf16(float x) /* of numbers that are not NaN */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int difference(const char *what, unsigned i, float expected, float found)
{
    if (expected == found)
        return 0;
    printf("%s %u: expected %.9g, found %.9g\n", what, i, static_cast<double>(expected),
           static_cast<double>(found));
    return 1;
}

static int launch(const char *kernel, unsigned grid, unsigned threads, size_t shared, const void *arguments,
                  unsigned seed)
{
    char message[512];
    const struct emulator_launch l = { kernel, { grid, 1, 1 }, { threads, 1, 1 },
                                       shared, MOST_SHARED,    arguments,
                                       seed };
    if (emulator_run(&l, message, sizeof message))
        return 0;
    puts(message);
    return 1;
}

static int compare_row_sums(const struct rows *a)
{
    int differences = 0;
    for (unsigned row = 0; row < ROWS; row++) {
        float sum = 0; /* of small integers: exact in every order */
        for (unsigned i = 0; i < COLUMNS; i++)
            sum += a->x[row * COLUMNS + i];
        differences += difference("sum", row, sum, a->y[row]);
    }
    return differences;
}

static int compare_warp_operations(const struct rows *a)
{
    int differences = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        const float *x = a->x, *y = a->y + 8 * lane;
        const float expected[8] = { x[5], x[lane ^ 3], x[lane < 2 ? lane : lane - 2],
                                    x[lane % 8 < 6 ? lane + 2 : lane],
                                    /* the lanes 18, 21, 24, 27, 30, less 16 */
                                    static_cast<float>(1 << 2 | 1 << 5 | 1 << 8 | 1 << 11 | 1 << 14), 1,
                                    lane < 16 ? x[lane ^ 1] : x[31], bf16(x[lane]) };
        for (unsigned i = 0; i < 8; i++)
            differences += difference("warp operation", i, expected[i], y[i]);
    }
    return differences;
}

static int compare_histogram(const struct rows *a)
{
    float counts[98] = {};
    for (unsigned i = 0; i < COLUMNS; i++)
        counts[97] += counts[static_cast<int>(a->x[i]) + 48]++;
    int differences = 0;
    for (unsigned i = 0; i < 98; i++)
        differences += difference("count", i, counts[i], a->y[i]);
    return differences;
}

static int test_rows(const char *kernel, unsigned grid, unsigned threads, unsigned seed)
{
    const size_t shared = strcmp(kernel, "vectors") == 0 ? sizeof(float) * 4 * threads : 0;
    const size_t count = ROWS * COLUMNS;
    float *x = static_cast<float *>(malloc(sizeof *x * count)),
          *y = static_cast<float *>(malloc(sizeof *y * count));
    for (unsigned i = 0; i < count; i++) {
        x[i] = static_cast<float>(i % 97) - 48;
        y[i] = 0;
    }
    if (strcmp(kernel, "warp_operations") == 0)
        for (unsigned i = 0; i < 32; i++)
            x[i] = sqrtf(static_cast<float>(i + 1));
    const struct rows a = { x, y,
                            strcmp(kernel, "global_overflow") == 0 ? static_cast<unsigned>(count) : COLUMNS };
    int differences = launch(kernel, grid, threads, shared, &a, seed);
    if (differences == 0) {
        if (strcmp(kernel, "row_sum") == 0)
            differences = compare_row_sums(&a);
        else if (strcmp(kernel, "warp_operations") == 0)
            differences = compare_warp_operations(&a);
        else if (strcmp(kernel, "histogram") == 0)
            differences = compare_histogram(&a);
        else if (strcmp(kernel, "vectors") == 0)
            for (unsigned i = 0; i < 4 * threads; i++)
                differences += difference("vector", i, x[4 * (threads - 1 - i / 4) + i % 4], y[i]);
        else
            for (unsigned i = 0; i < threads; i++)
                if (std::isnan(y[i]))
                    differences += difference("result", i, 0, y[i]);
    }
    free(x);
    free(y);
    return differences;
}

static uint16_t upper_half(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);
}

static int test_product(unsigned seed)
{
    struct buffers {
        alignas(16) uint16_t a[16][16], b[16][16];
        float c[16][8];
    } *m = static_cast<struct buffers *>(aligned_alloc(16, sizeof(struct buffers)));
    /* Small integers: exact in bfloat16, and their sums of products in float32. */
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            m->a[i][j] = upper_half(static_cast<float>((7 * i + 3 * j) % 11 - 5));
            m->b[i][j] = upper_half(static_cast<float>((5 * i + j * j) % 13 - 6));
        }
    const struct product_arguments arguments = { m->a[0], m->b[0], m->c[0] };
    int differences = launch("product", 1, 32, 0, &arguments, seed);
    for (int i = 0; i < 16 && differences == 0; i++)
        for (int j = 0; j < 8; j++) {
            int sum = 0;
            for (int k = 0; k < 16; k++)
                sum += ((7 * i + 3 * k) % 11 - 5) * ((5 * k + j * j) % 13 - 6);
            differences +=
                difference("product", static_cast<unsigned>(8 * i + j), static_cast<float>(sum), m->c[i][j]);
        }
    free(m);
    return differences;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const char *kernel = argv[1];
    const unsigned seed = static_cast<unsigned>(strtoul(argv[2], nullptr, 10));
    static const char *const one_warp[] = { "warp_operations",  "missing_warp_barrier",
                                            "racing_blocks",    "missing_wait",
                                            "never_waited",     "misaligned_vector",
                                            "misaligned_copy",  "matrix_in_global",
                                            "wrong_lane",       "wrong_mask",
                                            "ended_lane",       "waiting_lanes",
                                            "shared_underflow", "racing_blocks_after_barrier" };
    unsigned threads = strcmp(kernel, "absent_lane") == 0 ? 24 : THREADS;
    for (const char *each : one_warp)
        if (strcmp(kernel, each) == 0)
            threads = 32;
    const unsigned grid = strcmp(kernel, "row_sum") == 0 ? ROWS : strncmp(kernel, "racing", 6) == 0 ? 2 : 1;
    const int failed =
        strcmp(kernel, "product") == 0 ? test_product(seed) : test_rows(kernel, grid, threads, seed);
    if (!failed)
        puts("ok");
    return failed ? 1 : 0;
}
