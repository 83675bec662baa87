/* model/files/model_io.c: saved models load with equal values, every golden model loads, and each mismatch
 * has its error message. */
#include "support/runs.h"
#include "support/torch_writer.h"

#include "base/mem.h"
#include "tensor/safetensors.h"

#include <dirent.h>

static ddl_backend *backend;

static int set_up(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ddl_backend_free(backend);
    return 0;
}

/* All parameters, side by side. */
static float *parameters(const ddl_model *model)
{
    float *out = ddl_mem_alloc(ddl_model_size(model) * sizeof *out), *at = out;
    assert_non_null(out);
    for (size_t i = 0; i < ddl_model_n_params(model); at += ddl_model_param(model, i++)->count)
        ddl_model_read_param(model, i, at);
    return out;
}

static void assert_same_model(const ddl_model *a, const ddl_model *b)
{
    float *x = parameters(a), *y = parameters(b);
    assert_int_equal(ddl_model_size(a), ddl_model_size(b));
    assert_memory_equal(x, y, ddl_model_size(a) * sizeof *x);
    ddl_mem_free(x);
    ddl_mem_free(y);
}

static void round_trip(void **state)
{
    (void)state;
    const char *preset;
    for (size_t i = 0; (preset = ddl_config_preset_list(i, NULL)); i++) {
        struct ddl_error err;
        ddl_model *model = tiny_model(preset, 31, i, backend), *again;
        const char *folder = scratch_path("round");
        assert_ok(ddl_file_make_dir(folder, &err), err);
        assert_ok(ddl_model_save(model, folder, &err), err);
        assert_ok(ddl_model_load(&again, folder, backend, NULL, NULL, &err), err);
        assert_same_model(model, again);
        assert_string_equal(ddl_config_preset_name(ddl_model_config(again)), preset);
        ddl_model_free(again);
        ddl_model_free(model);
        ddl_safetensors *st;
        assert_ok(ddl_safetensors_open_folder(&st, folder, &err), err);
        const struct ddl_tensor *wte = ddl_safetensors_find(st, "transformer.wte.weight");
        const struct ddl_tensor *head = ddl_safetensors_find(st, "lm_head.weight");
        assert_true(wte && head && wte->bytes == head->bytes); /* for loaders that do not know the tie */
        assert_memory_equal(wte->data, head->data, wte->bytes);
        ddl_safetensors_close(st);
    }
}

static void no_warning(void *user, const char *message)
{
    (void)user;
    fail_msg("warned: %s", message);
}

static void every_golden_model_loads(void **state)
{
    (void)state;
    DIR *dir = opendir(source_path("tests/golden"));
    size_t n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char folder[4096];
        struct ddl_error err;
        ddl_model *model;
        snprintf(folder, sizeof folder, "%s/%s", source_path("tests/golden"), e->d_name);
        if (e->d_name[0] == '.' || !ddl_safetensors_in_folder(folder))
            continue;
        assert_ok(ddl_model_load(&model, folder, backend, no_warning, NULL, &err), err);
        ddl_model_free(model);
        n++;
    }
    closedir(dir);
    assert_true(n >= 30);
}

/* ---- files with something changed ---- */

/* Values that every float dtype holds. */
static const float values[] = { 0, 0.5f, 1, -2 };
static const uint16_t half[] = { 0, 0x3800, 0x3c00, 0xc000 }, brain[] = { 0, 0x3f00, 0x3f80, 0xc000 };

static size_t pick(size_t tensor, size_t j)
{
    return (tensor * 3 + j + j / 7) % 4;
}

struct change {
    const char *skip, *reshape, *add; /* tensor names, or NULL */
    size_t rows;                      /* of the reshaped one, or of the added one            */
    enum ddl_dtype dtype;
    int head;        /* 1: lm_head that equals the embedding, 2: that differs in row 3 */
    size_t from, to; /* tensors of this file; to 0: all                                */
};

