#define _POSIX_C_SOURCE 200809L
#include "support/backends.h"
#include "support/faulty_backend.h"
#include "support/files.h"
#include "support/program.h"

#include "base/file.h"
#include "ddl/backend.h"
#include "ddl/model.h"
#include "ddl/verify.h"
#include "tensor/safetensors.h"
#include "verify/internal.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* source_path and scratch_path, kept: they rotate a few buffers. */
struct path {
    char text[1000];
};
static struct path kept(const char *path)
{
    struct path p;
    assert_true(snprintf(p.text, sizeof p.text, "%s", path) < (int)sizeof p.text);
    return p;
}

/* --- running ------------------------------------------------------------------------------------------ */

/* The report of a run, and its last failure as text. */
struct reported {
    struct ddl_verify_totals totals;
    struct ddl_verify_case last; /* its pointers are invalid    */
    char kinds[512];             /* "model:fail operator:pass " */
    char worst[160];             /* tensor over its limit       */
};

static void note(void *user, const struct ddl_verify_case *r)
{
    static const char *const outcomes[] = { "pass", "fail", "skip" };
    struct reported *reported = user;
    reported->last = *r;
    size_t used = strlen(reported->kinds);
    snprintf(reported->kinds + used, sizeof reported->kinds - used, "%s:%s ", r->kind, outcomes[r->outcome]);
    for (size_t i = 0; i < r->n_measures; i++) {
        if (!(r->measures[i].error <= r->measures[i].limit))
            snprintf(reported->worst, sizeof reported->worst, "%s", r->measures[i].tensor);
    }
}

static ddl_status run(const char *path, const char *backend, struct reported *reported, struct ddl_error *err)
{
    struct ddl_verify_config config = ddl_verify_defaults();
    snprintf(config.backend, sizeof config.backend, "%s", backend);
    snprintf(config.tokenizer, sizeof config.tokenizer, "%s", source_path("data/tokenizer"));
    snprintf(config.data, sizeof config.data, "%s", source_path("data"));
    *reported = (struct reported){ 0 };
    return ddl_verify_run(&config, &path, 1, note, reported, &reported->totals, err);
}

/* --- making broken copies ------------------------------------------------------------------------------ */

static void join(char out[2048], const char *folder, const char *name)
{
    assert_true(ddl_path_join(out, 2048, folder, name));
}

/* Copies files, NULL-ended, from one folder to another; `cut` bytes are left off the end of each. */
static void copy_files(const char *from, const char *to, const char *const *names, size_t cut)
{
    struct ddl_error err = { 0 };
    assert_ok(ddl_file_make_dir(to, &err), err);
    for (; *names; names++) {
        char source[2048], target[2048];
        size_t size;
        join(source, from, *names);
        join(target, to, *names);
        char *text = read_file(source, &size);
        write_file(target, text, size - (cut < size ? cut : size));
        free(text);
    }
}

/* What happens to a tensor on its way into the copy. */
enum change { KEEP, SCALE, SHIFT_ROW, MAKE_NAN, LEAVE_OUT, RENAME, ALL_ZERO, BIG_TOKEN };

struct edit {
    const char *tensor;
    enum change change;
};

struct copying {
    const ddl_safetensors *file;
    const struct ddl_tensor **source; /* of each tensor written */
    struct edit edit;
};

static void change_numbers(const struct ddl_tensor *t, enum change change, void *data)
{
    float *x = data;
    double *y = data;
    size_t row = t->ndim ? t->count / t->shape[0] : 1;
    switch (change) {
    case SCALE:
        for (size_t i = 0; i < t->count; i++)
            t->dtype == DDL_F32 ? (void)(x[i] *= 1.001f) : (void)(y[i] *= 1.001);
        break;
    case SHIFT_ROW:
        for (size_t i = 0; i < row; i++)
            x[i] += 1e-3f;
        break;
    case MAKE_NAN:
        t->dtype == DDL_F32 ? (void)(x[t->count / 2] = NAN) : (void)(y[t->count / 2] = (double)NAN);
        break;
    case ALL_ZERO:
        memset(data, 0, t->bytes);
        break;
    case BIG_TOKEN:
        ((int64_t *)data)[1] = 1 << 20;
        break;
    default:
        break;
    }
}

/* Whole tensors at a time: these cases are small. */
static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    (void)err;
    struct copying *k = user;
    const struct ddl_tensor *t = k->source[i];
    unsigned char *copy = malloc(t->bytes + 1);
    assert_non_null(copy);
    memcpy(copy, t->data, t->bytes);
    if (strcmp(t->name, k->edit.tensor) == 0)
        change_numbers(t, k->edit.change, copy);
    memcpy(to, copy + offset, bytes);
    free(copy);
    return DDL_OK;
}

