/* Eight-bit weights in tiles (ops.h): quantize, dequantize and multiply. A vector holds numbers of V rows, so
 * no sum goes across lanes. A number of C is a sum over groups in their order, whatever tile computes it: a
 * row of C is bitwise the same for any number of rows. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/passes.h"
#include "backend/cpu/kernels/vec.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum {
    ROWS = DDL_Q8_ROWS,
    QUADS = DDL_GROUP / 4,
    PARTS = ROWS / V,
    MOST_TILES = 4, /* rows of tiles that are multiplied at a time */
};

/* Byte j of every lane, as floats. */
INLINE vec byte_of(vec_int four, const int j)
{
    return to_floats((four << (24 - 8 * j)) >> 24);
}

/* The largest magnitude in a group; NaN where one of them is not finite. */
INLINE float size_of_group(const float *x)
{
    const int32_t infinite = 0x7f800000; /* magnitudes are ordered as their bits */
    int32_t bits[DDL_GROUP], largest = 0;
    memcpy(bits, x, sizeof bits);
#pragma omp simd reduction(max : largest)
    for (size_t i = 0; i < DDL_GROUP; i++) {
        int32_t size = bits[i] & 0x7fffffff;
        largest = size > largest ? size : largest;
    }
    float size;
    memcpy(&size, &largest, sizeof size);
    return largest < infinite ? size : __builtin_nanf("");
}

/* A slice: 32 numbers of a row of A in the form that is multiplied with tiles, made by `prepare`. add_tiles
 * adds the products of M rows' slices and R tiles of consecutive rows; slices and tiles are `groups` apart
 * from row to row. sum[r M + m][p]: row m of A, vector p of tile r's rows. M and R are constants. */
#ifdef HAVE_DOT_BYTES

static_assert(PARTS == 1, "a vector holds all rows of a tile");

/* x = step (65536 d_2 + 256 d_1 + d_0) with three signed digits. Products of digits and bytes and their sums
 * over a group are exact in integers. x is rounded to 2^-23 of its group's largest number. */
enum { DIGITS = 3, BITS = 23, BIAS = 128 /* a byte is multiplied as q + BIAS, which is not negative */ };
enum { MOST_ROWS = 4 };             /* of A at a time */
static const float margin = 1.004f; /* digits reach 127 (65536 + 256 + 1), not 2^BITS */
struct slice {
    int8_t digit[DIGITS][DDL_GROUP];
    int32_t start[DIGITS]; /* - BIAS sum of the digits */
    float step;            /* NaN where an x is not finite */
};

