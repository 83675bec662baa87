/* The ops of a backend compared with "ref": every case of ops/cases.h at awkward sizes. */
#include "verify/internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "ops/audit.h"
#include "ops/cases.h"

#include <stdio.h>
#include <string.h>

/* Texts that the names of the cases to run contain; none: all cases. */
struct chosen {
    const char *const *names;
    size_t n;
};

/* Backends of one run. */
struct pair {
    ddl_backend *backend, *ref;
};

/* One case at one size. The audit, a backend around the other, compares what is rounded to bfloat16 with its
 * exact bits. */
static ddl_status check_at(struct context *c, const struct pair *pair, const struct ddl_op_case *k,
                           const struct ddl_op_sizes *s, struct ddl_error *err)
{
    struct ddl_trial_plan plan;
    struct ddl_trial_result found;
    struct ddl_audit audit;
    union ddl_op_args args;
    ddl_op_case_plan(k, s, &args, &plan);
    ddl_audit_init(&audit, pair->backend);
    ddl_status status = ddl_trial_check(&plan, &audit.profile.backend, pair->ref, &found, err);
    if (!status)
        status = ddl_audit_check(&audit, err);
    if (status == DDL_OK || status == DDL_E_NUMERIC) {
        measure(c, "error", 1, found.operand, found.error > 0 ? found.error / found.limit : 0);
        if (audit.calls)
            measure(c, "bf16", 1, audit.op, audit.worst);
    }
    return status;
}

static ddl_status check_op(struct context *c, const struct pair *pair, const struct ddl_op_case *k,
                           struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; !status && ddl_op_awkward_sizes(i); i++)
        status = check_at(c, pair, k, ddl_op_awkward_sizes(i), err);
    return status;
}

static void run_op(const struct ddl_verify_config *config, const struct pair *pair,
                   const struct ddl_op_case *k, struct ddl_verify_case *result)
{
    struct ddl_error err = { 0 };
    struct context c = { .result = result, .config = config, .path = result->path, .backend = pair->backend };
    double start = ddl_clock_seconds();
    if (!ddl_op_is_there(k->op, pair->backend->ops)) {
        result->outcome = DDL_VERIFY_SKIP;
        snprintf(result->message, sizeof result->message, "this backend does not have the op");
    } else if (check_op(&c, pair, k, &err)) {
        result->outcome = DDL_VERIFY_FAIL;
        snprintf(result->message, sizeof result->message, "%s", err.text);
    }
    result->seconds = ddl_clock_seconds() - start;
    pool_free(&c.pool);
}

static ddl_status open_pair(struct pair *pair, const char *name, size_t threads, struct ddl_error *err)
{
    ddl_status status = ddl_backend_create(&pair->backend, name, threads, err);
    if (!status)
        status = ddl_backend_create(&pair->ref, "ref", 1, err);
    for (size_t i = 0; !status && ddl_op_awkward_sizes(i); i++) {
        struct ddl_limits limits = ddl_op_limits(ddl_op_awkward_sizes(i));
        status = pair->backend->ops->reserve(pair->backend->ctx, &limits, err);
    }
    return status;
}

static bool is_chosen(const struct chosen *chosen, const char *name)
{
    for (size_t i = 0; i < chosen->n; i++) {
        if (strstr(name, chosen->names[i]))
            return true;
    }
    return chosen->n == 0;
}

static ddl_status check_names(const struct chosen *chosen, struct ddl_error *err)
{
    size_t n;
    const struct ddl_op_case *cases = ddl_op_cases(&n);
    for (size_t i = 0; i < chosen->n; i++) {
        bool found = false;
        for (size_t k = 0; k < n && !found; k++) {
            char name[64];
            ddl_op_case_name(&cases[k], name, sizeof name);
            found = strstr(name, chosen->names[i]) != NULL;
        }
        if (!found)
            return ddl_error_set(err, DDL_E_USAGE,
                                 "no op's name contains '%.60s': see the names that ddl verify --ops prints",
                                 chosen->names[i]);
    }
    return DDL_OK;
}

static ddl_status run_backend(const struct ddl_verify_config *config, const struct chosen *chosen,
                              const char *name, ddl_verify_fn *each, void *user,
                              struct ddl_verify_totals *totals, struct ddl_error *err)
{
    struct pair pair = { 0 };
    size_t n;
    const struct ddl_op_case *cases = ddl_op_cases(&n);
    ddl_status status = open_pair(&pair, name, config->threads, err);
    for (size_t i = 0; !status && i < n; i++) {
        char path[64];
        ddl_op_case_name(&cases[i], path, sizeof path);
        if (!is_chosen(chosen, path))
            continue;
        struct ddl_verify_case result = { .path = path, .kind = "op", .backend = name };
        run_op(config, &pair, &cases[i], &result);
        verify_count(totals, &result);
        if (each)
            each(user, &result);
    }
    ddl_backend_free(pair.backend);
    ddl_backend_free(pair.ref);
    return status;
}

static ddl_status skip_backend(const char *name, const struct ddl_error *why, ddl_verify_fn *each, void *user,
                               struct ddl_verify_totals *totals)
{
    struct ddl_verify_case result = { .path = name, .kind = "backend", .outcome = DDL_VERIFY_SKIP };
    snprintf(result.message, sizeof result.message, "%s", why->text);
    verify_count(totals, &result);
    if (each)
        each(user, &result);
    return DDL_OK;
}

ddl_status ddl_verify_ops(const struct ddl_verify_config *config, const char *const *names, size_t n_names,
                          ddl_verify_fn *each, void *user, struct ddl_verify_totals *totals,
                          struct ddl_error *err)
{
    const struct chosen chosen = { names, n_names };
    bool all = strcmp(config->backend, "all") == 0;
    char name[DDL_BACKEND_NAME_SIZE];
    ddl_status status = check_names(&chosen, err);
    *totals = (struct ddl_verify_totals){ 0 };
    if (status)
        return status;
    if (strcmp(config->backend, "ref") == 0)
        return ddl_error_set(err, DDL_E_USAGE,
                             "backend ref: ops are compared with this backend: expected another one");
    for (size_t i = 0; !status && all && ddl_backend_list(i, name); i++) {
        struct ddl_error why;
        if (strcmp(name, "ref") == 0)
            continue;
        status = run_backend(config, &chosen, name, each, user, totals, &why);
        if (verify_skips_backend(config, i, status))
            status = skip_backend(name, &why, each, user, totals);
        else if (status)
            ddl_error_set(err, status, "%s", why.text);
    }
    return all ? status : run_backend(config, &chosen, config->backend, each, user, totals, err);
}
