/* model/files/export.c: what is written loads as the same model, in one file or several, rounded or bit by
 * bit; what is refused leaves nothing behind. */
#define _POSIX_C_SOURCE 200809L
#include "support/runs.h"

#include "base/mem.h"
#include "ddl/export.h"
#include "tensor/safetensors.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <unistd.h>

static const struct ddl_export_config as_f32 = { .dtype = DDL_EXPORT_F32 };

/* tiny_folder("from", preset), in a buffer that stays. */
static const char *from_folder(const char *preset)
{
    static char from[4096];
    snprintf(from, sizeof from, "%s", tiny_folder("from", preset));
    return from;
}

static size_t entries_of(const char *folder)
{
    DIR *dir = opendir(folder);
    size_t n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* Fails on anything that is not called so in the scratch folder's own listing. */
static void assert_no_partial(void)
{
    DIR *dir = opendir(scratch_path("."));
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strstr(e->d_name, ".tmp-"))
            fail_msg("%s was left behind", e->d_name);
    }
    closedir(dir);
}

static struct ddl_export_result export_ok(const char *from, const char *to, struct ddl_export_config config)
{
    struct ddl_error err;
    struct ddl_export_result result;
    remove_scratch(to);
    assert_ok(ddl_export(from, scratch_path(to), &config, NULL, NULL, &result, &err), err);
    return result;
}

/* The same names, dtypes, shapes and bytes, whatever the order. */
static void assert_same_tensors(const char *a, const char *b)
{
    ddl_safetensors *x = open_tensors(a), *y = open_tensors(b);
    assert_int_equal(ddl_safetensors_count(x), ddl_safetensors_count(y));
    for (size_t i = 0; i < ddl_safetensors_count(x); i++) {
        const struct ddl_tensor *t = ddl_safetensors_at(x, i), *u = ddl_safetensors_find(y, t->name);
        assert_non_null(u);
        assert_int_equal(t->dtype, u->dtype);
        assert_true(ddl_tensor_has_shape(t, u->ndim, u->shape));
        assert_memory_equal(t->data, u->data, t->bytes);
    }
    ddl_safetensors_close(x);
    ddl_safetensors_close(y);
}

static void assert_same_bytes(const ddl_safetensors *st, const char *a, const char *b)
{
    const struct ddl_tensor *t = ddl_safetensors_find(st, a), *u = ddl_safetensors_find(st, b);
    assert_true(t && u && t->bytes == u->bytes);
    assert_memory_equal(t->data, u->data, t->bytes);
}

static void the_same_dtype_keeps_every_byte(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-1", "ddl-tc-ec", "ddl-cc-ec", "ddl-mix" };
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const char *from = from_folder(presets[i]);
        struct ddl_export_result r = export_ok(from, "to", as_f32);
        char a[8192], b[8192];
        assert_same_tensors(from, scratch_path("to"));
        snprintf(a, sizeof a, "%s/config.json", from);
        snprintf(b, sizeof b, "%s/config.json", scratch_path("to"));
        assert_same_file(a, b);
        snprintf(a, sizeof a, "%s/tokenizer.json", from);
        snprintf(b, sizeof b, "%s/tokenizer.json", scratch_path("to"));
        assert_same_file(a, b);
        assert_int_equal(entries_of(scratch_path("to")), 4);
        assert_int_equal(r.n_files, 1);
        /* and in the small dtypes, the second time */
        for (int dtype = DDL_EXPORT_BF16; dtype <= DDL_EXPORT_F16; dtype++) {
            const struct ddl_export_config small = { .dtype = dtype };
            export_ok(from, "small", small);
            export_ok(scratch_path("small"), "again", small);
            assert_same_tensors(scratch_path("small"), scratch_path("again"));
        }
    }
}

