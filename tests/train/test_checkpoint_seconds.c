/* Checkpoints by time: the run ends as without them, and continues from any of them. With a tiny interval
 * there is one after the first step of each process; later ones depend on the clock. */
#define _POSIX_C_SOURCE 200809L
#include "support/runs.h"

#include "checkpoint/checkpoint.h"
#include "model/files/sums.h"
#include "train/run/resume.h"
#include "ddl/run.h"

#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

enum { V = 31, STEPS = 9, EVERY = 4 };
static const double tiny = 1e-9;

static struct ddl_train_config a_run(const char *out, double seconds)
{
    struct ddl_train_config t = tiny_run("ddl-cc-ec", V, test_backend(0), out);
    write_random_shard(scratch_path("train.bin"), 1, V, 5000);
    write_random_shard(scratch_path("val.bin"), 2, V, 700);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    t.steps = STEPS;
    t.warmup = 2;
    t.val_every = 1;
    t.val_tokens = 64;
    t.checkpoint_every = EVERY;
    t.checkpoint_seconds = seconds;
    t.keep_last = 1;
    return t;
}

/* What is in a folder during a run, seen after each step of this process. */
struct watch {
    const char *out, *copy; /* the run's folder; where it is copied to after `step`, if not NULL */
    int steps, step, by_time, notes;
};

static int watch_step(void *user)
{
    struct watch *w = user;
    struct ddl_checkpoint *list;
    struct ddl_error err;
    size_t n, by_time = 0;
    assert_ok(ddl_checkpoint_list(scratch_path(w->out), &list, &n, &err), err);
    for (size_t i = 0; i < n; i++) {
        assert_true(list[i].readable);
        by_time += list[i].by_time;
        assert_true(!list[i].by_time || i + 1 == n); /* an older one is removed at once */
        assert_true(!list[i].by_time || ddl_checkpoint_best(list, n) != i);
    }
    assert_true(by_time <= 1 && n - by_time <= 2); /* keep_last and keep_best */
    free(list);
    w->by_time += by_time != 0;
    w->steps++;
    if (w->copy && w->steps == w->step)
        copy_scratch(w->out, w->copy);
    return 0;
}

static void count_note(void *user, const char *message)
{
    struct watch *w = user;
    w->notes++;
    assert_null(strstr(message, "by time"));
    assert_null(strstr(message, " was '"));
}

static void run_watched(const struct ddl_train_config *t, struct watch *w)
{
    struct ddl_error err;
    const struct ddl_train_callbacks callbacks = { .user = w, .stop = watch_step, .note = count_note };
    assert_ok(ddl_train_run(t, &callbacks, NULL, &err), err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names in a folder, sorted, one a line. */
static void list_folder(const char *folder, char *out, size_t size)
{
    char names[64][128];
    size_t n = 0, used = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        assert_true(n < 64);
        snprintf(names[n++], sizeof *names, "%.127s", e->d_name);
    }
    closedir(dir);
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, size - used, "%s\n", names[i]);
    assert_true(used < size);
}

static void assert_same_end(const char *whole, const char *parts)
{
    char a[4096], b[4096];
    struct ddl_run_state state;
    struct ddl_error err;
    list_folder(whole, a, sizeof a);
    list_folder(parts, b, sizeof b);
    assert_string_equal(a, b);
    assert_same_metrics(whole, parts);
    assert_same_file(file_in(whole, "model.safetensors"), file_in(parts, "model.safetensors"));
    assert_same_file(file_in(whole, "config.json"), file_in(parts, "config.json"));
    assert_same_checkpoint(whole, parts, "checkpoint-9");
    assert_ok(ddl_run_read_state(file_in(parts, "checkpoint-9"), &state, &err), err);
    assert_true(!state.by_time && state.has_val);
}

static void same_model(const char *a, const char *b, const char *which)
{
    struct ddl_run_model x, y;
    struct ddl_error err;
    assert_ok(ddl_run_find(&x, a, which, true, NULL, NULL, &err), err);
    assert_ok(ddl_run_find(&y, b, which, true, NULL, NULL, &err), err);
    assert_string_equal(x.name, y.name);
}