static void copy_tensors(const char *from, const char *to, struct edit edit)
{
    struct ddl_error err = { 0 };
    ddl_safetensors *file;
    assert_ok(ddl_safetensors_open(&file, from, &err), err);
    size_t n = ddl_safetensors_count(file), kept = 0;
    struct ddl_tensor *tensors = calloc(n + 1, sizeof *tensors);
    const struct ddl_tensor **source = calloc(n + 1, sizeof *source);
    assert_true(tensors && source);
    assert_non_null(ddl_safetensors_find(file, edit.tensor));
    for (size_t i = 0; i < n; i++) {
        const struct ddl_tensor *t = ddl_safetensors_at(file, i);
        bool it = strcmp(t->name, edit.tensor) == 0;
        if (it && edit.change == LEAVE_OUT)
            continue;
        tensors[kept] = *t;
        source[kept] = t;
        if (it && edit.change == RENAME)
            tensors[kept].name = "grad.of.nothing";
        kept++;
    }
    struct copying k = { file, source, edit };
    assert_ok(ddl_safetensors_write(to, tensors, kept, fill, &k, &err), err);
    free(source);
    free(tensors);
    ddl_safetensors_close(file);
}

static void expect_failure(const char *path, const char *kind, const char *tensor, const char *gist)
{
    struct ddl_error err = { 0 };
    struct reported reported;
    assert_ok(run(path, "ref", &reported, &err), err);
    if (reported.totals.failed != 1)
        print_error("%s should fail\n", path);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s:fail ", kind);
    assert_string_equal(reported.kinds, wanted);
    assert_int_equal(reported.totals.failed, 1);
    if (tensor)
        assert_string_equal(reported.worst, tensor);
    if (gist && !strstr(reported.last.message, gist))
        fail_msg("'%s' does not say '%s'", reported.last.message, gist);
}

/* --- every golden case passes --------------------------------------------------------------------------- */

enum { KINDS = 7 };
struct tally {
    size_t passed[KINDS]; /* by kind */
};
static const char *const kinds[KINDS] = { "model", "operator", "block",  "elementwise",
                                          "curve", "tasks",    "inspect" };

static void count(void *user, const struct ddl_verify_case *r)
{
    struct tally *tally = user;
    for (size_t i = 0; i < KINDS; i++)
        tally->passed[i] += r->outcome == DDL_VERIFY_PASS && strcmp(r->kind, kinds[i]) == 0;
    if (r->outcome != DDL_VERIFY_FAIL)
        return;
    print_error("%s on %s: %s\n", r->path, r->backend ? r->backend : "-", r->message);
    for (size_t i = 0; i < r->n_measures; i++)
        print_error("  %s %.3g, limit %.3g, %s\n", r->measures[i].quantity, r->measures[i].error,
                    r->measures[i].limit, r->measures[i].tensor);
}

enum { MAX_CASES = 100 };

static const char all_curves[] = "curve-", one_curve[] = "curve-ddl-cc-ec";
static const char all_wide[] = "wide-";

/* Whether a name begins with `group`, but not with `chosen` (NULL: none is chosen). */
static bool is_left_out(const char *name, const char *group, const char *chosen)
{
    return strncmp(name, group, strlen(group)) == 0 &&
           !(chosen && strncmp(name, chosen, strlen(chosen)) == 0);
}

/* The folders of tests/golden with cases of ddl verify. `curves` and `wide`: how the names of those with
 * training curves and with wide models begin; NULL: without them. */
static size_t golden_folders(const char *curves, const char *wide, struct path *folders)
{
    DIR *dir = opendir(source_path("tests/golden"));
    size_t n = 0;
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (*entry->d_name == '.' || strcmp(entry->d_name, "tokenizer-train") == 0 ||
            is_left_out(entry->d_name, all_curves, curves) || is_left_out(entry->d_name, all_wide, wide))
            continue;
        assert_true(n < MAX_CASES);
        char relative[300];
        snprintf(relative, sizeof relative, "tests/golden/%s", entry->d_name);
        folders[n++] = kept(source_path(relative));
    }
    closedir(dir);
    return n;
}

/* Only what needs a tokenizer is skipped, without one. */
static void count_golden(void *user, const struct ddl_verify_case *r)
{
    count(user, r);
    if (r->outcome == DDL_VERIFY_SKIP && strcmp(r->kind, "tasks") != 0 && strcmp(r->kind, "tokenizer") != 0)
        fail_msg("%s on %s is skipped: %s", r->path, r->backend ? r->backend : "-", r->message);
}

/* The documents of tasks need a tokenizer: without `tasks` they are skipped. */
static void golden_cases_pass(int recompute, const char *backend, const char *curves, bool tasks)
{
    struct ddl_verify_config config = ddl_verify_defaults();
    bool all = strcmp(backend, "all") == 0;
    config.recompute = recompute;
    snprintf(config.backend, sizeof config.backend, "%s", backend);
    snprintf(config.tokenizer, sizeof config.tokenizer, "%s", tasks ? source_path("data/tokenizer") : "");
    snprintf(config.data, sizeof config.data, "%s", source_path("data"));
    static struct path folders[MAX_CASES];
    const char *paths[MAX_CASES];
    char name[DDL_BACKEND_NAME_SIZE];
    size_t n = golden_folders(curves, all_wide, folders), backends = 0;
    for (size_t i = 0; i < n; i++)
        paths[i] = folders[i].text;
    while (ddl_backend_list(backends, name))
        backends++;
    if (!all)
        backends = 1;
    struct ddl_error err = { 0 };
    struct tally tally = { 0 };
    struct ddl_verify_totals totals;
    assert_ok(ddl_verify_run(&config, paths, n, count_golden, &tally, &totals, &err), err);
    assert_int_equal(totals.failed, 0);
    const size_t n_curves = curves == all_curves ? 7 : curves != NULL,
                 wanted[KINDS] = { 67, 16, 3, 1, n_curves, tasks ? 2 : 0, 7 };
    for (size_t i = 0; i < KINDS; i++)
        assert_true(tally.passed[i] >= wanted[i] * backends);
}

