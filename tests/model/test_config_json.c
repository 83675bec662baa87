/* model/files/config_json.c and config_release.c: golden configurations, also in the release's form, writing
 * and reading them again, and every error message about an invalid config.json. */
#define _POSIX_C_SOURCE 200809L
#include "support/support.h"

#include "base/file.h"
#include "ddl/model.h"
#include "model/files/config_metadata.h"
#include "model/residual/table.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_same_config(const struct ddl_config *found, const struct ddl_config *wanted,
                               const char *name)
{
    for (const struct ddl_option *row = ddl_config_options(); row->name; row++) {
        char a[64], b[64];
        ddl_option_format(row, found, a, sizeof a);
        ddl_option_format(row, wanted, b, sizeof b);
        if (strcmp(a, b) != 0)
            fail_msg("%s: %s is %s, expected %s", name, row->name, a, b);
    }
    assert_int_equal(found->by_layer, wanted->by_layer);
    for (size_t l = 0; l < wanted->n_layers && wanted->by_layer; l++)
        assert_int_equal(found->residual_by_layer[l], wanted->residual_by_layer[l]);
}

struct warnings {
    int n;
    char last[1024];
};

static void note(void *user, const char *message)
{
    struct warnings *w = user;
    w->n++;
    snprintf(w->last, sizeof w->last, "%s", message);
}

/* Calls `law` with the name and the loaded configuration of every golden model. */
static void for_each_golden(void (*law)(const char *name, const struct ddl_config *config))
{
    DIR *dir = opendir(source_path("tests/golden"));
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char folder[512], file[600];
        snprintf(folder, sizeof folder, "tests/golden/%.200s", e->d_name);
        snprintf(file, sizeof file, "%s/config.json", folder);
        if (e->d_name[0] == '.' || !ddl_file_exists(source_path(file)))
            continue;
        struct ddl_error err;
        struct ddl_config config;
        struct warnings warnings = { 0 };
        assert_ok(ddl_config_load(&config, source_path(folder), note, &warnings, &err), err);
        if (warnings.n)
            fail_msg("%s: warns: %s", folder, warnings.last);
        law(e->d_name, &config);
        n++;
    }
    closedir(dir);
    assert_true(n >= 33);
}

static void is_reasonable(const char *name, const struct ddl_config *c)
{
    (void)name;
    struct ddl_error err;
    assert_ok(ddl_config_check(c, &err), err);
    assert_true(c->block_size == 64 || c->block_size == 128);
}

