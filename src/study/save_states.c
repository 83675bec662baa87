/* The states after chosen sublayers of an inspection, for chosen tokens, and their file. */
#include "study/inspection.h"

#include "base/mem.h"
#include "tensor/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 32 };
static const char *const sublayer_names[DDL_SUBLAYERS] = { "attn", "mlp" };

static void write_name(char *out, size_t size, size_t sublayer)
{
    snprintf(out, size, "%zu.%s", sublayer / DDL_SUBLAYERS, sublayer_names[sublayer % DDL_SUBLAYERS]);
}

/* Chooses the sublayers of a list such as "0.attn,3.mlp"; all if it is empty. */
static ddl_status choose(struct saved_states *saved, size_t n_sublayers, const char *list,
                         struct ddl_error *err)
{
    const bool all = !list || !*list;
    for (size_t s = 0; s < n_sublayers; s++)
        saved->slot[s] = all ? saved->n++ : SIZE_MAX;
    for (const char *at = list; !all && *at;) {
        const size_t length = strcspn(at, ",");
        size_t s = 0;
        char name[NAME];
        for (; s < n_sublayers; s++) {
            write_name(name, sizeof name, s);
            if (strlen(name) == length && memcmp(name, at, length) == 0)
                break;
        }
        if (s == n_sublayers)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "save_sublayers: expected sublayers from 0.attn to %zu.mlp, found '%.*s'",
                                 n_sublayers / DDL_SUBLAYERS - 1, (int)(length < 80 ? length : 80), at);
        if (saved->slot[s] == SIZE_MAX)
            saved->slot[s] = saved->n++;
        at += length + (at[length] == ',');
    }
    return DDL_OK;
}

ddl_status saved_states_create(struct ddl_inspection *in, uint64_t total, struct ddl_error *err)
{
    struct saved_states *saved = &in->saved;
    const size_t n_sublayers = DDL_SUBLAYERS * in->k->n_layers;
    size_t width, numbers, bytes;
    if (!in->config.states_every)
        return DDL_OK;
    if (total == 0)
        return ddl_error_set(
            err, DDL_E_USAGE,
            "inspect: states_every is %llu: expected the number of tokens that follow, found 0",
            (unsigned long long)in->config.states_every);
    saved->tokens_most = (size_t)((total - 1) / in->config.states_every + 1);
    saved->slot = ddl_mem_zalloc(n_sublayers * sizeof *saved->slot);
    if (!saved->slot)
        return ddl_error_set(err, DDL_E_MEMORY, "inspect: out of memory");
    ddl_status status = choose(saved, n_sublayers, in->config.states_of, err);
    if (status)
        return status;
    width = in->k->d_model * in->c;
    if (ddl_size_mul(saved->n * width, saved->tokens_most, &numbers) &&
        ddl_size_mul(numbers, sizeof *saved->states, &bytes))
        saved->states = ddl_mem_alloc(bytes);
    saved->tokens = ddl_mem_alloc(saved->tokens_most * sizeof *saved->tokens);
    saved->positions = ddl_mem_alloc(saved->tokens_most * sizeof *saved->positions);
    saved->index = ddl_mem_alloc(saved->tokens_most * sizeof *saved->index);
    return saved->states && saved->tokens && saved->positions && saved->index
               ? DDL_OK
               : ddl_error_set(err, DDL_E_MEMORY,
                               "inspect: out of memory for the states of %zu sublayers and %zu tokens",
                               saved->n, saved->tokens_most);
}

void saved_states_free(struct saved_states *saved)
{
    ddl_mem_free(saved->slot);
    ddl_mem_free(saved->states);
    ddl_mem_free(saved->tokens);
    ddl_mem_free(saved->positions);
    ddl_mem_free(saved->index);
}

/* Whether the states of row n of the present pass are kept. */
static bool is_kept(const struct ddl_inspection *in, size_t n)
{
    return (in->rows + n) % in->config.states_every == 0 &&
           !(in->config.states_counted && in->batch->targets[n] < 0);
}

void saved_states_add(struct ddl_inspection *in, const struct ddl_sublayer_trace *trace)
{
    struct saved_states *saved = &in->saved;
    const size_t slot =
        saved->slot ? saved->slot[trace->layer * DDL_SUBLAYERS + (size_t)trace->sub] : SIZE_MAX;
    const size_t d = in->k->d_model, c = in->c, width = d * c;
    size_t at = saved->n_tokens;
    for (size_t n = 0; slot != SIZE_MAX && n < trace->rows; n++) {
        if (!is_kept(in, n))
            continue;
        const float *from = in->copies.after + n * width;
        float *to = saved->states + (slot * saved->tokens_most + at++) * width;
        for (size_t m = 0; m < width; m++) /* (d, c) of a state that may be (c, d) */
            to[m] = from[trace->by_column ? m % c * d + m / c : m];
    }
}

void saved_states_end_pass(struct ddl_inspection *in)
{
    struct saved_states *saved = &in->saved;
    const size_t T = in->batch->T;
    for (size_t n = 0; saved->slot && n < in->batch->B * T; n++) {
        if (!is_kept(in, n))
            continue;
        saved->tokens[saved->n_tokens] = in->batch->tokens[n];
        saved->positions[saved->n_tokens] = (int64_t)(n % T);
        saved->index[saved->n_tokens++] = (int64_t)(in->rows + n);
    }
}

/* ---- the file ---- */

enum { N_LISTS = 3 };

static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    const struct ddl_inspection *in = user;
    const struct saved_states *saved = &in->saved;
    const size_t width = in->k->d_model * in->c;
    const void *const lists[N_LISTS] = { saved->tokens, saved->positions, saved->index };
    const void *from = i < N_LISTS ? lists[i] : saved->states + (i - N_LISTS) * saved->tokens_most * width;
    (void)err;
    memcpy(to, (const char *)from + offset, bytes);
    return DDL_OK;
}

ddl_status ddl_inspect_save_states(const ddl_inspection *in, const char *path, struct ddl_error *err)
{
    static const char *const lists[N_LISTS] = { "tokens", "positions", "index" };
    const struct saved_states *saved = &in->saved;
    struct ddl_tensor *tensors = calloc(N_LISTS + saved->n, sizeof *tensors);
    char(*names)[NAME] = calloc(saved->n + 1, sizeof *names);
    ddl_status status =
        tensors && names ? DDL_OK : ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; !status && i < N_LISTS; i++)
        tensors[i] = (struct ddl_tensor){
            .name = lists[i], .dtype = DDL_I64, .ndim = 1, .shape = { saved->n_tokens }
        };
    for (size_t s = 0; !status && s < DDL_SUBLAYERS * in->k->n_layers; s++) {
        const size_t slot = saved->slot[s];
        if (slot == SIZE_MAX)
            continue;
        write_name(names[slot], sizeof names[slot], s);
        tensors[N_LISTS + slot] = (struct ddl_tensor){ .name = names[slot],
                                                       .dtype = DDL_F32,
                                                       .ndim = 3,
                                                       .shape = { saved->n_tokens, in->k->d_model, in->c } };
    }
    if (!status)
        status = ddl_safetensors_write(path, tensors, N_LISTS + saved->n, fill, (void *)(uintptr_t)in, err);
    free(tensors);
    free(names);
    return status;
}