/* On "ref", training curves and tasks take most of the time: a sample has them on "cpu" only. Sanitizer
 * builds have no curves and not "ref": train.curves and ops.trial have them there. */
static void every_golden_case_passes(void **state)
{
    (void)state;
    if (!test_sample_sanitized())
        golden_cases_pass(DDL_RECOMPUTE_ELEMENTWISE, "all", all_curves, true);
    else if (!test_sample())
        golden_cases_pass(DDL_RECOMPUTE_ELEMENTWISE, "cpu", NULL, true);
    else {
        golden_cases_pass(DDL_RECOMPUTE_ELEMENTWISE, "cpu", all_curves, true);
        golden_cases_pass(DDL_RECOMPUTE_ELEMENTWISE, "ref", NULL, false);
    }
}

/* With every choice of `recompute`, without training curves. Sanitizer builds have model.workspace, which
 * compares the choices on ref. */
static void every_choice_of_recompute_passes(void **state)
{
    (void)state;
    if (test_sample_sanitized() && !test_sample())
        skip();
    golden_cases_pass(DDL_RECOMPUTE_NONE, "cpu", NULL, false);
    if (!test_sample())
        golden_cases_pass(DDL_RECOMPUTE_BLOCK, "cpu", NULL, false);
}

/* Not only with the best that this machine has, as above. One curve: other rules train in the model cases.
 * A sample has the first set and no curve; sanitizer builds have ops.trial, which compares the ops. */
static void every_set_of_instructions_passes(void **state)
{
    (void)state;
    if (test_sample_sanitized() && !test_sample())
        skip();
    for (size_t i = 0; isa_name(i) && (i == 0 || !test_sample()); i++) {
        ddl_backend *backend = cpu_backend(isa_name(i), 1);
        if (!backend)
            continue;
        ddl_backend_free(backend);
        setenv("DDL_ISA", isa_name(i), 1);
        golden_cases_pass(DDL_RECOMPUTE_ELEMENTWISE, "cpu", test_sample() ? NULL : one_curve, false);
        unsetenv("DDL_ISA");
    }
}

/* --- bfloat16 ------------------------------------------------------------------------------------------- */

static void count_bf16(void *user, const struct ddl_verify_case *r)
{
    count(user, r);
    assert_true(r->outcome != DDL_VERIFY_PASS || r->n_measures >= 6);
}

static void cases_pass_in_bf16(const char *const *paths, size_t n_paths, const char *backend, size_t wanted)
{
    struct ddl_verify_config config = ddl_verify_defaults();
    struct ddl_verify_totals totals;
    struct tally tally = { 0 };
    struct ddl_error err = { 0 };
    config.dtype = DDL_PRECISION_BF16;
    snprintf(config.backend, sizeof config.backend, "%s", backend);
    assert_ok(ddl_verify_run(&config, paths, n_paths, count_bf16, &tally, &totals, &err), err);
    assert_int_equal(totals.failed, 0);
    assert_true(tally.passed[0] >= wanted && tally.passed[1] + tally.passed[4] == 0);
}

/* Every golden model on every backend. The time is that of "ref" and of the exact results that ops are
 * compared with, so that sanitizer builds and samples take "cpu" only, without the wide models. */
static void every_golden_model_passes_in_bf16(void **state)
{
    (void)state;
    static struct path folders[MAX_CASES];
    const char *paths[MAX_CASES];
    bool sample = test_sample_sanitized();
    size_t n = golden_folders(NULL, sample ? NULL : all_wide, folders);
    for (size_t i = 0; i < n; i++)
        paths[i] = folders[i].text;
    cases_pass_in_bf16(paths, n, sample ? "cpu" : "all", sample ? 62 : 2 * 67);
    struct ddl_verify_config config = ddl_verify_defaults();
    struct ddl_verify_totals totals;
    struct ddl_error err = { 0 };
    config.dtype = DDL_PRECISION_INT8;
    assert_int_equal(ddl_verify_run(&config, paths, 1, NULL, NULL, &totals, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "expected f32 or bf16"));
}

/* Instruction sets differ in their ops: models that call all of them, with odd shapes. */
static void every_set_of_instructions_passes_in_bf16(void **state)
{
    (void)state;
    static const char *const names[] = {
        "add-no-rope-no-qknorm", "ddl-1-mixed",        "ddl-tc-c2", "ddl-tc-ec",
        "ddl-cc-c3-k2",          "ddl-cc-ec-vmap-rank"
    };
    enum { N = sizeof names / sizeof *names };
    struct path folders[N];
    const char *paths[N];
    for (size_t i = 0; i < N; i++) {
        char relative[200];
        snprintf(relative, sizeof relative, "tests/golden/%s", names[i]);
        folders[i] = kept(source_path(relative));
        paths[i] = folders[i].text;
    }
    for (size_t i = 0; isa_name(i); i++) {
        if (test_sample_sanitized() && i != 1)
            continue;
        ddl_backend *backend = cpu_backend(isa_name(i), 1);
        if (!backend)
            continue;
        ddl_backend_free(backend);
        setenv("DDL_ISA", isa_name(i), 1);
        cases_pass_in_bf16(paths, N, "cpu", N);
        unsetenv("DDL_ISA");
    }
}

