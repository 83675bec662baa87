/* Named sizes of models. */
#include "ddl/config.h"

#include "ddl/text.h"
#include "model/config/config_size.h"

#include <stdio.h>
#include <string.h>

static const struct size {
    const char *name, *about;
    size_t layers, heads, head_dim, d, vocab, block;
} sizes[] = {
    { "small", "12 layers of width 768: the paper's small", 12, 6, 128, 768, 50304, 1024 },
    { "medium", "24 layers of width 1024: the paper's medium", 24, 8, 128, 1024, 50304, 1024 },
    { "mini", "6 layers of width 384", 6, 6, 64, 384, 50304, 512 },
    { "tiny", "4 layers of width 256, vocabulary 8192", 4, 4, 64, 256, 8192, 512 },
    { "micro", "4 layers of width 128, vocabulary 4096", 4, 4, 32, 128, 4096, 256 },
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

const char *ddl_config_size_list(size_t i, const char **about)
{
    if (about)
        *about = i < N_SIZES ? sizes[i].about : NULL;
    return i < N_SIZES ? sizes[i].name : NULL;
}

size_t ddl_config_list_names(const char *(*list)(size_t, const char **), char *out, size_t size)
{
    *out = '\0';
    for (size_t i = 0; list(i, NULL); i++)
        ddl_text_append(out, size, ", ", list(i, NULL));
    return strlen(out);
}

/* "unknown size 'x', did you mean 'y'?"; all names where none is near. */
static ddl_status unknown_size(const char *name, struct ddl_error *err)
{
    struct ddl_option named[(int)N_SIZES + 1] = { 0 };
    char all[256] = "";
    for (size_t i = 0; i < N_SIZES; i++)
        named[i].name = sizes[i].name;
    if (ddl_option_nearest(named, name))
        return ddl_option_unknown(named, NULL, "size", name, err);
    ddl_config_list_names(ddl_config_size_list, all, sizeof all);
    return ddl_error_set(err, DDL_E_USAGE, "unknown size '%.80s' (there are: %s)", name, all);
}

ddl_status ddl_config_set_size(struct ddl_config *config, const char *name, struct ddl_error *err)
{
    for (size_t i = 0; i < N_SIZES; i++) {
        const struct size *s = &sizes[i];
        if (strcmp(s->name, name) != 0)
            continue;
        config->n_layers = s->layers;
        config->n_heads = s->heads;
        config->head_dim = s->head_dim;
        config->d_model = s->d;
        config->mlp_size = 0;
        config->vocab_size = s->vocab;
        config->block_size = s->block;
        return DDL_OK;
    }
    return unknown_size(name, err);
}

ddl_status ddl_config_set_head_dim(struct ddl_config *config, const struct ddl_config *given,
                                   struct ddl_error *err)
{
    size_t width = config->d_model, heads = config->n_heads, most = DDL_MAX_HEAD_DIM;
    if (given->head_dim || (!given->d_model && !given->n_heads))
        return DDL_OK;
    if (width % heads == 0 && width / heads >= 1 && width / heads <= most)
        config->head_dim = width / heads;
    else if (given->d_model && given->n_heads)
        return ddl_error_set(
            err, DDL_E_USAGE,
            "head_dim: expected hidden_size / num_attention_heads to be a whole number, 1 to "
            "%zu, found %zu / %zu; change one of the two or set head_dim",
            most, width, heads);
    return DDL_OK;
}

bool ddl_config_head_dim_note(const struct ddl_config *config, size_t named, char *out, size_t size)
{
    size_t width = config->d_model, heads = config->n_heads, h = config->head_dim;
    bool unrotated = h % 2 && config->rope_ratio >= 1;
    *out = '\0';
    if (h != named)
        snprintf(out, size, "head_dim is %zu, not %zu: hidden_size %zu / num_attention_heads %zu%s", h, named,
                 width, heads, unrotated ? "; it is odd, so one dimension of each head is not rotated" : "");
    else if (width != heads * h)
        snprintf(out, size,
                 "head_dim remains %zu: hidden_size %zu / num_attention_heads %zu is not a possible width; "
                 "set num_attention_heads, or head_dim to keep it",
                 h, width, heads);
    return *out != '\0';
}

const char *ddl_config_size_name(const struct ddl_config *config)
{
    for (size_t i = 0; i < N_SIZES; i++) {
        const struct size *s = &sizes[i];
        if (config->n_layers == s->layers && config->n_heads == s->heads && config->head_dim == s->head_dim &&
            config->d_model == s->d)
            return s->name;
    }
    return NULL;
}
