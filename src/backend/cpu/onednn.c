/* Matrix products by oneDNN: dnnl_sgemm, which is the same in 2.x and 3.x, and for bfloat16 its matmul
 * primitives, which are created differently in the two. */
#include "backend/cpu/library.h"

#include "base/mem.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

/* The key of a primitive: all arguments but the addresses. */
struct shape {
    bool trans_a, trans_b, rounds; /* rounds: C is in bfloat16 */
    size_t M, N, K, lda, ldb, ldc;
    float alpha, beta;
};

/* A primitive with its memory objects, whose addresses are set before each run. */
struct product {
    struct shape shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t A, B, C, scratch; /* scratch NULL: the primitive needs none */
    uint64_t used;                  /* which use of all was the last; 0: the entry is free */
};

/* A model has some tens of shapes; of more, the one unused for longest is replaced. */
enum { PRODUCTS = 256 };

/* One scratchpad for all primitives, allocated here: oneDNN guarantees its own only for the thread that
 * creates the primitive. */
struct library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct product product[PRODUCTS];
    uint64_t uses; /* of all products */
    void *scratch; /* large enough for every product so far */
    size_t scratch_bytes;
};

ddl_status library_open(struct library **out, struct ddl_error *err)
{
    struct library *library = ddl_mem_zalloc(sizeof *library);
    *out = NULL;
    if (!library || dnnl_engine_create(&library->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&library->stream, library->engine, dnnl_stream_default_flags) != dnnl_success) {
        library_close(library);
        return ddl_error_set(err, DDL_E_MEMORY, "backend cpu: out of memory for oneDNN");
    }
    *out = library;
    return DDL_OK;
}

static void drop(struct product *product)
{
    dnnl_memory_t memories[] = { product->A, product->B, product->C, product->scratch };
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++) {
        if (memories[i])
            dnnl_memory_destroy(memories[i]);
    }
    if (product->primitive)
        dnnl_primitive_destroy(product->primitive);
    *product = (struct product){ 0 };
}

void library_close(struct library *library)
{
    if (!library)
        return;
    for (size_t i = 0; i < PRODUCTS; i++)
        drop(&library->product[i]);
    if (library->stream)
        dnnl_stream_destroy(library->stream);
    if (library->engine)
        dnnl_engine_destroy(library->engine);
    ddl_mem_free(library->scratch);
    ddl_mem_free(library);
}

void library_describe(char *text, size_t size)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, size, "oneDNN %d.%d", version->major, version->minor);
}

static enum library_outcome outcome(dnnl_status_t status, float beta)
{
    return status == dnnl_success ? LIBRARY_DONE : beta == 0 ? LIBRARY_NOT_TAKEN : LIBRARY_LOST;
}

enum library_outcome library_matmul(const struct matmul_args *a)
{
    dnnl_status_t status = dnnl_sgemm(a->trans_a ? 'T' : 'N', a->trans_b ? 'T' : 'N', (dnnl_dim_t)a->M,
                                      (dnnl_dim_t)a->N, (dnnl_dim_t)a->K, a->alpha, a->A, (dnnl_dim_t)a->lda,
                                      a->B, (dnnl_dim_t)a->ldb, a->beta, a->C, (dnnl_dim_t)a->ldc);
    return outcome(status, a->beta);
}

/* Fitted to what runs of many sizes took (oneDNN 2.6, AVX-512, one and two threads). Memory that oneDNN frees
 * may stay with the C library's allocator: the estimate is off by up to 10 MB either way. */
size_t library_memory(size_t threads, size_t rows, size_t width, bool bf16)
{
    enum { CODE = 5600000, CODE16 = 7900000, ROWS = 1024, PACKED = 12, PACKED16 = 1536 };
    size_t packed = rows < ROWS ? rows : ROWS;
    return bf16 ? CODE16 + threads * packed * PACKED16 : CODE + threads * packed * width * PACKED;
}

bool library_has_bf16(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

static bool same_shape(const struct shape *x, const struct shape *y)
{
    return x->trans_a == y->trans_a && x->trans_b == y->trans_b && x->rounds == y->rounds && x->M == y->M &&
           x->N == y->N && x->K == y->K && x->lda == y->lda && x->ldb == y->ldb && x->ldc == y->ldc &&
           x->alpha == y->alpha && x->beta == y->beta;
}

/* The part that both versions of the interface share: the attributes of alpha (x) + beta C. */
static dnnl_status_t make_attributes(dnnl_primitive_attr_t *out, float alpha, float beta)
{
    dnnl_post_ops_t after = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_post_ops_create(&after);
    if (status == dnnl_success && alpha != 1) {
#if DNNL_VERSION_MAJOR >= 3
        status = dnnl_post_ops_append_eltwise(after, dnnl_eltwise_linear, alpha, 0);
#else
        status = dnnl_post_ops_append_eltwise(after, 1, dnnl_eltwise_linear, alpha, 0);
#endif
    }
    if (status == dnnl_success && beta != 0) {
#if DNNL_VERSION_MAJOR >= 3
        status = dnnl_post_ops_append_sum(after, beta, 0, dnnl_data_type_undef);
#else
        status = dnnl_post_ops_append_sum(after, beta);
#endif
    }
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*out, after);
    if (after)
        dnnl_post_ops_destroy(after);
    return status;
}