/* A case on a backend with a fault: which quantity exceeds its limit. */
static void faults_fail_in_bf16(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *quantity;
    } rows[] = {
        { NULL, NULL },
        { "matmul_bf16", "ops" },
        { "matmul_bf16 term", "ops" },
        { "matmul_bf16 rounded", "ops" },
        { "truncate", "ops" },
        { "adamw stale", "ops" },
        { "rmsnorm_fwd", "logits" },
        { "attention_bwd", "gradients" },
        { "delta_bwd", "gradients" },
        { "rope_fwd", "decode" },
    };
    struct path folder = kept(source_path("tests/golden/ddl-tc"));
    struct ddl_verify_config config = ddl_verify_defaults();
    config.dtype = DDL_PRECISION_BF16;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct faulty_backend faulty;
        struct ddl_error err = { 0 };
        struct ddl_verify_case result = { .path = folder.text };
        ddl_backend *backend = open_test_backend(2);
        if (rows[i].fault)
            faulty_backend_make(&faulty, backend, rows[i].fault);
        struct context c = { .result = &result,
                             .config = &config,
                             .path = folder.text,
                             .backend = rows[i].fault ? &faulty.backend : backend };
        assert_ok(check_model(&c, &err), err);
        bool found = false;
        for (size_t m = 0; m < result.n_measures; m++)
            found =
                found || (rows[i].quantity && strcmp(result.measures[m].quantity, rows[i].quantity) == 0 &&
                          !(result.measures[m].error <= result.measures[m].limit));
        if (rows[i].fault && !(found && result.outcome == DDL_VERIFY_FAIL))
            fail_msg("%s: %s is within its limit", rows[i].fault, rows[i].quantity);
        assert_true(rows[i].fault || result.outcome == DDL_VERIFY_PASS);
        pool_free(&c.pool);
        ddl_backend_free(backend);
    }
}

/* --- broken cases fail --------------------------------------------------------------------------------- */