static void golden(void **state)
{
    (void)state;
    for_each_golden(is_reasonable);
    static const struct {
        const char *folder, *preset;
    } cases[] = {
        { "add", "baseline" },
        { "ddl-1", "ddl-1" },
        { "ddl-tc", "ddl-tc" },
        { "ddl-cc", "ddl-cc" },
        { "ddl-tc-ec", "ddl-tc-ec" },
        { "ddl-cc-ec", "ddl-cc-ec" },
        { "ddl-cc-vmap", "ddl-cc-vmap" },
        { "ddl-1-write", "ddl-1-write" },
        { "ddl-cc-ec-erase", "ddl-cc-ec-erase" },
        { "ddl-1-mixed", NULL },
        { "ddl-mix-ec", "ddl-mix-ec" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[200];
        struct ddl_config c;
        struct ddl_error err;
        snprintf(folder, sizeof folder, "tests/golden/%s", cases[i].folder);
        assert_ok(ddl_config_load(&c, source_path(folder), NULL, NULL, &err), err);
        const char *found = ddl_config_preset_name(&c);
        if (cases[i].preset)
            assert_string_equal(found, cases[i].preset);
        else
            assert_null(found);
    }
    struct ddl_config c;
    struct ddl_error err;
    assert_ok(ddl_config_load(&c, source_path("tests/golden/ddl-1-mixed-outer"), NULL, NULL, &err), err);
    assert_true(c.by_layer && c.residual_by_layer[0] == 1 && c.residual_by_layer[1] == 0 &&
                c.residual_by_layer[2] == 0 && c.residual_by_layer[3] == 1);
}

/* What ddl_model_save writes of a configuration: config.json, and our own keys beside the tensors (here
 * none). */
static void save(const struct ddl_config *config, const char *folder)
{
    struct ddl_error err;
    struct ddl_config_metadata notes;
    char path[4096];
    ddl_config_metadata(config, &notes);
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_ok(ddl_config_save(config, path, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    const struct ddl_safetensors_content content = { .entries = notes.list, .n_entries = notes.n };
    assert_ok(ddl_safetensors_write_with_metadata(path, &content, &err), err);
}

static void saves_and_reads_back(const char *name, const struct ddl_config *config)
{
    struct ddl_error err;
    struct ddl_config back;
    const struct ddl_config resolved = ddl_config_resolved(config);
    struct warnings warnings = { 0 };
    save(config, scratch_path("saved"));
    assert_ok(ddl_config_load(&back, scratch_path("saved"), note, &warnings, &err), err);
    assert_int_equal(warnings.n, 0);
    assert_same_config(&back, &resolved, name);
    const char *before = ddl_config_preset_name(config), *after = ddl_config_preset_name(&back);
    assert_string_equal(before ? before : "none", after ? after : "none");
}

static void round_trip(void **state)
{
    (void)state;
    struct ddl_error err;
    assert_ok(ddl_file_make_dir(scratch_path("saved"), &err), err);
    for_each_golden(saves_and_reads_back);
    for (size_t i = 0; ddl_config_preset_list(i, NULL); i++) {
        struct ddl_config c = ddl_config_defaults();
        assert_ok(ddl_config_set_preset(&c, ddl_config_preset_list(i, NULL), &err), err);
        c.k_eps = 1 / 3e5f;
        c.rope_base = 500000.125f;
        c.v_scale = -0.1f;
        c.read_init = i % 2 ? 0.3f : 0;
        saves_and_reads_back("preset", &c);
    }
    struct ddl_config c = ddl_config_defaults();
    c.n_layers = DDL_MAX_LAYERS; /* the longest file */
    c.by_layer = true;
    memset(c.residual_by_layer, DDL_RESIDUAL_DELTA, sizeof c.residual_by_layer);
    c.residual_by_layer[5] = DDL_RESIDUAL_ADD;
    saves_and_reads_back("512 rules", &c);
}

static void keys_are_in_order(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "vocab_size",
        "num_hidden_layers",
        "num_attention_heads",
        "hidden_size",
        "head_dim",
        "block_size",
        "rope_base",
        "rope_ratio",
        "use_qk_rmsnorm",
        "embedding_init_std",
        "hidden_init_std_factor",
        "mup",
        "hidden_size_base",
        "ddl_value_channels",
        "ddl_state_shortconv_kernel_size",
        "ddl_state_read_init",
        "input_embed_shortconv_kernel_size",
        "ddl_k_eps",
        "ddl_beta_single_linear",
        "ddl_beta_hidden_size",
        "ddl_beta_init",
        "ddl_v_sigmoid",
        "ddl_v_sigmoid_scale",
        "ddl_v_constant",
        "ddl_v_constant_value",
        "ddl_v_dim1_constant", /* c = 1 */
        "ddl_v_dim1_constant_value",
    };
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    c.n_layers = 2;
    assert_ok(ddl_config_set_by_layer(&c, "add,delta", "x", &err), err);
    assert_ok(ddl_config_save(&c, scratch_path("order.json"), &err), err);
    json_t *root = json_load_file(scratch_path("order.json"), 0, NULL);
    assert_non_null(root);
    const char *key;
    json_t *value;
    size_t i = 0;
    json_object_foreach(root, key, value) assert_string_equal(key, keys[i++]);
    assert_int_equal(i, sizeof keys / sizeof *keys);
    assert_true(json_real_value(json_object_get(root, "ddl_state_read_init")) == 1);
    assert_int_equal(json_integer_value(json_object_get(root, "ddl_state_shortconv_kernel_size")), 4);
    assert_true(json_real_value(json_object_get(root, "ddl_k_eps")) == 1e-05);
    assert_true(json_is_real(json_object_get(root, "rope_base")));
    json_decref(root);
    c.channels = 0;
    assert_int_equal(ddl_config_save(&c, scratch_path("bad.json"), &err), DDL_E_USAGE);
    assert_false(ddl_file_exists(scratch_path("bad.json")));
}

/* A scratch folder with the golden case's weights and its config.json without `keys`. */
static const char *stripped(const char *name, const char *const *keys)
{
    char config[600], weights[600];
    snprintf(config, sizeof config, "tests/golden/%.200s/config.json", name);
    snprintf(weights, sizeof weights, "tests/golden/%.200s/model.safetensors", name);
    json_t *root = json_load_file(source_path(config), 0, NULL);
    assert_non_null(root);
    for (size_t i = 0; keys[i]; i++)
        json_object_del(root, keys[i]);
    struct ddl_error err;
    assert_ok(ddl_file_make_dir(scratch_path("release"), &err), err);
    assert_int_equal(json_dump_file(root, scratch_path("release/config.json"), 0), 0);
    json_decref(root);
    unlink(scratch_path("release/model.safetensors"));
    assert_int_equal(symlink(source_path(weights), scratch_path("release/model.safetensors")), 0);
    return scratch_path("release");
}

#define OWN_KEYS                                                                                             \
    "model_type", "ddl_residual", "ddl_map", "ddl_k_rank", "ddl_update", "ddl_v_input", "ddl_compress",      \
        "ddl_embed", "ddl_per_feature", "ddl_scale_init", "ddl_highway_init", "ddl_steps", "dense_average",  \
        "dense_period", "dense_dilation", "ddl_streams", "ddl_hyper_dynamic", "ddl_sinkhorn_iterations",     \
        "ddl_laurel_rank", "value_residual", "ddl_f_norm", "ddl_beta_max", "ddl_attnres_block"
static const char *const ours[] = { OWN_KEYS, "ddl_residual_by_layer", NULL };
static const char *const all_that_shapes_tell[] = {
    OWN_KEYS,
    "ddl_residual_by_layer",
    "ddl_value_channels",
    "use_qk_rmsnorm",
    "ddl_state_shortconv_kernel_size",
    "ddl_beta_single_linear",
    "input_embed_shortconv_kernel_size",
    "ddl_beta_hidden_size",
    NULL,
};

/* What no tensor tells has its default after the release's form. */
static const struct {
    const char *name;
    bool update, v_input;
} untold[] = {
    { "ddl-1-write", true, false },     { "ddl-cc-ec-write", true, false },
    { "ddl-cc-ec-erase", true, false }, { "ddl-1-v-context", false, true },
    { "ddl-mix-ec", false, true },      { "steps-2-write-context", true, true },
};

static struct ddl_config as_release(const char *name, const struct ddl_config *config)
{
    struct ddl_config c = *config;
    for (size_t i = 0; i < sizeof untold / sizeof *untold; i++) {
        if (strcmp(untold[i].name, name) != 0)
            continue;
        assert_true((c.update != DDL_UPDATE_DELTA) == untold[i].update);
        assert_true((c.v_input != DDL_V_STREAM) == untold[i].v_input);
        c.update = DDL_UPDATE_DELTA;
        c.v_input = DDL_V_STREAM;
    }
    return c;
}

/* Rules and options that the release does not have are stated by our own keys only. */
static bool only_ours(const struct ddl_config *config)
{
    if (config->value_residual || config->f_norm || config->beta_max != 2)
        return true;
    for (size_t l = 0; l < config->n_layers; l++) {
        if (!residual_rule_of(config, l)->release_file)
            return true;
    }
    return config->dense_average;
}

static void loads_as_release(const char *name, const struct ddl_config *config)
{
    if (only_ours(config))
        return;
    struct ddl_error err;
    struct ddl_config found, wanted = as_release(name, config);
    struct warnings warnings = { 0 };
    assert_ok(ddl_config_load(&found, stripped(name, ours), note, &warnings, &err), err);
    assert_int_equal(warnings.n, 0);
    assert_same_config(&found, &wanted, name);
    /* A kernel that no tensor has is its default. */
    if (wanted.channels == 1 || wanted.compress == DDL_COMPRESS_MIX)
        wanted.state_kernel = 0;
    assert_ok(ddl_config_load(&found, stripped(name, all_that_shapes_tell), note, &warnings, &err), err);
    assert_same_config(&found, &wanted, name);
}

/* The release's reader expects numbers where 0 stands for a default of ours. */
static void writes_numbers_for_defaults(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        size_t channels, kernel;
        double read;
    } cases[] = {
        { "baseline", 1, 4, 1 },     { "ddl-1", 1, 4, 1 },           { "ddl-tc", 4, 4, 0.25 },
        { "ddl-cc-ec", 4, 4, 0.25 }, { "ddl-cc", 3, 3, 0.33333334 }, { "ddl-mix", 5, 5, 0.2 },
        { "ddl-tc", 8, 4, 0.125 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        struct ddl_config c = ddl_config_defaults();
        assert_ok(ddl_config_set_preset(&c, cases[i].preset, &err), err);
        c.channels = cases[i].channels;
        assert_ok(ddl_config_save(&c, scratch_path("numbers.json"), &err), err);
        json_t *root = json_load_file(scratch_path("numbers.json"), 0, NULL);
        assert_non_null(root);
        assert_int_equal(json_integer_value(json_object_get(root, "ddl_state_shortconv_kernel_size")),
                         cases[i].kernel);
        assert_true(json_real_value(json_object_get(root, "ddl_state_read_init")) == cases[i].read);
        json_decref(root);
    }
}

/* What the two files of one configuration hold, key by key: none of ours in config.json, and none lost. */
static void own_keys_are_in_the_metadata(void **state)
{
    (void)state;
    static const char *const said[][2] = {
        { "ddl_residual", "delta" }, { "ddl_residual_by_layer", "add,delta" },
        { "ddl_map", "v" },          { "ddl_k_rank", "7" },
        { "ddl_update", "erase" },   { "ddl_v_input", "context" },
        { "ddl_compress", "mix" },   { "ddl_embed", "conv" },
    };
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    c.n_layers = 2;
    c.residual = DDL_RESIDUAL_DELTA;
    c.map = DDL_MAP_V;
    c.k_rank = 7;
    c.update = DDL_UPDATE_ERASE;
    c.v_input = DDL_V_CONTEXT;
    c.compress = DDL_COMPRESS_MIX;
    c.embed = DDL_EMBED_CONV;
    assert_ok(ddl_config_set_by_layer(&c, "add,delta", "x", &err), err);
    assert_ok(ddl_file_make_dir(scratch_path("saved"), &err), err);
    save(&c, scratch_path("saved"));
    json_t *root = json_load_file(scratch_path("saved/config.json"), 0, NULL);
    ddl_safetensors *st;
    assert_ok(ddl_safetensors_open_folder(&st, scratch_path("saved"), &err), err);
    assert_string_equal(ddl_safetensors_metadata(st, "format"), "pt");
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        assert_null(json_object_get(root, said[i][0]));
        assert_string_equal(ddl_safetensors_metadata(st, said[i][0]), said[i][1]);
    }
    ddl_safetensors_close(st);
    /* A key of ours in config.json, as earlier versions wrote it, comes first. */
    json_object_set_new(root, "ddl_update", json_string("write"));
    assert_int_equal(json_dump_file(root, scratch_path("saved/config.json"), 0), 0);
    json_decref(root);
    assert_ok(ddl_config_load(&c, scratch_path("saved"), NULL, NULL, &err), err);
    assert_int_equal(c.update, DDL_UPDATE_WRITE);
    assert_int_equal(c.map, DDL_MAP_V);
}

/* Keys that config.json lacks are those of the metadata, whichever others it has. */
static void metadata_completes_config_json(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    c.residual = DDL_RESIDUAL_DELTA;
    c.update = DDL_UPDATE_ERASE;
    c.beta_max = 3;
    assert_ok(ddl_file_make_dir(scratch_path("completed"), &err), err);
    save(&c, scratch_path("completed"));
    json_t *root = json_load_file(scratch_path("completed/config.json"), 0, NULL);
    json_t *keys = json_pack("{s:s, s:s, s:i, s:s, s:s}", "ddl_residual", "delta", "ddl_map", "k",
                             "ddl_k_rank", 0, "ddl_compress", "channel", "ddl_embed", "repeat");
    assert_int_equal(json_object_update(root, keys), 0);
    assert_int_equal(json_dump_file(root, scratch_path("completed/config.json"), 0), 0);
    json_decref(keys);
    json_decref(root);
    assert_ok(ddl_config_load(&c, scratch_path("completed"), NULL, NULL, &err), err);
    assert_int_equal(c.update, DDL_UPDATE_ERASE);
    assert_true(c.beta_max == 3);
}

static void bad_metadata_has_its_message(void **state)
{
    (void)state;
    static const struct {
        struct ddl_safetensors_metadata note;
        const char *says;
    } cases[] = {
        { { "ddl_map", "q" }, "saved: __metadata__ of the tensors: ddl_map: 'q' is none of k, v" },
        { { "ddl_k_rank", "-1" }, "__metadata__ of the tensors: ddl_k_rank: " },
        { { "ddl_residual_by_layer", "add" },
          "__metadata__ of the tensors: ddl_residual_by_layer: 1 rules, num_hidden_layers is 12" },
    };
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    assert_ok(ddl_file_make_dir(scratch_path("saved"), &err), err);
    save(&c, scratch_path("saved"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ddl_safetensors_content content = { .entries = &cases[i].note, .n_entries = 1 };
        assert_ok(
            ddl_safetensors_write_with_metadata(scratch_path("saved/model.safetensors"), &content, &err),
            err);
        assert_int_equal(ddl_config_load(&c, scratch_path("saved"), NULL, NULL, &err), DDL_E_FORMAT);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s', wanted '%s'", err.text, cases[i].says);
    }
}

static void release_form(void **state)
{
    (void)state;
    for_each_golden(loads_as_release);
}

static void release_form_errors(void **state)
{
    (void)state;
    static const struct {
        const char *name, *key, *message;
        int value;
    } cases[] = {
        { "ddl-tc", "ddl_value_channels",
          "transformer.h.0.ddl_attn.v_proj.weight has shape (4, 24), config.json says "
          "ddl_value_channels 3",
          3 },
        { "ddl-tc", "ddl_state_shortconv_kernel_size",
          "transformer.h.0.compress.shortconv.weight has shape (96, 4), "
          "config.json says ddl_state_shortconv_kernel_size 3",
          3 },
        { "ddl-cc-ec", "input_embed_shortconv_kernel_size",
          "input_embed.conv.weight has shape (96, 1, 4), config.json "
          "says input_embed_shortconv_kernel_size 5",
          5 },
        { "ddl-1-beta-mlp", "ddl_beta_hidden_size",
          "transformer.h.0.ddl_attn.beta_in.weight has shape (20, 24), "
          "config.json says ddl_beta_hidden_size 7",
          7 },
        { "add", "ddl_value_channels", "ddl_value_channels is 4, but ddl_residual add has only 1", 4 },
    };
    struct ddl_error err;
    struct ddl_config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *folder = stripped(cases[i].name, ours);
        json_t *root = json_load_file(scratch_path("release/config.json"), 0, NULL);
        json_object_set_new(root, cases[i].key, json_integer(cases[i].value));
        assert_int_equal(json_dump_file(root, scratch_path("release/config.json"), 0), 0);
        json_decref(root);
        assert_int_equal(ddl_config_load(&c, folder, NULL, NULL, &err), DDL_E_FORMAT);
        if (!strstr(err.text, cases[i].message))
            fail_msg("'%s', wanted '%s'", err.text, cases[i].message);
    }
    const char *folder = stripped("ddl-tc", ours);
    unlink(scratch_path("release/model.safetensors"));
    assert_int_equal(ddl_config_load(&c, folder, NULL, NULL, &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "config.json does not say which model it is"));
    /* The state is wide by its targets, but nothing compresses it. */
    static const char header[] =
        "{\"transformer.h.0.ddl_attn.v_proj.weight\":{\"dtype\":\"U8\",\"shape\":[4,1],"
        "\"data_offsets\":[0,4]},\"transformer.h.1.ddl_attn.v_proj.weight\":{\"dtype\":"
        "\"U8\",\"shape\":[4,1],\"data_offsets\":[4,8]}}";
    unsigned char bytes[8 + sizeof header - 1 + 8] = { (sizeof header - 1) & 255, (sizeof header - 1) >> 8 };
    memcpy(bytes + 8, header, sizeof header - 1);
    assert_ok(ddl_file_replace(scratch_path("release/model.safetensors"), bytes, sizeof bytes, &err), err);
    assert_int_equal(ddl_config_load(&c, folder, NULL, NULL, &err), DDL_E_FORMAT);
    assert_non_null(strstr(err.text, "the tensors have no transformer.h.0.compress.weight"));
}

static ddl_status load_text(const char *text, struct ddl_config *c, struct warnings *w, struct ddl_error *err)
{
    assert_ok(ddl_file_make_dir(scratch_path("text"), err), *err);
    assert_ok(ddl_file_replace(scratch_path("text/config.json"), text, strlen(text), err), *err);
    return ddl_config_load(c, scratch_path("text"), note, w, err);
}

#define BASE                                                                                                 \
    "\"vocab_size\":97,\"num_hidden_layers\":2,\"num_attention_heads\":2,\"hidden_size\":24,"                \
    "\"ddl_residual\":\"delta\",\"ddl_map\":\"k\",\"ddl_k_rank\":0,\"ddl_compress\":\"token\","              \
    "\"ddl_embed\":\"repeat\""

static void bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "config.json:1:0: not valid JSON: " },
        { "{\n\"vocab_size\": 97,\n oops }", "config.json:3:5: not valid JSON: " },
        { "[]", "config.json: not a JSON object" },
        { "{}", "config.json: no key vocab_size" },
        { "{" BASE ",\"mup\":1,\"mup\":2}", "duplicate object key" },
        { "{" BASE ",\"mup\":1}", "config.json: mup is a whole number, expected true or false" },
        { "{" BASE ",\"mup\":null}", "config.json: mup is null, expected true or false" },
        { "{" BASE ",\"head_dim\":\"16\"}", "config.json: head_dim is a string, expected a whole number" },
        { "{" BASE ",\"head_dim\":16.0}", "config.json: head_dim is a real number, expected a whole number" },
        { "{" BASE ",\"head_dim\":-1}", "config.json: head_dim: -1 is out of range (1 to 4096)" },
        { "{" BASE ",\"ddl_k_eps\":[]}", "config.json: ddl_k_eps is a list, expected a number" },
        { "{" BASE ",\"rope_ratio\":2}", "config.json: rope_ratio: 2 is out of range (0 to 1)" },
        { "{" BASE ",\"rope_ratio\":1e400}", "not valid JSON: real number overflow" },
        { "{" BASE ",\"ddl_update\":\"wrote\"}",
          "config.json: ddl_update: 'wrote' is none of delta, write, erase" },
        { "{" BASE ",\"ddl_update\":1}", "config.json: ddl_update is a whole number, expected a string" },
        { "{" BASE ",\"ddl_residual_by_layer\":\"add\"}",
          "ddl_residual_by_layer is a string, expected a list" },
        { "{" BASE ",\"ddl_residual_by_layer\":[\"add\"]}",
          "ddl_residual_by_layer: 1 rules, num_hidden_layers is 2" },
        { "{" BASE ",\"ddl_residual_by_layer\":[\"add\",1]}",
          "rule 1 is a whole number, expected the name of a rule" },
        { "{" BASE ",\"ddl_residual_by_layer\":[\"add\",\"deltas\"]}", "'deltas' is none of add, delta" },
        { "{" BASE ",\"ddl_residual_by_layer\":[\"add\",\"add\"],\"ddl_value_channels\":4}",
          "config.json: ddl_residual_by_layer needs ddl_value_channels 1, found 4" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_config c = { .d_model = 5 };
        struct warnings w = { 0 };
        struct ddl_error err;
        assert_int_equal(load_text(cases[i].text, &c, &w, &err), DDL_E_FORMAT);
        if (!strstr(err.text, cases[i].message))
            fail_msg("case %zu says '%s', wanted '%s'", i, err.text, cases[i].message);
        assert_int_equal(c.d_model, 5);
    }
    struct ddl_config c;
    struct ddl_error err;
    assert_int_equal(ddl_config_load(&c, scratch_path("absent"), NULL, NULL, &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "absent/config.json: cannot open"));
}

