/* Compares docs/formats.md with the code: schedules, tensors with shapes, dtypes. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"
#include "support/markdown.h"

#include "ddl/model.h"
#include "ddl/train.h"
#include "tensor/safetensors.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

static void schedules(void **state)
{
    (void)state;
    struct markdown_table table = markdown_table(formats, "schedules");
    const struct ddl_option *row = ddl_option_find(ddl_train_options(), "schedule");
    size_t n = 0;
    for (; row->choices[n]; n++) {
        char name[64];
        snprintf(name, sizeof name, "`%s`", row->choices[n]);
        if (n >= table.n || strcmp(table.row[n].cell[0], name) != 0)
            fail_msg("table schedules lacks %s", name);
    }
    assert_int_equal(table.n, n);
    markdown_table_free(&table);
}

/* ---- tensors ---- */

struct letters {
    size_t V, d, H, h, m, c, K, E, r, g, w, n, u, R, q;
};

static size_t letter(const struct letters *l, char name)
{
    const struct {
        char name;
        size_t value;
    } rows[] = { { 'V', l->V },     { 'd', l->d }, { 'H', l->H }, { 'h', l->h }, { 'm', l->m }, { 'c', l->c },
                 { 'K', l->K },     { 'E', l->E }, { 'r', l->r }, { 'g', l->g }, { 'w', l->w }, { 'n', l->n },
                 { 'o', l->n + 1 }, { 'u', l->u }, { 'R', l->R }, { 'q', l->q }, { '1', 1 },    { '2', 2 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].name == name)
            return rows[i].value;
    }
    fail_msg("no letter '%c'", name);
    return 0;
}

/* Evaluates "(d·c, 1, K)" to "(96, 1, 4)". */
static void shape_of_letters(const struct letters *l, const char *text, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "(");
    for (const char *at = text + 1; *at && *at != ')';) {
        size_t product = 1;
        for (; *at != ',' && *at != ')'; at++) {
            if ((unsigned char)*at < 128) /* the dot of a product is two bytes */
                product *= letter(l, *at);
        }
        used += (size_t)snprintf(out + used, size - used, "%zu%s", product, *at == ',' ? ", " : ")");
        at += *at == ',' ? 2 : 0;
    }
}

/* Converts "transformer.h.1.ddl_mlp.beta.bias" to the document's "`transformer.h.{l}.{S}.beta.bias`". */
static void general_name(const char *name, char *out, size_t size)
{
    static const char *const sublayers[] = { "ddl_attn.", "ddl_mlp.", "res_attn.", "res_mlp." };
    const char *rest = name;
    size_t used = (size_t)snprintf(out, size, "`");
    if (strncmp(name, "transformer.h.", 14) == 0) {
        rest = strchr(name + 14, '.') + 1;
        used += (size_t)snprintf(out + used, size - used, "transformer.h.{l}.");
    }
    if (strncmp(name, "transformer.dwa.", 16) == 0) {
        rest = strchr(name + 16, '.') + 1;
        used += (size_t)snprintf(out + used, size - used, "transformer.dwa.{i}.");
    }
    for (size_t i = 0; i < sizeof sublayers / sizeof *sublayers; i++) {
        if (strncmp(rest, sublayers[i], strlen(sublayers[i])) == 0) {
            used += (size_t)snprintf(out + used, size - used, "{S}.");
            rest += strlen(sublayers[i]);
            break;
        }
    }
    snprintf(out + used, size - used, "%s`", rest);
}

static void check_param(const struct markdown_table *table, bool *used, const struct letters *l,
                        const struct ddl_param *p)
{
    char name[160], found[96] = "", wanted[96];
    size_t row = 0, n = 0;
    general_name(p->name, name, sizeof name);
    while (row < table->n && strcmp(table->row[row].cell[0], name) != 0)
        row++;
    if (row == table->n)
        fail_msg("list tensors has no row %s", name);
    used[row] = true;
    for (size_t i = 0; i < p->ndim; i++)
        n += (size_t)snprintf(found + n, sizeof found - n, "%s%zu", i ? ", " : "(", p->shape[i]);
    snprintf(found + n, sizeof found - n, ")");
    shape_of_letters(l, table->row[row].cell[1], wanted, sizeof wanted);
    if (strcmp(found, wanted) != 0)
        fail_msg("%s has shape %s, the list says %s, which evaluates to %s", p->name, found,
                 table->row[row].cell[1], wanted);
}