static void numbers_are_rounded_once(void **state)
{
    (void)state;
    const char *from = from_folder("ddl-cc-ec");
    struct ddl_export_result r =
        export_ok(from, "to", (struct ddl_export_config){ .dtype = DDL_EXPORT_BF16 });
    ddl_safetensors *x = open_tensors(from), *y = open_tensors(scratch_path("to"));
    uint64_t bytes = 0;
    for (size_t i = 0; i < ddl_safetensors_count(x); i++) {
        const struct ddl_tensor *t = ddl_safetensors_at(x, i), *u = ddl_safetensors_find(y, t->name);
        assert_int_equal(u->dtype, DDL_BF16);
        bytes += u->bytes;
        for (size_t j = 0; j < t->count; j++) {
            float wide, found;
            struct ddl_error err;
            assert_ok(ddl_tensor_read_f32(t, j, 1, &wide, &err), err);
            assert_ok(ddl_tensor_read_f32(u, j, 1, &found, &err), err);
            assert_true(fabsf(wide - found) <= ldexpf(fabsf(wide), -8));
        }
    }
    assert_int_equal(bytes, r.bytes);
    assert_int_equal(ddl_safetensors_count(y), r.n_tensors);
    ddl_safetensors_close(x);
    ddl_safetensors_close(y);
}

static void several_files_have_an_index(void **state)
{
    (void)state;
    const char *from = from_folder("ddl-cc-ec");
    struct ddl_export_config config = { .dtype = DDL_EXPORT_F32, .max_shard_size = 9000 };
    struct ddl_export_result r = export_ok(from, "to", config);
    assert_true(r.n_files > 3);
    json_t *index = json_load_file(scratch_path("to/model.safetensors.index.json"), 0, NULL);
    assert_non_null(index);
    const json_t *map = json_object_get(index, "weight_map");
    assert_int_equal(json_object_size(map), r.n_tensors);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
                     r.bytes);
    assert_int_equal(entries_of(scratch_path("to")),
                     r.n_files + 4); /* index, config.json, tokenizer.json, checksums.json */
    /* No file but one with a single large tensor is beyond the limit. */
    for (size_t k = 1; k <= r.n_files; k++) {
        char path[4096];
        struct ddl_error err;
        ddl_safetensors *st;
        snprintf(path, sizeof path, "%s/model-%05zu-of-%05zu.safetensors", scratch_path("to"), k, r.n_files);
        assert_ok(ddl_safetensors_open(&st, path, &err), err);
        uint64_t bytes = 0;
        for (size_t i = 0; i < ddl_safetensors_count(st); i++)
            bytes += ddl_safetensors_at(st, i)->bytes;
        assert_true(bytes <= 9000 || ddl_safetensors_count(st) == 1);
        assert_string_equal(ddl_safetensors_metadata(st, "ddl_compress"), "channel");
        ddl_safetensors_close(st);
    }
    json_decref(index);
    /* Back into one: what it was. */
    export_ok(scratch_path("to"), "one", as_f32);
    assert_same_tensors(from, scratch_path("one"));
    ddl_safetensors *st = open_tensors(from);
    assert_same_bytes(st, "transformer.wte.weight", "lm_head.weight");
    ddl_safetensors_close(st);
    export_ok(from, "one", (struct ddl_export_config){ .no_lm_head = true });
    st = open_tensors(scratch_path("one"));
    assert_int_equal(ddl_safetensors_count(st), r.n_tensors - 1);
    assert_null(ddl_safetensors_find(st, "lm_head.weight"));
    ddl_safetensors_close(st);
}

static void every_variant_of_ours_stays_itself(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "ddl-1-write", "ddl-cc-ec-erase", "ddl-1-v-context",  "ddl-1-mixed-outer", "ddl-mix-ec",
        "ddl-cc-vmap", "ddl-cc-ec",       "ddl-1-v-constant", "ddl-cc-ec-c5-k4",   "add"
    };
    static const char *const files[] = { NULL, NULL,        NULL,        NULL, NULL,
                                         NULL, "DDL-CC-EC", "DDL-vdim1", NULL, "gpt_base" };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char golden[256];
        const char *why;
        struct ddl_config was, is;
        struct ddl_error err;
        snprintf(golden, sizeof golden, "tests/golden/%s", cases[i]);
        char from[4096];
        snprintf(from, sizeof from, "%s", source_path(golden));
        struct ddl_export_result r = export_ok(from, "to", (struct ddl_export_config){ .no_lm_head = true });
        assert_same_tensors(from, scratch_path("to"));
        assert_ok(ddl_config_load(&was, from, NULL, NULL, &err), err);
        assert_ok(ddl_config_load(&is, scratch_path("to"), NULL, NULL, &err), err);
        for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
            const struct ddl_config a = ddl_config_resolved(&was), b = ddl_config_resolved(&is);
            char x[64], y[64];
            ddl_option_format(row, &a, x, sizeof x);
            ddl_option_format(row, &b, y, sizeof y);
            assert_string_equal(x, y);
        }
        assert_int_equal(was.by_layer, is.by_layer);
        assert_memory_equal(was.residual_by_layer, is.residual_by_layer, sizeof was.residual_by_layer);
        const char *file = ddl_config_release_file(&r.config, &why);
        assert_true((file == NULL) == (files[i] == NULL) && (why == NULL) == (file != NULL));
        if (file)
            assert_string_equal(file, files[i]);
    }
}