struct plan {
    struct ddl_tensor tensors[128];
    size_t number[128], n; /* number: which parameter gives the values */
    enum ddl_dtype dtype;
    bool head_differs;
};

static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    (void)err;
    const struct plan *plan = user;
    size_t size = ddl_dtype_size(plan->tensors[i].dtype);
    for (size_t k = 0; k < bytes / size; k++) {
        size_t j = offset / size + k, p = pick(plan->number[i], j);
        double wide = (double)values[p];
        if (plan->head_differs && strcmp(plan->tensors[i].name, "lm_head.weight") == 0 && j == 3 * 21 + 5)
            p = (p + 1) % 4;
        const void *from = plan->dtype == DDL_F64    ? (const void *)&wide
                           : plan->dtype == DDL_F16  ? (const void *)&half[p]
                           : plan->dtype == DDL_BF16 ? (const void *)&brain[p]
                                                     : (const void *)&values[p];
        memcpy((char *)to + k * size, from, size);
    }
    return DDL_OK;
}

static void add_tensor(struct plan *plan, const char *name, size_t number, size_t ndim, const size_t *shape)
{
    struct ddl_tensor *t = &plan->tensors[plan->n];
    *t = (struct ddl_tensor){ .name = name, .dtype = plan->dtype, .ndim = ndim };
    memcpy(t->shape, shape, ndim * sizeof *shape);
    plan->number[plan->n++] = number;
}

static void write_changed(const char *path, const ddl_model *model, const struct change *c)
{
    struct plan plan = { .dtype = c->dtype, .head_differs = c->head == 2 };
    struct ddl_error err;
    size_t to = c->to ? c->to : ddl_model_n_params(model);
    for (size_t i = c->from; i < to; i++) {
        const struct ddl_param *p = ddl_model_param(model, i);
        if (c->skip && strcmp(p->name, c->skip) == 0)
            continue;
        add_tensor(&plan, p->name, i, p->ndim, p->shape);
        if (c->reshape && strcmp(p->name, c->reshape) == 0)
            plan.tensors[plan.n - 1].shape[0] = c->rows;
    }
    if (c->head)
        add_tensor(&plan, "lm_head.weight", 0, 2, ddl_model_param(model, 0)->shape);
    if (c->add)
        add_tensor(&plan, c->add, 0, 1, &c->rows);
    assert_ok(ddl_safetensors_write(path, plan.tensors, plan.n, fill, &plan, &err), err);
}