/* A matrix of two strides, without an address. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t matrix_desc;
typedef const_dnnl_memory_desc_t borrowed_desc;
#define DESC(matrix) (matrix)
static dnnl_status_t describe(matrix_desc *out, dnnl_dims_t dims, dnnl_data_type_t type, dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(out, 2, dims, type, strides);
}
static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine, matrix_desc *matrix,
                                      dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(out, engine, matrix[0], matrix[1], NULL, matrix[2], attributes);
}
static void forget(matrix_desc matrix)
{
    if (matrix)
        dnnl_memory_desc_destroy(matrix);
}
#else
typedef dnnl_memory_desc_t matrix_desc;
typedef const dnnl_memory_desc_t *borrowed_desc;
#define DESC(matrix) (&(matrix))
static dnnl_status_t describe(matrix_desc *out, dnnl_dims_t dims, dnnl_data_type_t type, dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(out, 2, dims, type, strides);
}
static dnnl_status_t describe_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine, matrix_desc *matrix,
                                      dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t product;
    dnnl_status_t status = dnnl_matmul_desc_init(&product, &matrix[0], &matrix[1], NULL, &matrix[2]);
    return status != dnnl_success ? status
                                  : dnnl_primitive_desc_create(out, &product, attributes, engine, NULL);
}
static void forget(matrix_desc matrix)
{
    (void)matrix;
}
#endif

/* The memory object of a primitive's scratchpad, without an address; grows the library's scratch. */
static dnnl_status_t make_scratch(dnnl_memory_t *out, struct library *library,
                                  const_dnnl_primitive_desc_t desc)
{
    borrowed_desc scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    size_t bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (bytes == 0)
        return dnnl_success;
    if (bytes > library->scratch_bytes) {
        void *grown = ddl_mem_alloc(bytes);
        if (!grown)
            return dnnl_out_of_memory;
        ddl_mem_free(library->scratch);
        library->scratch = grown;
        library->scratch_bytes = bytes;
    }
    return dnnl_memory_create(out, scratch, library->engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_product(struct product *out, struct library *library, const struct shape *s)
{
    dnnl_dim_t M = (dnnl_dim_t)s->M, N = (dnnl_dim_t)s->N, K = (dnnl_dim_t)s->K;
    dnnl_dim_t lda = (dnnl_dim_t)s->lda, ldb = (dnnl_dim_t)s->ldb;
    struct {
        dnnl_dims_t dims, strides;
        dnnl_data_type_t type;
        dnnl_memory_t *memory;
    } rows[] = {
        { { M, K }, { s->trans_a ? 1 : lda, s->trans_a ? lda : 1 }, dnnl_bf16, &out->A },
        { { K, N }, { s->trans_b ? 1 : ldb, s->trans_b ? ldb : 1 }, dnnl_bf16, &out->B },
        { { M, N }, { (dnnl_dim_t)s->ldc, 1 }, s->rounds ? dnnl_bf16 : dnnl_f32, &out->C },
    };
    matrix_desc matrix[3] = { 0 };
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = make_attributes(&attributes, s->alpha, s->beta);
    for (size_t i = 0; status == dnnl_success && i < 3; i++)
        status = describe(&matrix[i], rows[i].dims, rows[i].type, rows[i].strides);
    if (status == dnnl_success)
        status = describe_product(&desc, library->engine, matrix, attributes);
    if (status == dnnl_success)
        status = make_scratch(&out->scratch, library, desc);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&out->primitive, desc);
    for (size_t i = 0; status == dnnl_success && i < 3; i++)
        status = dnnl_memory_create(rows[i].memory, DESC(matrix[i]), library->engine, DNNL_MEMORY_NONE);
    for (size_t i = 0; i < 3; i++)
        forget(matrix[i]);
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
    out->shape = *s;
    if (status != dnnl_success)
        drop(out);
    return status;
}

/* The primitive of this shape, created on first use; NULL if it cannot be created. */
static struct product *find_product(struct library *library, const struct shape *shape)
{
    for (size_t i = 0; i < PRODUCTS && library->product[i].primitive; i++) {
        if (!same_shape(&library->product[i].shape, shape))
            continue;
        library->product[i].used = ++library->uses;
        return &library->product[i];
    }
    struct product made = { 0 }, *place = library->product;
    if (make_product(&made, library, shape) != dnnl_success)
        return NULL;
    for (size_t i = 1; i < PRODUCTS; i++) {
        if (library->product[i].used < place->used)
            place = &library->product[i];
    }
    drop(place);
    *place = made;
    place->used = ++library->uses;
    return place;
}

/* Version 3.7 reads a strided vector as if it were contiguous. */
static bool has_vector(const struct matmul_bf16_args *a)
{
    return a->N == 1 || (a->M == 1 && a->trans_a);
}

static bool place(dnnl_memory_t memory, void *at)
{
    return !memory || dnnl_memory_set_data_handle(memory, at) == dnnl_success;
}

enum library_outcome library_matmul_bf16(struct library *library, const struct matmul_bf16_args *a)
{
    struct shape shape = { a->trans_a, a->trans_b, a->C16 != NULL, a->M,     a->N,   a->K,
                           a->lda,     a->ldb,     a->ldc,         a->alpha, a->beta };
    struct product *product = has_vector(a) ? NULL : find_product(library, &shape);
    if (!product)
        return LIBRARY_NOT_TAKEN;
    /* The interface takes no const address; A and B are only read. */
    dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, product->A },
                               { DNNL_ARG_WEIGHTS, product->B },
                               { DNNL_ARG_DST, product->C },
                               { DNNL_ARG_SCRATCHPAD, product->scratch } };
    if (!place(product->A, (void *)(uintptr_t)a->A) || !place(product->B, (void *)(uintptr_t)a->B) ||
        !place(product->C, a->C16 ? (void *)a->C16 : (void *)a->C) ||
        !place(product->scratch, library->scratch))
        return LIBRARY_NOT_TAKEN;
    dnnl_status_t status =
        dnnl_primitive_execute(product->primitive, library->stream, product->scratch ? 4 : 3, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(library->stream);
    return outcome(status, a->beta);
}