INLINE float power_of_two(int exponent)
{
    uint32_t bits = (uint32_t)(127 + exponent) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e with size < 2^e, for size >= 0. */
INLINE int exponent_above(float size)
{
    uint32_t bits;
    memcpy(&bits, &size, sizeof bits);
    return (bits >> 23 ? (int)(bits >> 23) : 1) - 126;
}

INLINE void prepare(const float *x, struct slice *y)
{
    float size = size_of_group(x);
    int e = exponent_above(size * margin) - BITS,
        half = e / 2; /* two factors, for 2^-e may be out of range */
    vec_int whole[DDL_GROUP / V];
    memset(y, 0, sizeof *y);
    y->step = size == size ? power_of_two(half) * power_of_two(e - half) : size;
    if (!(size > 0))
        return;
    for (size_t i = 0; i < DDL_GROUP / V; i++)
        whole[i] = nearest(load(x + i * V) * splat(power_of_two(-half)) * splat(power_of_two(half - e)));
    for (size_t d = 0; d < DIGITS; d++) {
        vec_int sum = { 0 };
        for (size_t i = 0; i < DDL_GROUP / V; i++) {
            vec_int low = (whole[i] << 24) >> 24;
            store_bytes(y->digit[d] + i * V, low);
            whole[i] = (whole[i] - low) >> 8;
            sum += low;
        }
        y->start[d] = -BIAS * int_sum(sum);
    }
}

INLINE void add_tiles(const struct ddl_q8 *b, const struct slice *x, size_t groups,
                      vec (*sum)[MOST_ROWS][PARTS], const size_t M, const size_t R)
{
    vec_int part[MOST_TILES][MOST_ROWS][DIGITS];
    for (size_t r = 0; r < R; r++) {
        for (size_t m = 0; m < M; m++) {
            for (size_t d = 0; d < DIGITS; d++)
                part[r][m][d] = splat_ints(x[m * groups].start[d]);
        }
    }
    for (size_t k = 0; k < QUADS; k++) {
        vec_int w[MOST_TILES];
        for (size_t r = 0; r < R; r++)
            w[r] = load_ints(b[r * groups].q[k]) ^ splat_ints((int)0x80808080); /* q + BIAS */
        for (size_t m = 0; m < M; m++) {
            for (size_t d = 0; d < DIGITS; d++) {
                vec_int four = splat_bytes(x[m * groups].digit[d] + 4 * k);
                for (size_t r = 0; r < R; r++)
                    part[r][m][d] = dot_bytes(part[r][m][d], w[r], four);
            }
        }
    }
    for (size_t r = 0; r < R; r++) {
        vec scale = load(b[r * groups].scale);
        for (size_t m = 0; m < M; m++) {
            vec high = to_floats(part[r][m][2] * 256 + part[r][m][1]);
            vec all = high * 256 + to_floats(part[r][m][0]);
            sum[r][m][0] += all * splat(x[m * groups].step) * scale;
        }
    }
}

#else

enum { MOST_ROWS = 8, MOST_VECTORS = 4 };
struct slice {
    float x[DDL_GROUP];
};

INLINE void prepare(const float *x, struct slice *y)
{
    memcpy(y->x, x, sizeof y->x);
}

/* Vectors of rows that are summed at a time for M rows of A: enough sums that do not wait for each other, and
 * few enough for the registers. */
INLINE size_t vectors_at_a_time(const size_t M, const size_t R)
{
    const size_t most = M == 1 ? 4 : M <= 4 ? 2 : 1;
    return most < R * PARTS ? most : R * PARTS;
}

INLINE void add_tiles(const struct ddl_q8 *b, const struct slice *x, size_t groups,
                      vec (*sum)[MOST_ROWS][PARTS], const size_t M, const size_t R)
{
    const size_t n = vectors_at_a_time(M, R);
    for (size_t i = 0; i < R * PARTS; i += n) {
        vec part[MOST_VECTORS][MOST_ROWS] = { 0 };
        for (size_t k = 0; k < QUADS; k++) {
            vec_int four[MOST_VECTORS];
            for (size_t v = 0; v < n; v++)
                four[v] = load_ints(b[(i + v) / PARTS * groups].q[k][(i + v) % PARTS * V]);
            for (size_t j = 0; j < 4; j++) {
                for (size_t v = 0; v < n; v++) {
                    vec w = byte_of(four[v], (int)j);
                    for (size_t m = 0; m < M; m++)
                        part[v][m] += w * splat(x[m * groups].x[4 * k + j]);
                }
            }
        }
        for (size_t v = 0; v < n; v++) {
            for (size_t m = 0; m < M; m++)
                sum[(i + v) / PARTS][m][(i + v) % PARTS] +=
                    part[v][m] * load(b[(i + v) / PARTS * groups].scale + (i + v) % PARTS * V);
        }
    }
}

#endif

static_assert(sizeof(struct slice) <= DDL_GROUP * sizeof(float), "scratch is counted in rows of floats");
static_assert(sizeof(struct ddl_q8) % DDL_ALIGN == 0, "tiles are whole lines");

void DDL_KERNEL(slice_q8)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct tiles_q8_args *by = args;
    const struct matmul_q8_args *a = by->product;
    size_t whole = a->K / DDL_GROUP * DDL_GROUP;
    struct slice *slices = (struct slice *)by->slices + lo * ddl_q8_groups(a->K);
    (void)scratch;
    for (size_t m = lo; m < hi; m++) {
        const float *A = a->A + m * a->lda;
        for (size_t k = 0; k < whole; k += DDL_GROUP)
            prepare(A + k, slices++);
        if (whole < a->K) {
            float x[DDL_GROUP] = { 0 };
            memcpy(x, A + whole, (a->K - whole) * sizeof *x);
            prepare(x, slices++);
        }
    }
}