static void broken_expectations(void **state)
{
    (void)state;
    static const char *const inputs[] = { "config.json", "model.safetensors", NULL };
#define LAYER0 "transformer.h.0."
    static const struct {
        const char *name, *from;
        struct edit edit;
        const char *tensor, *gist; /* the worst tensor, or the error message */
    } rows[] = {
        { "kept", "add", { "loss", KEEP }, NULL, NULL },
        { "gradient",
          "add",
          { "grad." LAYER0 "mlp.c_fc1.weight", SCALE },
          "grad." LAYER0 "mlp.c_fc1.weight",
          NULL },
        { "norm", "ddl-1", { "grad." LAYER0 "ln_2.weight", SCALE }, "grad." LAYER0 "ln_2.weight", NULL },
        { "logits", "add", { "logits", SHIFT_ROW }, "logits", NULL },
        { "loss", "add", { "loss", SCALE }, "loss", NULL },
        { "beta", "ddl-1", { "beta", SCALE }, "beta", NULL },
        { "readout", "ddl-1", { "readout", SHIFT_ROW }, "readout", NULL },
        { "target", "ddl-1", { "target", SCALE }, "target", NULL },
        { "train", "add", { "train_loss", SCALE }, NULL, NULL },
        { "after",
          "add",
          { "after." LAYER0 "attn.c_q.weight", SCALE },
          "after." LAYER0 "attn.c_q.weight",
          NULL },
        { "nan", "add", { "logits", MAKE_NAN }, "logits", NULL },
        { "nan-gradient", "add", { "grad.ln_f.weight", MAKE_NAN }, "grad.ln_f.weight", NULL },
        { "zero", "add", { "grad.ln_f.weight", ALL_ZERO }, "grad.ln_f.weight", NULL },
        { "missing", "add", { "grad.ln_f.weight", LEAVE_OUT }, NULL, "tensor grad.ln_f.weight is missing" },
        { "no-beta", "ddl-1", { "beta", LEAVE_OUT }, NULL, "tensor beta is missing" },
        { "stranger", "add", { "grad.ln_f.weight", RENAME }, NULL, "belongs to no parameter" },
        { "token", "add", { "tokens", BIG_TOKEN }, NULL, "vocabulary" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char from[2048], to[2048], expect_from[2048], expect_to[2048];
        snprintf(from, sizeof from, "%s/%s", source_path("tests/golden"), rows[i].from);
        snprintf(to, sizeof to, "%s", scratch_path(rows[i].name));
        copy_files(from, to, inputs, 0);
        join(expect_from, from, "expect.safetensors");
        join(expect_to, to, "expect.safetensors");
        copy_tensors(expect_from, expect_to, rows[i].edit);
        if (rows[i].edit.change != KEEP) {
            expect_failure(to, "model", rows[i].tensor, rows[i].gist);
            continue;
        }
        struct reported reported;
        struct ddl_error err = { 0 };
        assert_ok(run(to, "ref", &reported, &err), err);
        assert_string_equal(reported.kinds, "model:pass ");
    }
}

static void broken_models(void **state)
{
    (void)state;
    static const char *const config[] = { "config.json", NULL },
                             *const model[] = { "model.safetensors", NULL },
                             *const expect[] = { "expect.safetensors", NULL };
    struct path source = kept(source_path("tests/golden/ddl-1"));
    const char *from = source.text;
    char to[2048], model_from[2048], model_to[2048];
    snprintf(to, sizeof to, "%s", scratch_path("cut-expect"));
    copy_files(from, to, config, 0);
    copy_files(from, to, model, 0);
    copy_files(from, to, expect, 100);
    expect_failure(to, "model", NULL, "expect.safetensors");

    snprintf(to, sizeof to, "%s", scratch_path("cut-model"));
    copy_files(from, to, config, 0);
    copy_files(from, to, model, 100);
    copy_files(from, to, expect, 0);
    expect_failure(to, "model", NULL, "model.safetensors");

    snprintf(to, sizeof to, "%s", scratch_path("no-model"));
    copy_files(from, to, config, 0);
    copy_files(from, to, expect, 0);
    expect_failure(to, "model", NULL, "model.safetensors");

    snprintf(to, sizeof to, "%s", scratch_path("changed-model"));
    copy_files(from, to, config, 0);
    copy_files(from, to, expect, 0);
    join(model_from, from, "model.safetensors");
    join(model_to, to, "model.safetensors");
    copy_tensors(model_from, model_to, (struct edit){ "transformer.h.1.mlp.c_proj.weight", SCALE });
    expect_failure(to, "model", NULL, NULL);
}

static void broken_files(void **state)
{
    (void)state;
    static const struct {
        const char *from, *name, *kind;
        struct edit edit;
        const char *tensor, *gist;
    } rows[] = {
        { "operator/d24-c4", "d24-c4", "operator", { "dq", SCALE }, "dq", NULL },
        { "operator/d24-c4", "nan", "operator", { "Xp", MAKE_NAN }, "Xp", NULL },
        { "operator/d24-c4", "beta", "operator", { "beta", LEAVE_OUT }, NULL, "tensor beta is missing" },
        { "operator/write-d40-c3", "plain", "operator", { "Xp", KEEP }, NULL, NULL }, /* not named write */
        { "operator/erase-d40-c3", "erase-x", "operator", { "dbeta", ALL_ZERO }, "dbeta", NULL },
        { "block/mlp-mean", "mlp", "block", { "dw1", SCALE }, "dw1", NULL },
        { "block/mlp-flatten", "flat", "block", { "w2", LEAVE_OUT }, NULL, "tensor w2 is missing" },
        { "block/attention-mean", "att", "block", { "dgate_bias", SCALE }, "dgate_bias", NULL },
        { "block/elementwise", "ew", "elementwise", { "dbeta", SCALE }, "dbeta", NULL },
    };
    struct ddl_error err = { 0 };
    assert_ok(ddl_file_make_dir(scratch_path("files"), &err), err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char from[2048], to[2048];
        snprintf(from, sizeof from, "%s/%s.safetensors", source_path("tests/golden"), rows[i].from);
        snprintf(to, sizeof to, "%s/%s.safetensors", scratch_path("files"), rows[i].name);
        copy_tensors(from, to, rows[i].edit);
        expect_failure(to, rows[i].kind, rows[i].tensor, rows[i].gist);
    }
    char cut[2048];
    size_t size;
    char *text = read_file(source_path("tests/golden/operator/d7-c3.safetensors"), &size);
    snprintf(cut, sizeof cut, "%s", scratch_path("cut.safetensors"));
    write_file(cut, text, size - 8);
    expect_failure(cut, "unknown", NULL, "cut.safetensors");
    write_file(cut, text, 5);
    expect_failure(cut, "unknown", NULL, "cut.safetensors");
    free(text);
}

/* Kinds are known by content: another folder's name and another file's name do. */
static void names_do_not_matter(void **state)
{
    (void)state;
    struct ddl_error err = { 0 };
    struct reported reported;
    char to[2048];
    assert_ok(ddl_file_make_dir(scratch_path("elsewhere/deep"), &err), err);
    static const char *const rows[][2] = { { "operator/ratio-d40-c3", "deep/ratio-other" },
                                           { "operator/l2-d40-c3", "hidden-l2_9" },
                                           { "operator/d33-c1", "anything" },
                                           { "block/attention-mean", "deep/one" },
                                           { "block/elementwise", "deep/two" } };
    for (size_t i = 0; i < 5; i++) {
        char from[2048];
        snprintf(from, sizeof from, "%s/%s.safetensors", source_path("tests/golden"), rows[i][0]);
        snprintf(to, sizeof to, "%s/%s.safetensors", scratch_path("elsewhere"), rows[i][1]);
        copy_tensors(from, to, (struct edit){ "G", KEEP });
    }
    assert_ok(run(scratch_path("elsewhere"), "ref", &reported, &err), err);
    assert_string_equal(reported.kinds,
                        "operator:pass block:pass operator:pass elementwise:pass operator:pass ");
}

/* The first `old` in the file becomes `new`. */
static void replace_text(const char *path, const char *old, const char *new)
{
    size_t size;
    char *text = read_file(path, &size);
    const char *at = strstr(text, old);
    assert_non_null(at);
    size_t before = (size_t)(at - text), after = size - before - strlen(old), n = strlen(new);
    char *changed = malloc(size + n);
    assert_non_null(changed);
    memcpy(changed, text, before);
    memcpy(changed + before, new, n);
    memcpy(changed + before + n, at + strlen(old), after);
    write_file(path, changed, before + n + after);
    free(changed);
    free(text);
}

static void broken_curves(void **state)
{
    (void)state;
    static const char *const all[] = { "config.json", "model.safetensors", "tokens.bin",
                                       "recipe.json", "loss.json",         NULL };
    static const struct {
        const char *name, *file, *old, *new, *gist;
    } rows[] = {
        { "curve-loss", "loss.json", "5.5200193", "5.5213193", "" },
        { "curve-key", "recipe.json", "\"warmup\"", "\"warm\"", "warmup is not a number" },
        { "curve-range", "recipe.json", "\"batch\": 8", "\"batch\": 0", "batch is 0" },
        { "curve-room", "recipe.json", "\"batch\": 8", "\"batch\": 60000",
          "recipe.json requires 60000 x 64 tokens per step, tokens.bin has 76801" },
        { "curve-order", "recipe.json", "sequential", "random", "order is random" },
        { "curve-json", "recipe.json", "\"clip\"", "clip", "recipe.json:" },
        { "curve-count", "recipe.json", "150", "151", "has 150 losses" },
        { "curve-text", "loss.json", "5.5480783", "\"5.5\"", "loss 0 is not a number" },
    };
    char to[2048], path[2048];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(to, sizeof to, "%s", scratch_path(rows[i].name));
        copy_files(source_path("tests/golden/curve-baseline"), to, all, 0);
        join(path, to, rows[i].file);
        replace_text(path, rows[i].old, rows[i].new);
        expect_failure(to, "curve", *rows[i].gist ? NULL : "step 1", rows[i].gist);
    }
    snprintf(to, sizeof to, "%s", scratch_path("curve-tokens"));
    copy_files(source_path("tests/golden/curve-baseline"), to, all, 0);
    join(path, to, "tokens.bin");
    size_t size;
    char *text = read_file(path, &size);
    write_file(path, text, size - 3);
    free(text);
    expect_failure(to, "curve", NULL, "tokens.bin");
}