static void ends_as_without(void **state)
{
    (void)state;
    struct watch none = { .out = "without" }, some = { .out = "with" };
    const struct ddl_train_config without = a_run("without", 0), with = a_run("with", tiny);
    run_watched(&without, &none);
    run_watched(&with, &some);
    assert_int_equal(none.by_time, 0);
    assert_true(some.by_time > 0);
    assert_int_equal(some.notes, none.notes);
    assert_same_end(without.out, with.out);
    same_model(without.out, with.out, "last");
    same_model(without.out, with.out, "best");
}

/* What a killed run leaves is a copy of its folder. Each life is left two steps after it began, where the
 * checkpoint by time is the newest, or a later one. */
static void continues_from_any(void **state)
{
    (void)state;
    struct ddl_run_model found;
    struct ddl_error err;
    const struct ddl_train_config whole = a_run("whole", 0);
    assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
    struct ddl_train_config t = a_run("life-0", tiny);
    struct watch w = { .out = "life-0", .copy = "life-1", .step = 2 };
    run_watched(&t, &w);
    /* Nothing but a checkpoint by time: it is the last model, never the best. */
    assert_ok(ddl_run_find(&found, scratch_path("life-1"), "last", true, NULL, NULL, &err), err);
    assert_string_equal(found.name, "checkpoint-1");
    assert_int_equal(ddl_run_find(&found, scratch_path("life-1"), "best", true, NULL, NULL, &err), DDL_E_IO);
    for (int life = 1; life < 5; life++) {
        char out[32], copy[16];
        snprintf(out, sizeof out, "life-%d", life);
        snprintf(copy, sizeof copy, "life-%d", life + 1);
        snprintf(t.out, sizeof t.out, "%s", scratch_path(out));
        t.resume = true;
        w = (struct watch){ .out = out, .copy = copy, .step = 2 };
        run_watched(&t, &w);
        assert_true(w.steps <= STEPS - 1 - life);
        assert_same_end(whole.out, t.out);
    }
}

/* While a run goes on, `last` and `best` are what they are without checkpoints by time; a step selects one.
 */
static int look_at_step_6(void *user)
{
    int *steps = user;
    struct ddl_run_model found;
    struct ddl_error err;
    if (++*steps != 2)
        return 0;
    assert_ok(ddl_run_find(&found, scratch_path("selected"), "last", true, NULL, NULL, &err), err);
    assert_string_equal(found.name, "checkpoint-4");
    assert_ok(ddl_run_find(&found, scratch_path("selected"), "best", true, NULL, NULL, &err), err);
    assert_string_equal(found.name, "checkpoint-4");
    assert_ok(ddl_run_find(&found, scratch_path("selected"), "5", true, NULL, NULL, &err), err);
    assert_string_equal(found.name, "checkpoint-5");
    return 1;
}