/* C for rows [m, m + M) of A and row number `tile` of B's tiles: of its 16 columns those that are C's. */
INLINE void put(const struct matmul_q8_args *a, size_t tile, size_t m, const vec (*sum)[PARTS],
                const size_t M)
{
    size_t row = tile * ROWS, from = row < a->first ? a->first - row : 0, left = a->first + a->N - row;
    size_t end = left < ROWS ? left : ROWS;
    for (size_t r = 0; r < M; r++) {
        float lanes[ROWS], *c = a->C + (m + r) * a->ldc + row + from - a->first;
        for (size_t p = 0; p < PARTS; p++)
            store(lanes + p * V, sum[r][p] * splat(a->alpha));
        for (size_t i = 0; a->accumulate && i < end - from; i++)
            lanes[from + i] += c[i];
        memcpy(c, lanes + from, (end - from) * sizeof *c);
    }
}

/* M rows of A with R rows of tiles. */
INLINE void multiply(const struct tiles_q8_args *by, const struct pass *p, size_t tile, const size_t M,
                     const size_t R)
{
    const struct matmul_q8_args *a = by->product;
    size_t groups = ddl_q8_groups(a->K), far = p->ahead * groups * sizeof(struct ddl_q8);
    size_t first = first_prefetch(p, tile);
    const struct ddl_q8 *b = (const struct ddl_q8 *)a->B + tile * groups;
    const struct slice *x = (const struct slice *)by->slices + p->m * groups;
    vec sum[MOST_TILES][MOST_ROWS][PARTS];
    for (size_t r = 0; r < R; r++) {
        for (size_t m = 0; m < M; m++) {
            for (size_t i = 0; i < PARTS; i++)
                sum[r][m][i] = splat(0);
        }
    }
    for (size_t g = 0; g < groups; g++) {
        for (size_t r = first; r < R; r += p->every)
            prefetch(b + r * groups + g, far, sizeof *b);
        add_tiles(b + g, x + g, groups, sum, M, R);
    }
    for (size_t r = 0; r < R; r++)
        put(a, tile + r, p->m, (const vec(*)[PARTS])sum[r], M);
}

/* X(M, R): for M rows of A as many rows of tiles at a time as there are registers for. */
#ifdef HAVE_DOT_BYTES
#define EACH_M(X) X(1, 4) X(2, 4) X(3, 2) X(4, 2)
#else
#define EACH_M(X) X(1, 4) X(2, 4) X(3, 2) X(4, 2) X(5, 1) X(6, 1) X(7, 1) X(8, 1)
#endif
#define DEFINE_MULTIPLY(M, R)                                                                                \
    static_assert(R <= MOST_TILES && M <= MOST_ROWS, "space for their sums");                                \
    static void multiply_##M(const struct tiles_q8_args *by, const struct pass *p)                           \
    {                                                                                                        \
        size_t tile = p->lo;                                                                                 \
        for (; tile + R <= p->hi; tile += R)                                                                 \
            multiply(by, p, tile, M, R);                                                                     \
        for (; tile < p->hi; tile++)                                                                         \
            multiply(by, p, tile, M, 1);                                                                     \
    }
EACH_M(DEFINE_MULTIPLY)
#define LIST_MULTIPLY(M, R) multiply_##M,
static void (*const by_rows[])(const struct tiles_q8_args *by,
                               const struct pass *p) = { EACH_M(LIST_MULTIPLY) };