/* The folder "changed" with a config.json for ddl-cc and whatever the change says. */
static const char *changed_folder(const ddl_model *model, const struct change *c)
{
    static char folder[2048];
    char path[4096];
    struct ddl_error err;
    snprintf(folder, sizeof folder, "%s", scratch_path("changed"));
    assert_ok(ddl_file_make_dir(folder, &err), err);
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_ok(ddl_config_save(ddl_model_config(model), path, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    write_changed(path, model, c);
    return folder;
}

static void assert_values(const ddl_model *model)
{
    float *all = parameters(model), *at = all;
    for (size_t i = 0; i < ddl_model_n_params(model); at += ddl_model_param(model, i++)->count) {
        for (size_t j = 0; j < ddl_model_param(model, i)->count; j++)
            assert_true(at[j] == values[pick(i, j)]);
    }
    ddl_mem_free(all);
}

static void every_float_dtype(void **state)
{
    (void)state;
    static const enum ddl_dtype dtypes[] = { DDL_F64, DDL_F32, DDL_F16, DDL_BF16 };
    ddl_model *model = tiny_model("ddl-cc", 31, 0, backend), *found;
    struct ddl_error err;
    for (size_t i = 0; i < 4; i++) {
        const char *folder = changed_folder(model, &(struct change){ .dtype = dtypes[i], .head = 1 });
        assert_ok(ddl_model_load(&found, folder, backend, no_warning, NULL, &err), err);
        assert_values(found);
        ddl_model_free(found);
    }
    const char *folder = changed_folder(model, &(struct change){ .dtype = DDL_I32 });
    assert_int_equal(ddl_model_load(&found, folder, backend, no_warning, NULL, &err), DDL_E_FORMAT);
    assert_null(found);
    ddl_model_free(model);
}

static void each_mismatch_has_its_message(void **state)
{
    (void)state;
    static const struct {
        struct change change;
        const char *says;
    } cases[] = {
        { { .dtype = DDL_F32, .reshape = "transformer.wte.weight", .rows = 29 },
          "model.safetensors: transformer.wte.weight has 29 rows, config.json says vocab_size 31" },
        { { .dtype = DDL_F32, .reshape = "ln_f.weight", .rows = 22 },
          "model.safetensors: ln_f.weight has shape (22), config.json requires (21)" },
        { { .dtype = DDL_F32, .reshape = "transformer.h.2.mlp.c_proj.weight", .rows = 20 },
          "transformer.h.2.mlp.c_proj.weight has shape (20, 56), config.json requires (21, 56)" },
        { { .dtype = DDL_F32, .reshape = "readout.read", .rows = 3 },
          "model.safetensors: readout.read has shape (3), config.json requires (4)" },
        { { .dtype = DDL_F32, .skip = "readout.read" },
          "changed: there is no tensor readout.read, which config.json requires" },
        { { .dtype = DDL_F32, .to = 62 },
          "changed: there is no tensor transformer.h.2.ln_1.weight, transformer.h.2.ln_2.weight, "
          "readout.read, "
          "readout.weight, ... (5 of the 67 that config.json requires are missing)" },
        { { .dtype = DDL_F32, .add = "rotary.inv_freq", .rows = 3 },
          "changed: rotary.inv_freq is not a parameter of this model (1 in all; --ignore-extra ignores "
          "them)" },
        { { .dtype = DDL_F32, .add = "transformer.h.9.ln_1.weight", .rows = 3 },
          "transformer.h.9.ln_1.weight is not a parameter of this model" },
        { { .dtype = DDL_F32, .head = 2 }, "lm_head.weight differs from transformer.wte.weight in row 3" },
        { { .dtype = DDL_F32, .add = "lm_head.weight", .rows = 5 },
          "lm_head.weight has shape (5), the embedding it is tied to (31, 21)" },
    };
    ddl_model *model = tiny_model("ddl-cc", 31, 0, backend), *found;
    struct ddl_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *folder = changed_folder(model, &cases[i].change);
        assert_int_equal(ddl_model_load(&found, folder, backend, NULL, NULL, &err), DDL_E_FORMAT);
        assert_null(found);
        assert_says(&err, cases[i].says);
    }
    ddl_model_free(model);
}

/* config.json says what it likes; memory is claimed for what the tensors hold and for the positions in use.
 */
static void claims_of_a_configuration(void **state)
{
    (void)state;
    static const struct {
        size_t vocab_size, n_layers, block_size;
        const char *says; /* "": it loads */
    } cases[] = {
        { 31, 3, 2147483647, "" },
        { 2147483647, 3, 16, "transformer.wte.weight has 31 rows, config.json says vocab_size 2147483647" },
        /* the tensors tell which rule a layer has: none of the layers beyond theirs has one */
        { 31, 512, 16, "config.json: ddl_residual_by_layer needs ddl_value_channels 1" },
    };
    ddl_model *model = tiny_model("ddl-cc", 31, 0, backend), *found;
    struct ddl_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *folder = changed_folder(model, &(struct change){ .dtype = DDL_F32 });
        struct ddl_config config = *ddl_model_config(model);
        config.vocab_size = cases[i].vocab_size;
        config.n_layers = cases[i].n_layers;
        config.block_size = cases[i].block_size;
        char path[1024];
        assert_true(ddl_path_join(path, sizeof path, folder, "config.json"));
        assert_ok(ddl_config_save(&config, path, &err), err);
        if (!*cases[i].says) {
            assert_ok(ddl_model_load(&found, folder, backend, NULL, NULL, &err), err);
            ddl_model_free(found);
            continue;
        }
        assert_int_equal(ddl_model_load(&found, folder, backend, NULL, NULL, &err), DDL_E_FORMAT);
        assert_says(&err, cases[i].says);
    }
    ddl_model_free(model);
}

