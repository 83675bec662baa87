/* Collectives between the devices of the ranks (ops/group.h), without host memory. The communicator connects
 * the ranks at the start and has the time limit. */
#include "train/step/collectives.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device {
    ddl_comm *comm;
    const struct ddl_group_ops *ops;
    void *group;
    ddl_status status; /* of connecting */
    struct ddl_error err;
};

static void reduce_scatter(void *ctx, float *x, size_t n, ddl_event ready)
{
    const struct device *d = ctx;
    d->ops->reduce_scatter(d->group, x, n, ready);
}

static void all_gather(void *ctx, float *x, size_t n, ddl_event ready)
{
    const struct device *d = ctx;
    d->ops->all_gather(d->group, x, n, ready);
}

static void progress(void *ctx)
{
    (void)ctx; /* the device moves the numbers by itself */
}

/* Ends all ranks if one is lost. */
static bool is_complete(void *user)
{
    const struct device *d = user;
    struct ddl_error err;
    bool yes;
    /* The end of the process frees the group: to abort it may wait for ranks that still run. */
    if (d->ops->poll(d->group, &yes, &err))
        ddl_comm_abort_call(d->comm, err.text);
    return yes;
}

static void finish(void *ctx)
{
    struct device *d = ctx;
    ddl_comm_wait_until(d->comm, is_complete, d);
}

static void free_device(void *ctx)
{
    struct device *d = ctx;
    if (d->group)
        d->ops->close(d->group);
    ddl_mem_free(d);
}

static const struct ddl_collectives_ops device_ops = { reduce_scatter, all_gather, progress, finish,
                                                       free_device };

/* ---- the choice ---- */

enum wish { AUTOMATIC, HOST, DEVICE };

/* What a rank wishes and has. The ranks exchange it, so that all choose the same. */
struct offer {
    enum wish wish;
    ddl_status status; /* of loading the library */
    char device[DDL_GROUP_DEVICE];
    char text[160]; /* the library, or why there is none */
};

static ddl_status read_wish(enum wish *wish, struct ddl_error *err)
{
    const char *text = getenv("DDL_EXCHANGE");
    *wish = AUTOMATIC;
    if (!text || !*text || strcmp(text, "auto") == 0)
        return DDL_OK;
    *wish = strcmp(text, "host") == 0 ? HOST : DEVICE;
    if (*wish == HOST || strcmp(text, "device") == 0)
        return DDL_OK;
    return ddl_error_set(err, DDL_E_USAGE, "DDL_EXCHANGE: expected auto, host or device, found '%s'", text);
}

static struct offer make_offer(const ddl_backend *backend, enum wish wish)
{
    struct offer offer = { .wish = wish };
    struct ddl_error err;
    const struct ddl_group_ops *group = backend->ops->group;
    if (!group) {
        offer.status = DDL_E_UNSUPPORTED;
        snprintf(offer.text, sizeof offer.text, "backend %s has no exchange between devices",
                 backend->ops->name);
    } else if (wish != HOST) {
        offer.status = group->load(backend->ctx, offer.device, offer.text, sizeof offer.text, &err);
        if (offer.status)
            snprintf(offer.text, sizeof offer.text, "%.*s", (int)sizeof offer.text - 1, err.text);
    }
    return offer;
}

/* Whether the ranks can exchange on their devices; else why not. */
static bool are_usable(ddl_comm *comm, const struct offer *offers, char *reason, size_t size)
{
    for (size_t r = 0; r < ddl_comm_size(comm); r++) {
        if (offers[r].status) {
            snprintf(reason, size, "rank %zu (host %s): %s", r, ddl_comm_host(comm, r), offers[r].text);
            return false;
        }
        for (size_t s = 0; s < r; s++) {
            if (strcmp(offers[s].device, offers[r].device) == 0) {
                snprintf(reason, size, "ranks %zu and %zu (host %s) have the same device", s, r,
                         ddl_comm_host(comm, r));
                return false;
            }
        }
    }
    return true;
}

