/* One diagnosis for all ranks. */
#include "train/nonfinite/nonfinite.h"

#include <stdio.h>
#include <string.h>

/* A diagnosis whose names are text, because pointers to them differ between processes. */
struct message {
    struct ddl_nonfinite t;
    char part[16], earlier[24];
};

static struct message message_of(const struct ddl_nonfinite *t)
{
    struct message m = { .t = *t };
    if (t->finding.place.part)
        snprintf(m.part, sizeof m.part, "%s", t->finding.place.part);
    if (t->earlier)
        snprintf(m.earlier, sizeof m.earlier, "%s", t->earlier);
    return m;
}

/* The entry of a table of names, or NULL. */
static const char *find(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names;
}

/* The first rank where `yes` is true, or the number of ranks. */
static size_t first_rank(ddl_comm *comm, bool yes)
{
    size_t ranks = ddl_comm_size(comm);
    uint64_t left = yes ? ranks - ddl_comm_rank(comm) : 0;
    ddl_comm_max_u64(comm, 1, &left);
    return ranks - (size_t)left;
}

/* What was not finite before the step, of the first rank that has found any. Each rank checks its own
 * moments.
 */
static void share_earlier(struct ddl_nonfinite *t, ddl_comm *comm)
{
    size_t from = first_rank(comm, t->earlier != NULL);
    struct message m = message_of(t);
    if (from == ddl_comm_size(comm))
        return;
    ddl_comm_broadcast(comm, from, sizeof m, &m);
    t->earlier = find(ddl_nonfinite_kinds, m.earlier);
    memcpy(t->earlier_name, m.t.earlier_name, sizeof t->earlier_name);
    t->earlier_values = m.t.earlier_values;
}

/* Copies the data of rank `from` to rank 0, into `ids`. Returns them. */
static const int32_t *share_ids(const struct ddl_nonfinite *t, ddl_comm *comm, size_t from,
                                const int32_t *own, int32_t *ids)
{
    size_t bytes = t->held * t->batch * t->seq * sizeof *ids;
    if (from == 0 || bytes == 0)
        return own;
    if (ddl_comm_rank(comm) == from)
        ddl_comm_send(comm, 0, bytes, own);
    else if (ddl_comm_rank(comm) == 0)
        ddl_comm_receive(comm, from, bytes, ids);
    return ids;
}

void ddl_nonfinite_share(struct ddl_nonfinite *t, ddl_comm *comm, size_t from, int32_t *tokens,
                         int32_t *targets)
{
    t->rank = 0;
    t->ranks = ddl_comm_size(comm);
    if (!comm)
        return;
    share_earlier(t, comm);
    size_t ranks = ddl_comm_size(comm), found = first_rank(comm, t->finding.found);
    from = from < ranks ? from : found < ranks ? found : 0;
    struct message m = message_of(t);
    ddl_comm_broadcast(comm, from, sizeof m, &m);
    const int32_t *own_tokens = t->tokens, *own_targets = t->targets;
    *t = m.t;
    t->rank = from;
    t->earlier = find(ddl_nonfinite_kinds, m.earlier);
    t->finding.place.part = find(ddl_nonfinite_parts, m.part);
    t->tokens = share_ids(t, comm, from, own_tokens, tokens);
    t->targets = share_ids(t, comm, from, own_targets, targets);
}