static void save_with(const char *folder, float value)
{
    struct ddl_error err;
    ddl_backend *backend;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    ddl_model *model = tiny_model("ddl-1", 31, 3, backend);
    float *values = ddl_mem_zalloc(ddl_model_param(model, 1)->count * sizeof *values);
    assert_non_null(values);
    values[22] = value;
    ddl_model_write_param(model, 1, values);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    ddl_mem_free(values);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        float value;
        int dtype;
        const char *says; /* NULL: is written */
    } cases[] = {
        { 65519, DDL_EXPORT_F16, NULL },
        { 65520, DDL_EXPORT_F16,
          "transformer.h.0.attn.c_q.weight[1, 1]: 65520 exceeds the limit of F16, 65504: export with "
          "--dtype bf16 "
          "or f32" },
        { -1e30f, DDL_EXPORT_F16, "c_q.weight[1, 1]: -1e+30 exceeds" },
        { 1e30f, DDL_EXPORT_BF16, NULL },
        { 3.4e38f, DDL_EXPORT_BF16,
          "3.4e+38 exceeds the limit of BF16, 3.38953e+38: export with --dtype f32" },
        { INFINITY, DDL_EXPORT_F16, NULL },
        { NAN, DDL_EXPORT_F16, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        struct ddl_export_result r;
        const struct ddl_export_config config = { .dtype = cases[i].dtype };
        save_with(scratch_path("from"), cases[i].value);
        remove_scratch("to");
        ddl_status status =
            ddl_export(scratch_path("from"), scratch_path("to"), &config, NULL, NULL, &r, &err);
        assert_int_equal(status, cases[i].says ? DDL_E_NUMERIC : DDL_OK);
        assert_int_equal(ddl_file_exists(scratch_path("to")), cases[i].says == NULL);
        if (cases[i].says)
            assert_says(&err, cases[i].says);
        assert_no_partial();
    }
    remove_scratch("from");
}

static void a_folder_in_use_is_left_alone(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_export_result r;
    const char *from = from_folder("ddl-1");
    char *before = read_file(scratch_path("from/config.json"), NULL);
    assert_int_equal(ddl_export(from, from, &as_f32, NULL, NULL, &r, &err), DDL_E_USAGE);
    assert_says(&err, "from: exists already; name a new folder");
    char *after = read_file(scratch_path("from/config.json"), NULL);
    assert_string_equal(before, after);
    free(before);
    free(after);
    remove_scratch("to");
    assert_ok(ddl_file_make_dir(scratch_path("to/deeper"), &err), err); /* empty: taken, with its slash */
    assert_ok(ddl_export(from, scratch_path("to/deeper/"), &as_f32, NULL, NULL, &r, &err), err);
    assert_same_tensors(from, scratch_path("to/deeper"));
    assert_int_equal(ddl_export("/nowhere", scratch_path("other"), &as_f32, NULL, NULL, &r, &err), DDL_E_IO);
    assert_says(&err, "/nowhere/config.json: cannot open");
    assert_int_equal(ddl_export(from, "/proc/no/such", &as_f32, NULL, NULL, &r, &err), DDL_E_IO);
    const struct ddl_export_config none = { .dtype = DDL_EXPORT_F16 + 1 };
    assert_int_equal(ddl_export(from, scratch_path("other"), &none, NULL, NULL, &r, &err), DDL_E_USAGE);
    assert_says(&err, "dtype: 3 is out of range (0 to 2)");
    assert_no_partial();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_dtype_keeps_every_byte),
        cmocka_unit_test(numbers_are_rounded_once),
        cmocka_unit_test(several_files_have_an_index),
        cmocka_unit_test(every_variant_of_ours_stays_itself),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(a_folder_in_use_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