static_assert(sizeof by_rows / sizeof *by_rows == MOST_ROWS, "one for each M");

static void pass_tiles(const void *args, const struct pass *p)
{
    by_rows[p->M - 1](args, p);
}

void DDL_KERNEL(matmul_q8_tiles)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct tiles_q8_args *by = args;
    const struct matmul_q8_args *a = by->product;
    (void)scratch;
    in_passes(a->M, MOST_ROWS, lo, hi, ddl_q8_groups(a->K) * sizeof(struct ddl_q8), false, pass_tiles, by);
}

/* ---- to float32 and back ---- */

void DDL_KERNEL(q8_panel)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct q8_panel_args *a = args;
    size_t groups = ddl_q8_groups(a->K);
    (void)scratch;
    for (size_t i = lo * groups; i < hi * groups; i++) {
        size_t first = i % groups * DDL_GROUP, left = a->K - first;
        for (size_t p = 0; p < PARTS; p++) {
            vec scale = load(a->B[i].scale + p * V);
            float *y = a->y + first * a->ldy + i / groups * ROWS + p * V;
            for (size_t k = 0; k < DDL_GROUP && k < left; k++)
                store(y + k * a->ldy, scale * byte_of(load_ints(a->B[i].q[k / 4][p * V]), (int)(k % 4)));
        }
    }
}

/* Row `row` of a matrix W with rows of `width` numbers. */
INLINE void read_row(const struct ddl_q8 *W, size_t width, size_t row, float *x)
{
    const struct ddl_q8 *b = W + row / ROWS * ddl_q8_groups(width);
    size_t lane = row % ROWS;
    for (size_t i = 0; i < width; i++, b += i % DDL_GROUP == 0)
        x[i] = b->scale[lane] * (float)b->q[i % DDL_GROUP / 4][lane][i % 4];
}

void DDL_KERNEL(gather_q8)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct gather_q8_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++)
        read_row(a->x, a->width, a->first + (size_t)a->index[n], a->y + n * a->width);
}

void DDL_KERNEL(dequantize_q8)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct dequantize_q8_args *a = args;
    (void)scratch;
    for (size_t n = lo; n < hi; n++)
        read_row(a->W, a->width, a->first + n, a->x + n * a->width);
}

/* x (DDL_GROUP numbers) as row `lane` of a tile. */
static void quantize_group(const float *x, struct ddl_q8 *y, size_t lane)
{
    int8_t bytes[DDL_GROUP] = { 0 };
    float scale = size_of_group(x) / 127;
    y->scale[lane] = scale;
    if (scale > 0) {
#pragma omp simd
        for (size_t i = 0; i < DDL_GROUP; i++) {
            /* A scale below the smallest normal number loses digits: values out of range are clamped. */
            float q = __builtin_rintf(x[i] / scale);
            q = q > 127 ? 127 : q;
            bytes[i] = (int8_t)(q < -127 ? -127 : q);
        }
    }
    for (size_t k = 0; k < QUADS; k++)
        memcpy(y->q[k][lane], bytes + 4 * k, 4);
}

void DDL_KERNEL(quantize_q8)(const void *args, size_t lo, size_t hi, float *scratch)
{
    const struct quantize_q8_args *a = args;
    struct ddl_q8 *W = a->W;
    size_t groups = ddl_q8_groups(a->width);
    (void)scratch;
    for (size_t n = lo; n < hi; n++) {
        size_t row = a->first + n;
        for (size_t k = 0; k < a->width; k += DDL_GROUP) {
            float x[DDL_GROUP] = { 0 };
            memcpy(x, a->x + n * a->width + k,
                   (a->width - k < DDL_GROUP ? a->width - k : DDL_GROUP) * sizeof *x);
            quantize_group(x, &W[row / ROWS * groups + k / DDL_GROUP], row % ROWS);
        }
    }
}
