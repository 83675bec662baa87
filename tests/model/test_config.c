/* model/config/config.c: presets, sizes, checks, derived figures. */
#include "support/files.h"

#include "ddl/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void defaults_are_the_small_baseline(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    assert_ok(ddl_config_check(&c, &err), err);
    assert_string_equal(ddl_config_preset_name(&c), "baseline");
    assert_int_equal(c.n_layers, 12);
    assert_int_equal(c.vocab_size, 50304);
    assert_int_equal(ddl_config_mlp_size(&c), 2048);
    assert_int_equal(ddl_config_rope_dims(&c), 128);
    assert_true(ddl_config_logit_scale(&c) == 1);
}

static void presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int residual, compress, embed;
        size_t channels;
    } cases[] = {
        { "baseline", DDL_RESIDUAL_ADD, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "ddl-1", DDL_RESIDUAL_DELTA, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "ddl-tc", DDL_RESIDUAL_DELTA, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 4 },
        { "ddl-tc-ec", DDL_RESIDUAL_DELTA, DDL_COMPRESS_TOKEN, DDL_EMBED_CONV, 4 },
        { "ddl-cc", DDL_RESIDUAL_DELTA, DDL_COMPRESS_CHANNEL, DDL_EMBED_REPEAT, 4 },
        { "ddl-cc-ec", DDL_RESIDUAL_DELTA, DDL_COMPRESS_CHANNEL, DDL_EMBED_CONV, 4 },
        { "ddl-mix", DDL_RESIDUAL_DELTA, DDL_COMPRESS_MIX, DDL_EMBED_REPEAT, 4 },
        { "ddl-mix-ec", DDL_RESIDUAL_DELTA, DDL_COMPRESS_MIX, DDL_EMBED_CONV, 4 },
        { "scale", DDL_RESIDUAL_SCALE, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "gated", DDL_RESIDUAL_GATED, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "highway", DDL_RESIDUAL_HIGHWAY, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "hyper", DDL_RESIDUAL_HYPER, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "mhc", DDL_RESIDUAL_MHC, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "laurel", DDL_RESIDUAL_LAUREL, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "attnres", DDL_RESIDUAL_ATTNRES, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "attnres-block", DDL_RESIDUAL_ATTNRES, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "scale-norm", DDL_RESIDUAL_SCALE, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "denseformer", DDL_RESIDUAL_ADD, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "resformer", DDL_RESIDUAL_ADD, DDL_COMPRESS_TOKEN, DDL_EMBED_REPEAT, 1 },
        { "ddl-2step", DDL_RESIDUAL_DELTA, DDL_COMPRESS_CHANNEL, DDL_EMBED_CONV, 4 },
    };
    enum { N = sizeof cases / sizeof *cases };
    for (size_t i = 0; i < N; i++) {
        struct ddl_error err;
        struct ddl_config c = ddl_config_defaults();
        c.d_model = 77;
        c.map = DDL_MAP_V; /* set_preset takes this back */
        c.by_layer = true;
        assert_string_equal(ddl_config_preset_list(i, NULL), cases[i].name);
        assert_ok(ddl_config_set_preset(&c, cases[i].name, &err), err);
        assert_ok(ddl_config_check(&c, &err), err);
        assert_int_equal(c.residual, cases[i].residual);
        assert_int_equal(c.compress, cases[i].compress);
        assert_int_equal(c.embed, cases[i].embed);
        assert_int_equal(c.channels, cases[i].channels);
        assert_int_equal(c.d_model, 77);
        assert_false(c.by_layer);
        assert_string_equal(ddl_config_preset_name(&c), cases[i].name);
    }
    const char *about = "x";
    assert_null(ddl_config_preset_list(N, &about));
    assert_null(about);
    assert_non_null(ddl_config_preset_list(0, &about));
    assert_non_null(about);
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    assert_int_equal(ddl_config_set_preset(&c, "ddl-ccec", &err), DDL_E_USAGE);
    assert_string_equal(err.text, "unknown model 'ddl-ccec', did you mean 'ddl-cc-ec'?");
    assert_int_equal(ddl_config_set_preset(&c, "perceptron", &err), DDL_E_USAGE);
    assert_string_equal(
        err.text,
        "unknown model 'perceptron' (there are: baseline, ddl-1, ddl-tc, ddl-tc-ec, "
        "ddl-cc, ddl-cc-ec, ddl-mix, ddl-mix-ec, scale, gated, highway, hyper, mhc, laurel, attnres, "
        "attnres-block, scale-norm, denseformer, "
        "resformer, ddl-2step; delta models also with the suffixes -write, -erase, -beta1, -v0, -vmap)");
}