static void warnings_and_aliases(void **state)
{
    (void)state;
    struct ddl_config c;
    struct warnings w = { 0 };
    struct ddl_error err;
    assert_ok(load_text("{" BASE ",\"head_dims\":3}", &c, &w, &err), err);
    assert_int_equal(w.n, 1);
    assert_non_null(
        strstr(w.last, "config.json: unknown key 'head_dims', did you mean 'head_dim'? it is ignored"));
    assert_int_equal(c.head_dim, 128);
    assert_ok(load_text("{" BASE ",\"flux_capacitor\":3}", &c, &w, &err), err);
    assert_int_equal(w.n, 2);
    assert_non_null(strstr(w.last, "config.json: unknown key 'flux_capacitor'; it is ignored"));
    assert_ok(ddl_config_load(&c, scratch_path("text"), NULL, NULL, &err), err);

    w.n = 0;
    assert_ok(load_text("{" BASE
                        ",\"model_type\":\"DDL\",\"torch_dtype\":\"bfloat16\",\"architectures\":[\"X\"],"
                        "\"transformers_version\":\"4.50.0\",\"tie_word_embeddings\":true,"
                        "\"ddl_v_dim1_constant\":true,\"ddl_v_dim1_constant_value\":3,"
                        "\"ddl_state_read_init\":null,\"ddl_state_shortconv_kernel_size\":null,"
                        "\"ddl_residual_by_layer\":null,\"rope_base\":500}",
                        &c, &w, &err),
              err);
    assert_int_equal(w.n, 0);
    assert_true(c.v_constant && c.v_constant_value == 3 && c.read_init == 0 && c.state_kernel == 0);
    assert_true(c.rope_base == 500 && !c.by_layer);
}