static void keep_warning(void *user, const char *message)
{
    snprintf(user, 512, "%s", message);
}

static void extra_tensors_are_ignored_on_request(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("ddl-cc", 31, 0, backend), *found;
    struct ddl_error err;
    char warned[512] = "";
    const char *folder =
        changed_folder(model, &(struct change){ .dtype = DDL_F32, .add = "rotary.inv_freq", .rows = 3 });
    const struct ddl_load_options options = { .ignore_extra = true, .warn = keep_warning, .user = warned };
    assert_ok(ddl_model_load_with(&found, folder, backend, &options, &err), err);
    assert_non_null(
        strstr(warned, "changed: rotary.inv_freq is not a parameter of this model (1 in all); ignored"));
    assert_values(found);
    ddl_model_free(found);
    assert_int_equal(ddl_model_load_with(&found, folder, backend, NULL, &err), DDL_E_FORMAT);
    ddl_model_free(model);
}

/* A saver that keeps one name of tied tensors may keep either. */
static void the_embedding_may_be_called_lm_head(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("ddl-cc", 31, 0, backend), *found;
    struct ddl_error err;
    const char *folder = changed_folder(
        model, &(struct change){ .dtype = DDL_BF16, .skip = "transformer.wte.weight", .head = 1 });
    assert_ok(ddl_model_load(&found, folder, backend, no_warning, NULL, &err), err);
    assert_values(found);
    ddl_model_free(found);
    ddl_model_free(model);
}

/* Writes the tensors of a folder as a file of torch.save, under the names of an earlier release or of wrapped
 * modules, and removes the safetensors file. */
enum naming { AS_THEY_ARE, WRAPPED, EARLIER };
static void convert_to_torch(const char *folder, const char *file, enum naming naming, const char *under)
{
    struct ddl_error err;
    ddl_safetensors *st;
    struct ddl_tensor t[128];
    char names[128][128], path[4096];
    struct zip_writer z = { 0 };
    assert_ok(ddl_safetensors_open_folder(&st, folder, &err), err);
    size_t n = ddl_safetensors_count(st);
    assert_true(n <= 128);
    for (size_t i = 0; i < n; i++) {
        t[i] = *ddl_safetensors_at(st, i);
        size_t length = strlen(t[i].name);
        bool token = strstr(t[i].name, "shortconv.weight");
        bool channel =
            !token && (strstr(t[i].name, "compress.weight") || strstr(t[i].name, "readout.weight"));
        snprintf(names[i], sizeof *names, "%s%s", naming == WRAPPED ? "module._orig_mod." : "", t[i].name);
        if (naming == EARLIER && (token || channel)) {
            snprintf(names[i], sizeof *names, "%.*s%s", (int)(length - strlen("weight")), t[i].name,
                     token ? "conv.weight" : "shortconv.weight");
            assert_int_equal(t[i].ndim++, 2);
            t[i].shape[2] = t[i].shape[1];
            t[i].shape[1] = 1;
        }
        t[i].name = names[i];
    }
    torch_file(&z, t, n, under);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    write_file(path, z.file.data, z.file.n);
    zip_free(&z);
    ddl_safetensors_close(st);
    static const char *const removed[] = { "model.safetensors", "checksums.json" };
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, removed[i]);
        assert_int_equal(remove(path), 0);
    }
}