/* The release's model files are names of the models that they compute. */
static void files_of_the_release_are_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        { "gpt_base", "baseline" },
        { "DDL-vdim1", "ddl-1" },
        { "DDL-vdim1-gpt-mha-rope", "ddl-1" },
        { "DDL-vdim1-gpt-mha-rope-TC.py", "ddl-1" },
        { "DDL-vdim1-gpt-mha-rope-TC-accelerated", "ddl-1" },
        { "DDL", "ddl-tc" },
        { "DDL-gpt-mha-rope", "ddl-tc" },
        { "DDL-gpt-mha-rope-TC", "ddl-tc" },
        { "DDL-EC", "ddl-tc-ec" },
        { "DDL-gpt-mha-rope-EC", "ddl-tc-ec" },
        { "DDL-gpt-mha-rope-TC-EC", "ddl-tc-ec" },
        { "DDL-CC", "ddl-cc" },
        { "DDL-gpt-mha-rope-CC", "ddl-cc" },
        { "DDL-CC-EC", "ddl-cc-ec" },
        { "DDL-gpt-mha-rope-CC-EC", "ddl-cc-ec" },
        { "DDL-gpt-mha-rope-CC-EC-accelerated.py", "ddl-cc-ec" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ddl_error err;
        struct ddl_config c = ddl_config_defaults();
        assert_ok(ddl_config_set_preset(&c, names[i][0], &err), err);
        assert_string_equal(ddl_config_preset_name(&c), names[i][1]);
    }
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    assert_int_equal(ddl_config_set_preset(&c, "DDL-XX", &err), DDL_E_USAGE);
    assert_int_equal(
        ddl_config_set_preset(&c, "DDL-gpt-mha-rope-CC-EC-and-a-name-of-more-than-64-characters", &err),
        DDL_E_USAGE);
}

/* What each control sets, by hand. */
static void set_control(struct ddl_config *c, size_t control)
{
    switch (control) {
    case 0:
        c->update = DDL_UPDATE_WRITE;
        break;
    case 1:
        c->update = DDL_UPDATE_ERASE;
        break;
    case 2:
        c->beta_constant = true;
        c->beta_constant_value = 1;
        break;
    case 3:
        c->v_constant = true;
        c->v_constant_value = 0;
        break;
    default:
        c->map = DDL_MAP_V;
    }
}

/* The name of a delta model with a control's suffix is the model with one key set. */
static void controls(void **state)
{
    (void)state;
    static const char *const suffixes[] = { "-write", "-erase", "-beta1", "-v0", "-vmap" };
    const char *name, *about;
    struct ddl_error err;
    size_t n = 0;
    for (; ddl_config_control_list(n, &about); n++) {
        assert_string_equal(ddl_config_control_list(n, NULL), suffixes[n]);
        assert_non_null(about);
    }
    assert_int_equal(n, 5);
    assert_null(about);
    for (size_t i = 0; (name = ddl_config_preset_list(i, NULL)); i++) {
        for (size_t control = 0; control < n; control++) {
            char full[64];
            struct ddl_config c = ddl_config_defaults(), wanted = c;
            snprintf(full, sizeof full, "%s%s", name, suffixes[control]);
            assert_ok(ddl_config_set_preset(&wanted, name, &err), err);
            if (wanted.residual != DDL_RESIDUAL_DELTA || wanted.steps > 1) {
                assert_int_equal(ddl_config_set_preset(&c, full, &err), DDL_E_USAGE);
                continue;
            }
            assert_ok(ddl_config_set_preset(&c, full, &err), err);
            assert_string_equal(ddl_config_preset_name(&c), full);
            set_control(&wanted, control);
            assert_memory_equal(&c, &wanted, sizeof c);
            assert_ok(ddl_config_set_preset(&c, name, &err), err); /* takes the control back */
            assert_string_equal(ddl_config_preset_name(&c), name);
        }
    }
    struct ddl_config c = ddl_config_defaults();
    assert_int_equal(ddl_config_set_preset(&c, "ddl-1-writes", &err), DDL_E_USAGE);
    assert_string_equal(err.text, "unknown model 'ddl-1-writes', did you mean 'ddl-1-write'?");
    assert_int_equal(ddl_config_set_preset(&c, "ddl-1-", &err), DDL_E_USAGE);
}