/* The release's own switches: silent at rest, refused where they would make another model. */
static void switches_of_the_release(void **state)
{
    (void)state;
    static const char resting[] =
        "{" BASE ",\"bias\":false,\"dropout\":0.0,\"scale_attn_by_inverse_layer_idx\":false,"
        "\"using_groupnorm\":false,\"use_output_gate\":false,\"use_k_shift\":false,\"use_v_shift\":false,"
        "\"q_activation\":null,\"k_activation\":null,\"v_activation\":null,\"attention_dtype\":\"auto\","
        "\"ddl_state_dv_shortconv_causal\":false,\"ddl_sequence_reduction_version\":1,"
        "\"rms_norm_eps\":1e-05,\"residual_branch_mult\":1.0,\"tie_word_embeddings\":true,"
        "\"intermediate_size\":null,\"model_type\":\"nanogpt-pro\"}";
    static const char *const other[][2] = {
        { "\"use_k_shift\":true", "use_k_shift is true, expected false: other models are not supported" },
        { "\"q_activation\":\"silu\"",
          "q_activation is \"silu\", expected null: other models are not supported" },
        { "\"rms_norm_eps\":1e-06", "rms_norm_eps is 1e-" },
        { "\"ddl_state_dv_shortconv_causal\":true", "ddl_state_dv_shortconv_causal is true" },
        { "\"tie_word_embeddings\":false",
          "tie_word_embeddings is false, expected true: other models are not supported" },
        { "\"using_groupnorm\":1", "using_groupnorm is 1, expected false: other models are not supported" },
    };
    struct ddl_config c;
    struct warnings w = { 0 };
    struct ddl_error err;
    assert_ok(load_text(resting, &c, &w, &err), err);
    assert_int_equal(w.n, 0);
    /* No file of the release reads these keys. */
    static const char *const idle[][2] = {
        { "\"dropout\":0.1",
          "dropout is 0.1: no model of the release reads it, and there is no dropout here" },
        { "\"bias\":true", "bias is true: no model of the release reads it, and none has biases" },
        { "\"scale_attn_by_inverse_layer_idx\":true",
          "scale_attn_by_inverse_layer_idx is true: no model of the release reads it; ignored" },
    };
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        char text[2048];
        snprintf(text, sizeof text, "{%s,%s}", BASE, idle[i][0]);
        assert_ok(load_text(text, &c, &w, &err), err);
        assert_int_equal(w.n, i + 1);
        if (!strstr(w.last, idle[i][1]))
            fail_msg("'%s', wanted '%s'", w.last, idle[i][1]);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        char text[2048];
        snprintf(text, sizeof text, "{%s,%s}", BASE, other[i][0]);
        assert_int_equal(load_text(text, &c, &w, &err), DDL_E_UNSUPPORTED);
        if (!strstr(err.text, other[i][1]))
            fail_msg("'%s', wanted '%s'", err.text, other[i][1]);
    }
    assert_int_equal(
        load_text("{" BASE ",\"ddl_v_constant\":true,\"ddl_v_dim1_constant\":false}", &c, &w, &err),
        DDL_E_FORMAT);
    assert_non_null(
        strstr(err.text, "ddl_v_constant and ddl_v_dim1_constant are the same setting and differ"));
    assert_ok(
        load_text("{" BASE ",\"ddl_v_constant_value\":3.0,\"ddl_v_dim1_constant_value\":3}", &c, &w, &err),
        err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(writes_numbers_for_defaults),
        cmocka_unit_test(release_form),
        cmocka_unit_test(release_form_errors),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(warnings_and_aliases),
        cmocka_unit_test(keys_are_in_order),
        cmocka_unit_test(own_keys_are_in_the_metadata),
        cmocka_unit_test(metadata_completes_config_json),
        cmocka_unit_test(bad_metadata_has_its_message),
        cmocka_unit_test(switches_of_the_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