/* *yes, the same on all ranks: the devices exchange. `note` receives a line for the user, or "". */
static ddl_status choose(bool *yes, ddl_comm *comm, const ddl_backend *backend, char *note, size_t note_size,
                         struct ddl_error *err)
{
    enum wish wish;
    char reason[256];
    *yes = false;
    note[0] = '\0';
    struct offer *offers = NULL;
    ddl_status status = read_wish(&wish, err);
    if (!status && !(offers = ddl_mem_alloc(ddl_comm_size(comm) * sizeof *offers)))
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory to connect the devices");
    status = ddl_comm_agree(comm, status, err);
    if (status) {
        ddl_mem_free(offers);
        return status;
    }
    struct offer mine = make_offer(backend, wish);
    ddl_comm_gather(comm, sizeof mine, &mine, offers);
    bool any_host = false, any_device = false;
    for (size_t r = 0; r < ddl_comm_size(comm); r++) {
        any_host = any_host || offers[r].wish == HOST;
        any_device = any_device || offers[r].wish == DEVICE;
    }
    bool usable = !any_host && are_usable(comm, offers, reason, sizeof reason);
    if (any_host && any_device)
        status =
            ddl_error_set(err, DDL_E_USAGE, "DDL_EXCHANGE: the ranks differ: some have host, some device");
    else if (any_device && !usable)
        status = ddl_error_set(err, DDL_E_UNSUPPORTED, "DDL_EXCHANGE: device: %s", reason);
    else if (usable)
        snprintf(note, note_size, "exchange of gradients: %s", offers[0].text);
    else if (!any_host && backend->ops->group)
        snprintf(note, note_size, "exchange of gradients through host memory: %s", reason);
    *yes = usable;
    ddl_mem_free(offers);
    return status;
}

static bool is_connected(void *user)
{
    struct device *d = user;
    bool yes;
    d->status = d->ops->poll(d->group, &yes, &d->err);
    return yes || d->status;
}

/* Connects the devices. */
static ddl_status connect(struct device *d, const ddl_backend *backend, size_t capacity,
                          enum ddl_comm_dtype dtype, struct ddl_error *err)
{
    struct ddl_group_config config = { .rank = ddl_comm_rank(d->comm),
                                       .size = ddl_comm_size(d->comm),
                                       .capacity = capacity,
                                       .bf16 = dtype == DDL_COMM_BF16,
                                       .cut = ddl_comm_cut };
    ddl_status status = DDL_OK;
    if (config.rank == 0)
        status = d->ops->make_id(backend->ctx, config.id, err);
    status = ddl_comm_agree(d->comm, status, err);
    if (status)
        return status;
    ddl_comm_broadcast(d->comm, 0, sizeof config.id, config.id);
    status = d->ops->open(&d->group, backend->ctx, &config, err);
    status = ddl_comm_agree(d->comm, status, err);
    if (status)
        return status;
    ddl_comm_wait_until(d->comm, is_connected, d);
    if (d->status && err)
        *err = d->err;
    return ddl_comm_agree(d->comm, d->status, err);
}

ddl_status ddl_collectives_create_device(struct ddl_collectives *out, ddl_comm *comm,
                                         const ddl_backend *backend, size_t capacity,
                                         enum ddl_comm_dtype dtype, struct ddl_error *err)
{
    bool yes;
    *out = (struct ddl_collectives){ 0 };
    ddl_status status = choose(&yes, comm, backend, out->note, sizeof out->note, err);
    if (status || !yes)
        return status;
    struct device *d = ddl_mem_zalloc(sizeof *d);
    if (!d)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory to connect the devices");
    else
        *d = (struct device){ .comm = comm, .ops = backend->ops->group };
    status = ddl_comm_agree(comm, status, err);
    if (!status)
        status = connect(d, backend, capacity, dtype, err);
    if (status) {
        if (d && d->group)
            d->ops->abort(d->group);
        ddl_mem_free(d);
        return status;
    }
    out->ops = &device_ops;
    out->ctx = d;
    return DDL_OK;
}

size_t ddl_collectives_device_bytes(const ddl_backend *backend, size_t ranks, enum ddl_comm_dtype dtype)
{
    const struct ddl_group_ops *group = backend->ops->group;
    enum wish wish;
    if (ranks == 1 || !group || read_wish(&wish, NULL) || wish == HOST)
        return 0;
    return group->memory_estimate(backend->ctx, ranks, dtype == DDL_COMM_BF16);
}