static void tokenizer_cases(void **state)
{
    (void)state;
    struct ddl_error err = { 0 };
    struct reported reported;
    char path[2048];
    struct path kept_folder = kept(scratch_path("tokens"));
    const char *folder = kept_folder.text;
    assert_ok(ddl_file_make_dir(folder, &err), err);
    join(path, folder, "cases.jsonl");
    const char *right = "{\"text\": \"Hello world\", \"ids\": [15496, 995]}\n{\"text\": \"\", \"ids\": []}\n";
    write_file(path, right, strlen(right));
    assert_ok(run(folder, "all", &reported, &err), err);
    assert_string_equal(reported.kinds, "tokenizer:pass ");
    assert_null(reported.last.backend);

    const char *wrong =
        "{\"text\": \"a\", \"ids\": [64]}\n{\"text\": \"Hello world\", \"ids\": [15496, 996]}\n";
    write_file(path, wrong, strlen(wrong));
    expect_failure(folder, "tokenizer", "cases.jsonl:2", NULL);
    const char *torn = "{\"text\": \"a\", \"ids\": [64]}\n{\"text\": \"Hel";
    write_file(path, torn, strlen(torn));
    expect_failure(folder, "tokenizer", NULL, "cases.jsonl:2: ");
    const char *bare = "{\"words\": \"a\"}\n";
    write_file(path, bare, strlen(bare));
    expect_failure(folder, "tokenizer", NULL, "cases.jsonl:1: expected");
}

static void tokenizer_texts(void **state)
{
    (void)state;
    struct ddl_error err = { 0 };
    struct ddl_verify_config config = ddl_verify_defaults();
    struct reported reported = { 0 };
    char path[2048];
    struct path kept_folder = kept(scratch_path("texts")), kept_data = kept(scratch_path("texts-data"));
    const char *folder = kept_folder.text, *data = kept_data.text;
    snprintf(config.tokenizer, sizeof config.tokenizer, "%s", source_path("data/tokenizer"));
    snprintf(config.data, sizeof config.data, "%s", data);
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_file_make_dir(data, &err), err);
    join(path, data, "hello.txt");
    write_file(path, "Hello world", 11);
    /* 15496, 995 as uint16, little-endian: 88 3c e3 03 */
    const char *files = "[{\"file\": \"hello.txt\", \"bytes\": 11, \"tokens\": 2, \"sha256_u16le\": "
                        "\"8b0afc49bdba77a617df3fe4699904b2ac6446594294c4f63a2bfaeeb4a10213\"},\n"
                        " {\"file\": \"absent.txt\", \"bytes\": 1, \"tokens\": 1, \"sha256_u16le\": \"00\"}]";
    join(path, folder, "files.json");
    write_file(path, files, strlen(files));
    assert_ok(ddl_verify_run(&config, &folder, 1, note, &reported, &reported.totals, &err), err);
    assert_string_equal(reported.kinds, "tokenizer:pass ");
    assert_non_null(strstr(reported.last.message, "absent.txt"));

    join(path, data, "hello.txt");
    write_file(path, "Hello worle", 11);
    reported = (struct reported){ 0 };
    assert_ok(ddl_verify_run(&config, &folder, 1, note, &reported, &reported.totals, &err), err);
    assert_string_equal(reported.kinds, "tokenizer:fail ");
    assert_string_equal(reported.worst, "hello.txt");

    static const char *const outside[] = { "/etc/hostname", "..", "../hello.txt", "a/../../hello.txt", "" };
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        char list[256];
        int n = snprintf(list, sizeof list, "[{\"file\": \"%s\", \"sha256_u16le\": \"00\"}]", outside[i]);
        join(path, folder, "files.json");
        write_file(path, list, (size_t)n);
        reported = (struct reported){ 0 };
        assert_ok(ddl_verify_run(&config, &folder, 1, note, &reported, &reported.totals, &err), err);
        assert_string_equal(reported.kinds, "tokenizer:fail ");
        assert_non_null(strstr(reported.last.message, "is not a path below a folder"));
    }

    *config.tokenizer = '\0';
    reported = (struct reported){ 0 };
    assert_ok(ddl_verify_run(&config, &folder, 1, note, &reported, &reported.totals, &err), err);
    assert_string_equal(reported.kinds, "tokenizer:skip ");
}