static void preset_names_look_at_what_matters(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    assert_ok(ddl_config_set_preset(&c, "ddl-cc-ec", &err), err);
    c.state_kernel = 4;  /* the default, said aloud */
    c.beta_hidden = 999; /* idle: the gate is linear */
    c.k_rank = 3;        /* idle: k-map */
    assert_string_equal(ddl_config_preset_name(&c), "ddl-cc-ec");
    c.state_kernel = 3;
    assert_null(ddl_config_preset_name(&c));
    c.state_kernel = 0;
    c.update = DDL_UPDATE_WRITE;
    assert_string_equal(ddl_config_preset_name(&c), "ddl-cc-ec-write");
    c.beta_constant_value = 0.3f; /* idle: the gate is not a constant */
    assert_string_equal(ddl_config_preset_name(&c), "ddl-cc-ec-write");
    c.beta_constant = true;
    assert_null(ddl_config_preset_name(&c));
    c = ddl_config_defaults();
    c.map = DDL_MAP_V; /* idle: additive */
    assert_string_equal(ddl_config_preset_name(&c), "baseline");
    c.value_residual = true;
    assert_string_equal(ddl_config_preset_name(&c), "resformer");
    assert_ok(ddl_config_set_preset(&c, "ddl-1", &err), err);
    assert_false(c.value_residual);
    c.value_residual = true;
    assert_null(ddl_config_preset_name(&c));
    c = ddl_config_defaults();
    c.n_layers = 3;
    assert_ok(ddl_config_set_by_layer(&c, "delta,add,delta", "x", &err), err);
    assert_null(ddl_config_preset_name(&c));
    assert_ok(ddl_config_set_by_layer(&c, "delta,delta,delta", "x", &err), err);
    assert_string_equal(ddl_config_preset_name(&c), "ddl-1");
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t layers, heads, head_dim, d, m, vocab, block;
    } cases[] = {
        { "small", 12, 6, 128, 768, 2048, 50304, 1024 }, { "medium", 24, 8, 128, 1024, 2730, 50304, 1024 },
        { "mini", 6, 6, 64, 384, 1024, 50304, 512 },     { "tiny", 4, 4, 64, 256, 682, 8192, 512 },
        { "micro", 4, 4, 32, 128, 341, 4096, 256 },
    };
    enum { N = sizeof cases / sizeof *cases };
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    assert_ok(ddl_config_set_preset(&c, "ddl-tc-ec", &err), err);
    for (size_t i = 0; i < N; i++) {
        assert_string_equal(ddl_config_size_list(i, NULL), cases[i].name);
        assert_ok(ddl_config_set_size(&c, cases[i].name, &err), err);
        assert_int_equal(c.n_layers, cases[i].layers);
        assert_int_equal(c.n_heads, cases[i].heads);
        assert_int_equal(c.head_dim, cases[i].head_dim);
        assert_int_equal(c.d_model, cases[i].d);
        assert_int_equal(c.vocab_size, cases[i].vocab);
        assert_int_equal(c.block_size, cases[i].block);
        assert_int_equal(ddl_config_mlp_size(&c), cases[i].m);
        assert_string_equal(ddl_config_preset_name(&c), "ddl-tc-ec");
    }
    assert_null(ddl_config_size_list(N, NULL));
    assert_int_equal(ddl_config_set_size(&c, "smull", &err), DDL_E_USAGE);
    assert_string_equal(err.text, "unknown size 'smull', did you mean 'small'?");
    assert_int_equal(ddl_config_set_size(&c, "enormous", &err), DDL_E_USAGE);
    assert_string_equal(err.text, "unknown size 'enormous' (there are: small, medium, mini, tiny, micro)");
}