/* Files of torch.save, without our metadata: names and shapes say which model it is. */
static void files_of_pytorch_load(void **state)
{
    (void)state;
    static const struct {
        const char *model, *file, *under;
        enum naming naming;
    } cases[] = {
        { "baseline", "pytorch_model.bin", NULL, AS_THEY_ARE },
        { "ddl-1", "pytorch_model.bin", NULL, EARLIER },
        { "ddl-tc", "pytorch_model.bin", NULL, EARLIER },
        { "ddl-tc-ec", "pytorch_model.bin", NULL, AS_THEY_ARE },
        { "ddl-tc-ec", "pytorch_model.bin", NULL, EARLIER },
        { "ddl-cc", "ckpt.pt", "model", WRAPPED },
        { "ddl-cc", "pytorch_model.bin", NULL, EARLIER },
        { "ddl-cc-ec", "ckpt.pt", "state_dict", AS_THEY_ARE },
        { "ddl-cc-ec", "ckpt.pt", "model", EARLIER },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        ddl_model *model = tiny_model(cases[i].model, 31, i, backend), *again;
        const char *folder = scratch_path("torch");
        remove_scratch("torch");
        assert_ok(ddl_file_make_dir(folder, &err), err);
        assert_ok(ddl_model_save(model, folder, &err), err);
        convert_to_torch(folder, cases[i].file, cases[i].naming, cases[i].under);
        assert_ok(ddl_model_load(&again, folder, backend, no_warning, NULL, &err), err);
        assert_same_model(model, again);
        assert_string_equal(ddl_config_preset_name(ddl_model_config(again)), cases[i].model);
        ddl_model_free(again);
        ddl_model_free(model);
    }
}

/* A training script's checkpoint has the configuration beside the weights. */
static void model_args_replace_config_json(void **state)
{
    (void)state;
    struct ddl_error err;
    struct zip_writer z = { 0 };
    struct bytes pickle = { 0 };
    struct ddl_config config;
    const struct ddl_tensor t = {
        .name = "ln_f.weight", .dtype = DDL_F32, .ndim = 1, .shape = { 1 }, .count = 1
    };
    static const struct {
        const char *key;
        unsigned char value;
    } keys[] = { { "vocab_size", 31 },
                 { "num_hidden_layers", 1 },
                 { "num_attention_heads", 1 },
                 { "hidden_size", 8 },
                 { "head_dim", 8 } };
    remove_scratch("args");
    assert_ok(ddl_file_make_dir(scratch_path("args"), &err), err);
    for (int complete = 0; complete < 2; complete++) {
        bytes_text(&pickle, "}(");
        pickle_text(&pickle, "model");
        bytes_text(&pickle, "}");
        pickle_text(&pickle, t.name);
        pickle_tensor(&pickle, &t, "0", 1, 0, NULL);
        bytes_text(&pickle, "s");
        pickle_text(&pickle, "model_args");
        bytes_text(&pickle, "}(");
        for (size_t i = 0; i < sizeof keys / sizeof *keys - !complete; i++) {
            size_t k = sizeof keys / sizeof *keys - 1 - i;
            pickle_text(&pickle, keys[k].key);
            bytes_text(&pickle, "K");
            bytes_number(&pickle, keys[k].value, 1);
        }
        bytes_text(&pickle, "uu.");
        zip_add(&z, "ckpt/data.pkl", pickle.data, pickle.n);
        zip_add(&z, "ckpt/data/0", "\0\0\0\0", 4);
        zip_finish(&z);
        write_file(scratch_path("args/ckpt.pt"), z.file.data, z.file.n);
        zip_free(&z);
        bytes_free(&pickle);
        if (complete) {
            assert_ok(ddl_config_load(&config, scratch_path("args"), NULL, NULL, &err), err);
            assert_true(config.d_model == 8 && config.vocab_size == 31 && config.n_layers == 1);
        } else {
            assert_int_equal(ddl_config_load(&config, scratch_path("args"), NULL, NULL, &err), DDL_E_FORMAT);
            assert_says(&err, "ckpt.pt: model_args: no key vocab_size");
        }
    }
}