/* A case of tasks in which nothing, or less than all documents, would be compared. */
static void tasks_without_results_fail(void **state)
{
    (void)state;
    static const struct {
        const char *results, *gist;
    } rows[] = {
        { "[]", "results.json: tasks is missing or not an object" },
        { "{\"tasks\": {}}", "made: nothing to compare" },
        { "{\"tasks\": {\"piqa\": {\"runs\": "
          "[{\"file\": \"piqa-0shot.jsonl\", \"num_fewshot\": 0, \"documents\": 8}]}}}",
          "piqa-0shot.jsonl: expected 8 documents, found 1" },
    };
    size_t size;
    char path[2048], *lines = read_file(source_path("tests/golden/tasks/made/piqa-0shot.jsonl"), &size);
    const struct path made = kept(scratch_path("made")),
                      from[2] = { kept(source_path("tests/golden/tasks/made/data")),
                                  kept(source_path("tests/golden/tasks/model")) };
    struct ddl_error err = { 0 };
    remove_scratch("made");
    assert_ok(ddl_file_make_dir(made.text, &err), err);
    for (size_t i = 0; i < 2; i++) {
        join(path, made.text, i ? "model" : "data");
        assert_int_equal(symlink(from[i].text, path), 0);
    }
    join(path, made.text, "piqa-0shot.jsonl");
    write_file(path, lines, (size_t)(strchr(lines, '\n') + 1 - lines));
    free(lines);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        join(path, made.text, "results.json");
        write_file(path, rows[i].results, strlen(rows[i].results));
        expect_failure(made.text, "tasks", NULL, rows[i].gist);
    }
}

/* --- what is no case ------------------------------------------------------------------------------------ */

static void unknown_kinds_are_named(void **state)
{
    (void)state;
    struct ddl_error err = { 0 };
    struct reported reported;
    char path[2048];
    static const char *const folders[] = { "mixed/a-figures", "mixed/b-tasks/nothing", "mixed/c-empty" };
    remove_scratch("mixed");
    for (size_t i = 0; i < 3; i++)
        assert_ok(ddl_file_make_dir(scratch_path(folders[i]), &err), err);
    join(path, scratch_path("mixed/a-figures"), "ddl-1.json");
    static const char figures[] = "{\"case\": \"none\", \"sublayers\": []}";
    write_file(path, figures, strlen(figures));
    join(path, scratch_path("mixed/b-tasks"), "piqa-0shot.jsonl");
    write_file(path, "{}", 2);
    assert_ok(run(scratch_path("mixed"), "ref", &reported, &err), err);
    assert_string_equal(reported.kinds, "inspect:skip tasks:skip unknown:skip unknown:skip ");
    assert_int_equal(reported.totals.skipped, 4);
    assert_int_equal(reported.totals.failed, 0);
}

/* A case of figures on its own, and with one figure, one forced loss, or a name changed. */
static void changed_figures_fail(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *kinds, *worst;
    } rows[] = {
        { "\"case\"", "\"case\"", "inspect:pass ", "" },
        { "\"step\": 0.4350", "\"step\": 0.4351", "inspect:fail ", "step, layer 1 attn" },
        { "6.649085", "6.651085", "inspect:fail ", "forced[0]" },
        { "\"overlap_next\": null", "\"overlap_next\": 0.5", "inspect:fail ", "overlap_next, layer 1 mlp" },
        { "\"write\": 0", "\"wrote\": 0", "inspect:fail ", "" },
        { "\"layer\": 1", "\"layer\": 7", "inspect:fail ", "" },
    };
    struct ddl_error err = { 0 };
    struct reported reported;
    size_t size;
    char path[2048], *text = read_file(source_path("tests/golden/inspect/ddl-1-mixed.json"), &size);
    const struct path model = kept(source_path("tests/golden/ddl-1-mixed"));
    assert_ok(ddl_file_make_dir(scratch_path("figures/inspect"), &err), err);
    join(path, scratch_path("figures"), "ddl-1-mixed");
    unlink(path);
    assert_int_equal(symlink(model.text, path), 0);
    join(path, scratch_path("figures/inspect"), "case.json");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char changed[8192], *at = strstr(text, rows[i].from);
        assert_non_null(at);
        int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, rows[i].to,
                         at + strlen(rows[i].from));
        write_file(path, changed, (size_t)n);
        assert_ok(run(path, "ref", &reported, &err), err);
        assert_string_equal(reported.kinds, rows[i].kinds);
        assert_string_equal(reported.worst, rows[i].worst);
    }
    free(text);
}