static void check_model(const struct markdown_table *table, bool *used, const struct ddl_config *k)
{
    struct ddl_error err;
    struct ddl_param *params;
    size_t n;
    struct letters l = { .V = k->vocab_size,
                         .d = k->d_model,
                         .H = k->n_heads,
                         .h = k->head_dim,
                         .m = ddl_config_mlp_size(k),
                         .c = k->channels,
                         .K = ddl_config_state_kernel(k),
                         .E = k->embed_kernel,
                         .r = k->residual == DDL_RESIDUAL_LAUREL ? k->laurel_rank : k->k_rank,
                         .g = k->beta_hidden,
                         .w = k->per_feature ? k->d_model : 1,
                         .n = k->streams,
                         .u = k->residual == DDL_RESIDUAL_MHC ? k->d_model * k->streams : k->d_model,
                         .R = ddl_config_residual_steps(k, 0) };
    assert_ok(ddl_params_plan(k, &params, &n, &err), err);
    for (size_t i = 0, sum; i < n; i++) {
        if (sscanf(params[i].name, "transformer.dwa.%zu.", &sum) == 1)
            l.q = sum / k->dense_dilation + 1;
        check_param(table, used, &l, &params[i]);
    }
    free(params);
}

static void tensor_shapes(void **state)
{
    (void)state;
    struct ddl_error err;
    struct markdown_table table = markdown_keys(formats, "tensors");
    bool *used = calloc(table.n, sizeof *used);
    for (size_t i = 0; ddl_config_preset_list(i, NULL); i++) {
        struct ddl_config k = ddl_config_defaults();
        assert_ok(ddl_config_set_preset(&k, ddl_config_preset_list(i, NULL), &err), err);
        assert_ok(ddl_config_set_size(&k, "micro", &err), err);
        k.d_model = 99;
        k.embed_kernel = 3;
        k.state_kernel = k.compress == DDL_COMPRESS_MIX ? 0 : 5;
        k.dense_dilation = 2;
        check_model(&table, used, &k);
        k.steps = 1;
        k.map = DDL_MAP_V;
        check_model(&table, used, &k);
        k.k_rank = 7;
        k.beta_linear = false;
        check_model(&table, used, &k);
    }
    for (int rule = 0; rule < 2 * DDL_RESIDUALS; rule++) {
        struct ddl_config k = ddl_config_defaults();
        assert_ok(ddl_config_set_size(&k, "micro", &err), err);
        k.residual = rule / 2;
        k.per_feature = rule % 2;
        k.laurel_rank = rule % 2 ? 5 : 0;
        check_model(&table, used, &k);
    }
    struct ddl_config values = ddl_config_defaults();
    values.value_residual = true;
    check_model(&table, used, &values);
    for (size_t i = 0; i < table.n; i++) {
        if (!used[i])
            fail_msg("list tensors: no model has %s", table.row[i].cell[0]);
    }
    free(used);
    markdown_table_free(&table);
}

static void dtypes_are_documented(void **state)
{
    (void)state;
    struct markdown_table table = markdown_keys(formats, "dtypes");
    assert_int_equal(table.n, DDL_DTYPES);
    for (size_t i = 0; i < DDL_DTYPES; i++) {
        char name[32], bytes[32];
        size_t row = 0;
        snprintf(name, sizeof name, "`%s`", ddl_dtype_name((enum ddl_dtype)i));
        snprintf(bytes, sizeof bytes, "%zu", ddl_dtype_size((enum ddl_dtype)i));
        while (row < table.n && strcmp(table.row[row].cell[0], name) != 0)
            row++;
        if (row == table.n)
            fail_msg("list dtypes lacks %s", name);
        assert_string_equal(table.row[row].cell[1], bytes);
        float one;
        double data = 0;
        struct ddl_tensor t = { .name = "t", .dtype = (enum ddl_dtype)i, .data = (unsigned char *)&data };
        assert_true(ddl_tensor_measure(&t));
        bool reads = ddl_tensor_read_f32(&t, 0, 1, &one, NULL) == DDL_OK;
        assert_int_equal(reads, strncmp(table.row[row].cell[2], "yes", 3) == 0);
    }
    markdown_table_free(&table);
}

/* The tensors of a case are those of the list; "grad.*" represents one tensor per parameter. */
static void tensors_of_a_case(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_safetensors *st;
    bool used[64] = { 0 };
    struct markdown_table table = markdown_keys(formats, "expect.safetensors");
    assert_ok(ddl_safetensors_open(&st, source_path("tests/golden/ddl-cc-ec/expect.safetensors"), &err), err);
    for (size_t i = 0; i < ddl_safetensors_count(st); i++) {
        char name[160];
        const char *whole = ddl_safetensors_at(st, i)->name, *dot = strchr(whole, '.');
        size_t row = 0;
        snprintf(name, sizeof name, dot ? "`%.*s.*`" : "`%.*s`", (int)strcspn(whole, "."), whole);
        while (row < table.n && strcmp(table.row[row].cell[0], name) != 0)
            row++;
        if (row == table.n)
            fail_msg("list expect.safetensors lacks %s", whole);
        used[row] = true;
    }
    for (size_t i = 0; i < table.n; i++) {
        if (!used[i])
            fail_msg("list expect.safetensors: no tensor is called %s", table.row[i].cell[0]);
    }
    ddl_safetensors_close(st);
    markdown_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules),
        cmocka_unit_test(tensor_shapes),
        cmocka_unit_test(dtypes_are_documented),
        cmocka_unit_test(tensors_of_a_case),
    };
    return cmocka_run_group_tests(tests, open_formats, close_formats);
}