static void is_not_selected(void **state)
{
    (void)state;
    struct ddl_error err;
    int steps = 0;
    struct ddl_train_config t = a_run("selected", 0);
    const struct ddl_train_callbacks callbacks = { .user = &steps, .stop = look_at_step_6 };
    assert_int_equal(run_until(&t, EVERY, NULL, &err), DDL_E_INTERRUPTED);
    t.resume = true;
    t.checkpoint_seconds = tiny;
    assert_int_equal(ddl_train_run(&t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
    assert_says(&err, "stopped after step 6");
    assert_false(ddl_file_exists(scratch_path("selected/checkpoint-5")));
    assert_true(ddl_file_exists(scratch_path("selected/checkpoint-6")));
}

static void every_0_is_on_signals_only(void **state)
{
    (void)state;
    struct watch w = { .out = "signals" };
    struct ddl_train_config t = a_run("signals", tiny);
    t.checkpoint_every = 0;
    run_watched(&t, &w);
    assert_int_equal(w.by_time, 0);
    assert_false(ddl_file_exists(scratch_path("signals/checkpoint-9")));
}

/* A run that is resumed for no step but the one of its checkpoint by time keeps it, and one that is resumed
 * with checkpoint_every 0 ends without it. */
static void resumed_with_other_keys(void **state)
{
    (void)state;
    struct ddl_run_state reached;
    struct ddl_error err;
    struct ddl_train_config t = a_run("start", tiny);
    struct watch w = { .out = "start", .copy = "no-step", .step = 2 };
    run_watched(&t, &w);
    copy_scratch("no-step", "none");
    t.resume = true;
    snprintf(t.out, sizeof t.out, "%s", scratch_path("no-step"));
    t.steps = t.warmup = 1;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_ok(ddl_run_read_state(file_in(t.out, "checkpoint-1"), &reached, &err), err);
    assert_false(reached.by_time);
    snprintf(t.out, sizeof t.out, "%s", scratch_path("none"));
    t.steps = STEPS;
    t.warmup = 2;
    t.checkpoint_every = 0;
    assert_true(ddl_file_exists(file_in(t.out, "checkpoint-1")));
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_false(ddl_file_exists(file_in(t.out, "checkpoint-1")));
    assert_true(ddl_file_exists(file_in(t.out, "model.safetensors")));
}

/* ---- a failure ---- */

struct small_disk {
    struct rlimit whole;
    int steps, failures;
};

/* During the second step no file may be larger than 16 KiB: the model's is, metrics.jsonl is not. */
static int limit_file_size(void *user)
{
    struct small_disk *disk = user;
    struct rlimit limit = disk->whole;
    limit.rlim_cur = ++disk->steps == 1 ? 16384 : disk->whole.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return 0;
}

static void count_failure(void *user, const char *message)
{
    struct small_disk *disk = user;
    disk->failures += strncmp(message, "step 1: no checkpoint by time: ", 31) == 0;
}

/* One that cannot be written is reported, and leaves nothing behind. */
static void goes_on_without(void **state)
{
    (void)state;
    struct ddl_error err;
    struct small_disk disk = { 0 };
    const struct ddl_train_callbacks callbacks = { .user = &disk,
                                                   .stop = limit_file_size,
                                                   .note = count_failure };
    const struct ddl_train_config whole = a_run("whole", 0), t = a_run("limited", tiny);
    assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &disk.whole), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(ddl_train_run(&t, &callbacks, NULL, &err), err);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(disk.failures, 1);
    assert_same_end(whole.out, t.out);
}

/* ---- earlier versions ---- */

/* A run of a version without the key goes on with its default, without a message about it. */
static void earlier_version(void **state)
{
    (void)state;
    json_t *root;
    struct ddl_error err;
    struct ddl_train_config t = a_run("earlier", 0);
    assert_true(ddl_train_defaults().checkpoint_seconds == 60);
    assert_int_equal(run_until(&t, 3, NULL, &err), DDL_E_INTERRUPTED);
    const char *folder = file_in(t.out, "checkpoint-3");
    assert_ok(ddl_checkpoint_read_state(folder, &root, &err), err);
    assert_int_equal(json_object_del(json_object_get(root, "config"), "checkpoint_seconds"), 0);
    json_object_del(root, "crc32");
    char *text = ddl_sums_seal(root);
    assert_non_null(text);
    write_file(file_in(folder, "state.json"), text, strlen(text));
    free(text);
    json_decref(root);
    struct watch w = { .out = "earlier" };
    t.resume = true;
    t.checkpoint_seconds = 60;
    run_watched(&t, &w);
    assert_true(ddl_file_exists(file_in(t.out, "checkpoint-9")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_as_without),         cmocka_unit_test(continues_from_any),
        cmocka_unit_test(is_not_selected),         cmocka_unit_test(every_0_is_on_signals_only),
        cmocka_unit_test(resumed_with_other_keys), cmocka_unit_test(goes_on_without),
        cmocka_unit_test(earlier_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