static void derived(void **state)
{
    (void)state;
    struct ddl_config c = ddl_config_defaults();
    static const struct {
        float ratio;
        size_t h, dims;
    } cases[] = {
        { 1, 16, 16 },   { 1, 7, 6 }, { 0.5f, 10, 4 }, { 0, 16, 0 },         { 0.7f, 20, 14 },
        { 0.25f, 4, 0 }, { 1, 1, 0 }, { 0.6f, 10, 6 }, { 1.0f / 3, 96, 32 }, { 5.0f / 12, 96, 40 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.rope_ratio = cases[i].ratio;
        c.head_dim = cases[i].h;
        assert_int_equal(ddl_config_rope_dims(&c), cases[i].dims);
    }
    c.channels = 6;
    assert_int_equal(ddl_config_state_kernel(&c), 4);
    c.compress = DDL_COMPRESS_CHANNEL;
    assert_int_equal(ddl_config_state_kernel(&c), 6);
    c.state_kernel = 3;
    assert_int_equal(ddl_config_state_kernel(&c), 3);
    c.compress = DDL_COMPRESS_MIX;
    assert_int_equal(ddl_config_state_kernel(&c), 6);
    c.mup = true;
    c.d_base = 48;
    c.d_model = 24;
    assert_true(ddl_config_logit_scale(&c) == 2);
}

static void checks(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *key, *text, *message;
    } cases[] = {
        { "ddl-cc", "vocab_size", "0", "vocab_size: 0 is out of range (1 to 2147483647)" },
        { "ddl-cc", "num_hidden_layers", "513", "num_hidden_layers: 513 is out of range (1 to 512)" },
        { "ddl-cc", "num_attention_heads", "0", "num_attention_heads: 0 is out of range (1 to 65536)" },
        { "ddl-cc", "hidden_size", "1048577", "hidden_size: 1048577 is out of range (1 to 1048576)" },
        { "ddl-cc", "head_dim", "0", "head_dim: 0 is out of range (1 to 4096)" },
        { "ddl-cc", "block_size", "0", "block_size: 0 is out of range (1 to 2147483647)" },
        { "ddl-cc", "rope_base", "0", "rope_base: 0 is out of range" },
        { "ddl-cc", "rope_ratio", "1.5", "rope_ratio: 1.5 is out of range (0 to 1)" },
        { "ddl-cc", "ddl_beta_init", "2.5", "ddl_beta_init: 2.5 is out of range (0 to 2)" },
        { "ddl-cc", "ddl_beta_max", "0", "ddl_beta_max: 0 is out of range (1e-06 to 1000000)" },
        { "ddl-cc", "ddl_beta_max", "0.5", NULL },
        { "gated", "ddl_beta_max", "0.75", NULL },
        { "gated", "ddl_f_norm", "true", NULL },
        { "ddl-1", "ddl_f_norm", "true",
          "ddl_f_norm: expected a layer with the rule add, scale, gated, highway or laurel, found none" },
        { "mhc", "ddl_f_norm", "true", "ddl_f_norm: expected a layer" },
        { "ddl-cc", "ddl_value_channels", "0", "ddl_value_channels: 0 is out of range (1 to 4096)" },
        { "ddl-cc", "ddl_k_eps", "0", "ddl_k_eps: 0 is out of range" },
        { "ddl-cc", "ddl_beta_hidden_size", "0", "ddl_beta_hidden_size: 0 is out of range" },
        { "ddl-cc", "ddl_state_shortconv_kernel_size", "5000",
          "ddl_state_shortconv_kernel_size: 5000 is out" },
        { "ddl-cc", "input_embed_shortconv_kernel_size", "0", "input_embed_shortconv_kernel_size: 0 is out" },
        { "baseline", "ddl_value_channels", "4", "ddl_value_channels is 4, but ddl_residual add has only 1" },
        { "ddl-cc", "ddl_residual", "gated", "ddl_value_channels is 4, but ddl_residual gated has only 1" },
        { "ddl-cc", "ddl_residual", "highway",
          "ddl_value_channels is 4, but ddl_residual highway has only 1" },
        { "attnres", "dense_average", "true",
          "dense_average: expected false with ddl_residual attnres, found true" },
        { "attnres", "ddl_attnres_block", "0", "ddl_attnres_block: 0 is out of range (1 to 1024)" },
        { "attnres", "ddl_value_channels", "2",
          "ddl_value_channels is 2, but ddl_residual attnres has only 1" },
        { "denseformer", "dense_period", "0", "dense_period: 0 is out of range (1 to 512)" },
        { "ddl-cc", "dense_dilation", "513", "dense_dilation: 513 is out of range (1 to 512)" },
        { "ddl-cc", "ddl_steps", "0", "ddl_steps: 0 is out of range (1 to 64)" },
        { "ddl-1-vmap", "ddl_steps", "3", "ddl_steps is 3, but ddl_map is v: several steps need ddl_map k" },
        { "baseline", "ddl_highway_init", "1", "ddl_highway_init: 1 is out of range (1e-06 to 0.999999)" },
        { "ddl-cc", "ddl_residual", "hyper", "ddl_value_channels is 4, but ddl_residual hyper has only 1" },
        { "mhc", "ddl_value_channels", "2", "ddl_value_channels is 2, but ddl_residual mhc has only 1" },
        { "hyper", "ddl_streams", "9", "ddl_streams: 9 is out of range (1 to 8)" },
        { "mhc", "ddl_sinkhorn_iterations", "101",
          "ddl_sinkhorn_iterations: 101 is out of range (1 to 100)" },
        { "ddl-cc", "ddl_residual", "laurel", "ddl_value_channels is 4, but ddl_residual laurel has only 1" },
        { "baseline", "ddl_laurel_rank", "1048577",
          "ddl_laurel_rank: 1048577 is out of range (0 to 1048576)" },
        { "ddl-cc", "ddl_residual", "scale", "ddl_value_channels is 4, but ddl_residual scale has only 1" },
        { "ddl-1", "ddl_v_sigmoid_scale", "0", "ddl_v_sigmoid_scale: expected another number than 0" },
        { "ddl-1-beta1", "ddl_beta_constant_value", "2.5",
          "ddl_beta_constant_value: 2.5 is out of range (0 to ddl_beta_max, 2)" },
        { "ddl-1-beta1", "ddl_beta_max", "3", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        struct ddl_config c = ddl_config_defaults();
        assert_ok(ddl_config_set_preset(&c, cases[i].preset, &err), err);
        struct ddl_option open = *ddl_option_find(ddl_config_options(), cases[i].key);
        open.min = open.max = 0; /* put the bad value in as a program could */
        assert_ok(ddl_option_set(&open, &c, cases[i].text, "x", &err), err);
        if (!cases[i].message) {
            assert_ok(ddl_config_check(&c, &err), err);
            continue;
        }
        assert_int_equal(ddl_config_check(&c, &err), DDL_E_USAGE);
        if (strncmp(err.text, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("'%s', wanted '%s'", err.text, cases[i].message);
    }
}

/* Values of layer 0 cannot be mixed into some layers whose update depends on attention and others without. */
static void mixed_values(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    c.n_layers = 3;
    c.value_residual = true;
    c.map = DDL_MAP_V;
    c.update = DDL_UPDATE_ERASE;
    c.residual = DDL_RESIDUAL_DELTA;
    assert_ok(ddl_config_check(&c, &err), err);
    assert_ok(ddl_config_set_by_layer(&c, "add,delta,add", "x", &err), err);
    assert_int_equal(ddl_config_check(&c, &err), DDL_E_USAGE);
    assert_says(&err, "with this update the rule delta of layer 1 does not");
    c.update = DDL_UPDATE_DELTA;
    assert_ok(ddl_config_check(&c, &err), err);
    c.v_constant = true;
    assert_int_equal(ddl_config_check(&c, &err), DDL_E_USAGE);
    c.value_residual = false;
    assert_ok(ddl_config_check(&c, &err), err);
}

/* The initial value of the gate: half of a range up to at most 1 unless it is given, and inside the range. */
static void gate_range(void **state)
{
    (void)state;
    static const struct {
        float most, init, found; /* found: 0 for an error */
    } cases[] = { { 2, 1, 1 },       { 2, 0, 0 },    { 2, 2, 2 },       { 3, 2.5f, 2.5f }, { 3, 3, 0 },
                  { 3, 0, 0 },       { 1, 1, 0.5f }, { 1, 0.9f, 0.9f }, { 1, 1.5f, 0 },    { 0.5f, 1, 0.25f },
                  { 0.5f, 0.5f, 0 }, { 1.5f, 1, 1 }, { 1.5f, 1.5f, 0 }, { 2, 2.1f, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_error err;
        struct ddl_config c = ddl_config_defaults();
        c.residual = DDL_RESIDUAL_DELTA;
        c.beta_max = cases[i].most;
        c.beta_init = cases[i].init;
        bool closed = cases[i].most == 2 && cases[i].init == 0; /* the closed gate of the default range */
        ddl_status status = ddl_config_check(&c, &err);
        assert_int_equal(status, cases[i].found > 0 || closed ? DDL_OK : DDL_E_USAGE);
        if (status)
            assert_non_null(strstr(err.text, "ddl_beta_init: "));
        else
            assert_true(ddl_config_beta_init(&c) == cases[i].found);
        if (!status)
            assert_true(ddl_config_resolved(&c).beta_init == cases[i].found);
        c.residual = DDL_RESIDUAL_ADD; /* no gate */
        assert_ok(ddl_config_check(&c, &err), err);
    }
}

static void more_checks(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_config good = ddl_config_defaults(), c = good;
    c.k_eps = NAN;
    assert_int_equal(ddl_config_check(&c, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "ddl_k_eps: "));
    c = good;
    c.update = 3;
    assert_int_equal(ddl_config_check(&c, &err), DDL_E_USAGE);
    assert_string_equal(err.text, "ddl_update: 3 is out of range (0 to 2)");
    c.update = -1;
    assert_int_equal(ddl_config_check(&c, &err), DDL_E_USAGE);
    c = good;
    c.residual = DDL_RESIDUAL_DELTA;
    c.map = DDL_MAP_V;
    c.k_rank = 769;
    assert_ok(ddl_config_check(&c, &err), err); /* a product wider than d is well-formed */
    c.map = DDL_MAP_K;
    assert_ok(ddl_config_check(&c, &err), err);
    c.by_layer = true;
    c.residual_by_layer[11] = 200;
    assert_int_equal(ddl_config_check(&c, &err), DDL_E_USAGE);
    assert_string_equal(err.text, "ddl_residual_by_layer: rule 200 of layer 11 is out of range");
    c.residual_by_layer[11] = DDL_RESIDUAL_DELTA;
    c.channels = 4;
    assert_int_equal(ddl_config_check(&c, &err), DDL_E_USAGE);
    assert_string_equal(err.text, "ddl_residual_by_layer needs ddl_value_channels 1, found 4");
    c.channels = 1;
    c.residual_by_layer[3] = DDL_RESIDUAL_MHC;
    assert_int_equal(ddl_config_check(&c, &err), DDL_E_USAGE);
    assert_string_equal(err.text,
                        "ddl_residual_by_layer: expected rules whose state is one vector, found mhc, whose "
                        "state all layers would share; set ddl_residual to mhc instead");
}

static void rule_by_layer(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_config c = ddl_config_defaults();
    c.n_layers = 3;
    assert_ok(ddl_config_set_by_layer(&c, "add,delta,add", "--x", &err), err);
    assert_true(c.by_layer);
    assert_int_equal(ddl_config_residual(&c, 0), DDL_RESIDUAL_ADD);
    assert_int_equal(ddl_config_residual(&c, 1), DDL_RESIDUAL_DELTA);
    assert_int_equal(ddl_config_residual(&c, 2), DDL_RESIDUAL_ADD);
    static const struct {
        const char *rules, *start;
    } cases[] = {
        { "add,delta", "--x: 2 rules, num_hidden_layers is 3" },
        { "add,delta,add,add", "--x: 4 rules, num_hidden_layers is 3" },
        { "add,deltas,add", "--x: 'deltas' is none of add, delta, " },
        { "add,,add", "--x: '' is none of add, delta, " },
        { "add,add,add,", "--x: '' is none of add, delta, " },
        { "add,aaaaaaaaaaaaaaaaaaaaaaaaa,add", "--x: 'aaaaaaaaaaaaaaa' is none of add, delta, " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ddl_config_set_by_layer(&c, cases[i].rules, "--x", &err), DDL_E_USAGE);
        assert_ptr_equal(strstr(err.text, cases[i].start), err.text);
        assert_int_equal(ddl_config_residual(&c, 1), DDL_RESIDUAL_DELTA);
    }
    char rules[32];
    ddl_config_get_by_layer(&c, rules, sizeof rules);
    assert_string_equal(rules, "add,delta,add");
    assert_ok(ddl_config_set_by_layer(&c, "", "--x", &err), err);
    assert_false(c.by_layer);
    ddl_config_get_by_layer(&c, rules, sizeof rules);
    assert_string_equal(rules, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_the_release_are_names),
        cmocka_unit_test(defaults_are_the_small_baseline),
        cmocka_unit_test(presets),
        cmocka_unit_test(controls),
        cmocka_unit_test(preset_names_look_at_what_matters),
        cmocka_unit_test(sizes),
        cmocka_unit_test(derived),
        cmocka_unit_test(checks),
        cmocka_unit_test(mixed_values),
        cmocka_unit_test(gate_range),
        cmocka_unit_test(more_checks),
        cmocka_unit_test(rule_by_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