static void nothing_to_run(void **state)
{
    (void)state;
    struct ddl_error err = { 0 };
    struct reported reported;
    assert_ok(ddl_file_make_dir(scratch_path("empty"), &err), err);
    assert_int_equal(run(scratch_path("empty"), "ref", &reported, &err), DDL_E_FORMAT);
    assert_non_null(strstr(err.text, "empty"));
    assert_int_equal(run(scratch_path("not-there"), "ref", &reported, &err), DDL_E_IO);
    assert_non_null(strstr(err.text, "not-there"));
    assert_int_equal(run(scratch_path("empty"), "abacus", &reported, &err), DDL_E_USAGE);
    assert_non_null(strstr(err.text, "abacus"));
}

/* --- the command ---------------------------------------------------------------------------------------- */

static void command_line(void **state)
{
    (void)state;
    assert_int_equal(ddl("verify '%s' --backend ref", source_path("tests/golden/operator")), 0);
    assert_printed("d7-c3.safetensors");
    assert_printed("16 passed, 0 failed, 0 skipped\n");
    char broken[2048];
    snprintf(broken, sizeof broken, "%s", scratch_path("broken.safetensors"));
    copy_tensors(source_path("tests/golden/operator/d16-c4.safetensors"), broken,
                 (struct edit){ "dX", SCALE });
    assert_int_equal(ddl("verify '%s' --backend ref", broken), 1);
    assert_printed("FAIL: gradient of dX is");
    assert_printed("0 passed, 1 failed, 0 skipped\n");
    assert_int_equal(ddl("verify '%s'", scratch_path("no-such-folder")), 1);
    assert_printed("no-such-folder");
    assert_int_equal(ddl("verify '%s' '%s' --backend cpu --dtype bf16", source_path("tests/golden/ddl-1"),
                         source_path("tests/golden/operator/d7-c3.safetensors")),
                     0);
    assert_printed("cpu  model       ops ");
    assert_printed("SKIP: only models are run in bf16");
    assert_printed("1 passed, 0 failed, 1 skipped\n");
    assert_int_equal(ddl("verify '%s' --dtype int8", broken), 2);
    assert_int_equal(ddl("verify '%s' --backend gpu9", broken), 2);
    assert_int_equal(ddl("verify '%s' --bakend ref", broken), 2);
    assert_printed("--backend");
    assert_int_equal(ddl("verify"), 2);
    assert_int_equal(ddl("verify --help"), 0);
    assert_printed("--tokenizer PATH");
}

static void ops_by_name(void **state)
{
    (void)state;
    assert_int_equal(ddl("verify --ops bias_fwd swiglu_fwd.bf16 --backend cpu"), 0);
    assert_printed("bias_fwd  ");
    assert_printed("2 passed, 0 failed, 0 skipped\n");
    assert_int_equal(ddl("verify --ops bias_fwd bias_fwd.none --backend cpu"), 2);
    assert_printed("ddl: no op's name contains 'bias_fwd.none': see the names that ddl verify --ops prints");
    assert_int_equal(ddl("verify --ops bias_fwd --backend ref"), 2);
}

static void json_output(void **state)
{
    (void)state;
    char broken[2048];
    snprintf(broken, sizeof broken, "%s", scratch_path("nan.safetensors"));
    copy_tensors(source_path("tests/golden/operator/d16-c4.safetensors"), broken,
                 (struct edit){ "dX", MAKE_NAN });
    assert_int_equal(ddl("verify '%s' --backend ref --json", broken), 1);
    json_t *all = printed_json();
    assert_int_equal(json_integer_value(json_object_get(all, "failed")), 1);
    const json_t *one = json_array_get(json_object_get(all, "cases"), 0);
    assert_string_equal(json_string_value(json_object_get(one, "outcome")), "fail");
    assert_string_equal(json_string_value(json_object_get(one, "backend")), "ref");
    assert_string_equal(json_string_value(json_object_get(one, "kind")), "operator");
    const json_t *gradient = json_object_get(json_object_get(one, "errors"), "gradient");
    assert_true(json_is_null(json_object_get(gradient, "error")));
    assert_string_equal(json_string_value(json_object_get(gradient, "tensor")), "dX");
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_case_passes),
        cmocka_unit_test(every_choice_of_recompute_passes),
        cmocka_unit_test(every_set_of_instructions_passes),
        cmocka_unit_test(every_golden_model_passes_in_bf16),
        cmocka_unit_test(every_set_of_instructions_passes_in_bf16),
        cmocka_unit_test(faults_fail_in_bf16),
        cmocka_unit_test(broken_expectations),
        cmocka_unit_test(broken_models),
        cmocka_unit_test(broken_files),
        cmocka_unit_test(names_do_not_matter),
        cmocka_unit_test(broken_curves),
        cmocka_unit_test(tokenizer_cases),
        cmocka_unit_test(tokenizer_texts),
        cmocka_unit_test(tasks_without_results_fail),
        cmocka_unit_test(unknown_kinds_are_named),
        cmocka_unit_test(changed_figures_fail),
        cmocka_unit_test(nothing_to_run),
        cmocka_unit_test(command_line),
        cmocka_unit_test(ops_by_name),
        cmocka_unit_test(json_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