static void several_files_with_an_index(void **state)
{
    (void)state;
    ddl_model *model = tiny_model("ddl-cc", 31, 0, backend), *found;
    struct ddl_error err;
    char path[4096], index[16384];
    remove_scratch("changed");
    const char *folder = changed_folder(model, &(struct change){ .dtype = DDL_F32 });
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(remove(path), 0);
    size_t n = ddl_model_n_params(model), used;
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    write_changed(path, model, &(struct change){ .dtype = DDL_F32, .to = n / 2 });
    snprintf(path, sizeof path, "%s/b.safetensors", folder);
    write_changed(path, model, &(struct change){ .dtype = DDL_BF16, .from = n / 2 });
    used = (size_t)snprintf(index, sizeof index, "{\"metadata\":{},\"weight_map\":{");
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(index + used, sizeof index - used, "%s\"%s\":\"%s.safetensors\"",
                                 i ? "," : "", ddl_model_param(model, i)->name, i < n / 2 ? "a" : "b");
    used += (size_t)snprintf(index + used, sizeof index - used, "}}");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    write_file(path, index, used);
    /* Tensors are filled by their place in the whole table, so the values are those of one file. */
    assert_ok(ddl_model_load(&found, folder, backend, no_warning, NULL, &err), err);
    assert_values(found);
    ddl_model_free(found);
    ddl_model_free(model);
    remove_scratch("changed");
}

/* The projection of hyper's weights of writing starts at 0, and has the name of the gate's weight in gated.
 */
static bool starts_by_rule(const char *preset, const char *name)
{
    return strcmp(preset, "hyper") == 0 && strstr(name, ".beta.weight");
}

static void same_name_shape_and_seed_start_equal(void **state)
{
    (void)state;
    const char *a, *b;
    size_t shared = 0;
    for (size_t i = 0; (a = ddl_config_preset_list(i, NULL)); i++) {
        for (size_t j = 0; (b = ddl_config_preset_list(j, NULL)) && j < i; j++) {
            ddl_model *x = tiny_model(a, 31, 9, backend), *y = tiny_model(b, 31, 9, backend);
            for (size_t p = 0; p < ddl_model_n_params(x); p++) {
                for (size_t q = 0; q < ddl_model_n_params(y); q++) {
                    const struct ddl_param *m = ddl_model_param(x, p), *n = ddl_model_param(y, q);
                    if (strcmp(m->name, n->name) != 0 || m->ndim != n->ndim ||
                        memcmp(m->shape, n->shape, m->ndim * sizeof *m->shape) != 0 ||
                        starts_by_rule(a, m->name) || starts_by_rule(b, n->name))
                        continue;
                    float *u = ddl_mem_alloc(m->count * sizeof *u), *v = ddl_mem_alloc(m->count * sizeof *v);
                    ddl_model_read_param(x, p, u);
                    ddl_model_read_param(y, q, v);
                    assert_memory_equal(u, v, m->count * sizeof *u);
                    ddl_mem_free(u);
                    ddl_mem_free(v);
                    shared++;
                }
            }
            ddl_model_free(x);
            ddl_model_free(y);
        }
    }
    assert_true(shared > 28 * 20); /* all share the backbone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(every_golden_model_loads),
        cmocka_unit_test(every_float_dtype),
        cmocka_unit_test(each_mismatch_has_its_message),
        cmocka_unit_test(extra_tensors_are_ignored_on_request),
        cmocka_unit_test(the_embedding_may_be_called_lm_head),
        cmocka_unit_test(files_of_pytorch_load),
        cmocka_unit_test(model_args_replace_config_json),
        cmocka_unit_test(claims_of_a_configuration),
        cmocka_unit_test(several_files_with_an_index),
        cmocka_unit_test(same_name_shape_and_seed_start_equal),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
