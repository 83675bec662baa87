#define _POSIX_C_SOURCE 200809L
#include "oom/sweep.h"

#include "oom/allocator.h"
#include "support/runs.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

/* Requests that are all tried, before others are sampled. */
static long all_of(void)
{
#ifdef DDL_SANITIZED
    return 150; /* slower; the paths are those of the optimized build */
#else
    return test_sample() ? 30 : 400;
#endif
}

enum { MOST_FILES = 128, MOST_COMPLAINTS = 3, PATH = 4096 };

uint64_t digest_add(uint64_t digest, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint64_t h = digest ? digest : 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        h = (h ^ bytes[i]) * 0x100000001b3u;
    return h;
}

/* ---- a folder's files ---- */

struct listing {
    size_t n;
    struct {
        char name[256]; /* below the folder */
        uint64_t digest;
    } files[MOST_FILES];
};

/* metrics.jsonl and checkpoints contain times, and samples that fail are left out of samples.jsonl: both
 * files must have whole lines, checkpoints pass the sweep's own check. */
static uint64_t digest_of(const char *path)
{
    size_t size;
    char *data = read_file(path, &size);
    uint64_t digest = digest_add(0, data, size);
    if (strstr(path, ".jsonl"))
        digest = size == 0 || data[size - 1] == '\n';
    if (strstr(path, "/checkpoint-"))
        digest = 1;
    free(data);
    return digest;
}

static void list(struct listing *out, const char *folder, const char *below)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s%s", folder, below);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char name[PATH];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof name, "%s/%s", below, entry->d_name);
        snprintf(path, sizeof path, "%s%s", folder, name);
        if (ddl_file_is_dir(path)) {
            list(out, folder, name);
            continue;
        }
        assert_true(out->n < MOST_FILES && strlen(name) < sizeof out->files[0].name);
        strcpy(out->files[out->n].name, name);
        out->files[out->n++].digest = digest_of(path);
    }
    if (dir)
        closedir(dir);
}

static bool holds(const struct listing *l, const char *name, uint64_t digest, bool rounded)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->files[i].name, name) == 0 && (rounded || l->files[i].digest == digest))
            return true;
    }
    return false;
}

static void empty(const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[PATH];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (ddl_file_is_dir(path))
            empty(path);
        assert_int_equal(remove(path), 0);
    }
    if (dir)
        closedir(dir);
}

static void fill(const char *folder, const char *source)
{
    DIR *dir = opendir(source);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char from[PATH], to[PATH];
        size_t size;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(from, sizeof from, "%s/%s", source, entry->d_name);
        snprintf(to, sizeof to, "%s/%s", folder, entry->d_name);
        if (ddl_file_is_dir(from)) {
            assert_int_equal(mkdir(to, 0777), 0);
            fill(to, from);
            continue;
        }
        char *data = read_file(from, &size);
        write_file(to, data, size);
        free(data);
    }
    closedir(dir);
}

static void prepare(const struct sweep *s)
{
    if (s->folder) {
        assert_true(mkdir(s->folder, 0777) == 0 || errno == EEXIST);
        empty(s->folder);
    }
    if (s->source)
        fill(s->folder, s->source);
}

/* ---- one run ---- */

struct expected {
    uint64_t digest;
    double figure;
    long requests;
    struct listing before, after;
};

struct tally {
    long runs, reported, absorbed, rounded, complaints;
};

static void complain(struct tally *t, const struct sweep *s, long n, bool persistent, const char *what,
                     const char *detail)
{
    if (++t->complaints > MOST_COMPLAINTS)
        return;
    print_error("%s: request %ld%s: %s: %s\n", s->name, n, persistent ? " and all after" : "", what, detail);
    faults_explain();
}

static void try_one(const struct sweep *s, const struct expected *e, long n, bool persistent, struct tally *t)
{
    struct ddl_error err = { 0 };
    uint64_t digest = 0;
    prepare(s);
    faults_arm(n, persistent);
    ddl_status status = s->run(s->user, &digest, &err);
    faults_disarm();
    bool fired = faults_fired();
    t->runs++;
    t->reported += status != DDL_OK;
    t->absorbed += fired && !status;
    if (status != DDL_OK && (!fired || status != DDL_E_MEMORY || strlen(err.text) < 8))
        complain(t, s, n, persistent, ddl_status_name(status), err.text);
    bool rounded = status == DDL_OK && s->figure && faults_onednn() &&
                   fabs(*s->figure - e->figure) <= 1e-5 * fabs(e->figure);
    t->rounded += rounded;
    if (status == DDL_OK && digest != e->digest && !rounded)
        complain(t, s, n, persistent, "no error", "another result");
    if (strchr(err.text, '\n'))
        complain(t, s, n, persistent, "more than one line", err.text);
    if (faults_alive() > 0)
        complain(t, s, n, persistent, "blocks not given back", err.text);
    if (s->check)
        s->check(s->user);
    if (!s->folder)
        return;
    static struct listing left;
    left.n = 0;
    list(&left, s->folder, "");
    for (size_t i = 0; i < left.n; i++) {
        if (!holds(&e->before, left.files[i].name, left.files[i].digest, rounded) &&
            !holds(&e->after, left.files[i].name, left.files[i].digest, rounded))
            complain(t, s, n, persistent, "left behind", left.files[i].name);
    }
    if (status == DDL_OK && left.n < e->after.n)
        complain(t, s, n, persistent, "no error", "files are missing");
}

/* Runs until what libraries keep for good is there, and takes the measure of the work. */
static void measure(const struct sweep *s, struct expected *e)
{
    enum { WARM = 4 };
    struct ddl_error err = { 0 };
    for (int i = 0; i <= WARM; i++) {
        prepare(s);
        e->before.n = e->after.n = 0;
        if (s->folder)
            list(&e->before, s->folder, "");
        faults_arm(FAULT_NEVER, false);
        e->digest = 0;
        ddl_status status = s->run(s->user, &e->digest, &err);
        faults_disarm();
        e->requests = faults_requests();
        assert_ok(status, err);
        e->figure = s->figure ? *s->figure : 0;
        if (s->folder)
            list(&e->after, s->folder, "");
    }
    if (faults_alive() > 0) {
        faults_explain();
        fail_msg("%s: %zu blocks not given back by a run without a fault", s->name, faults_alive());
    }
}

/* DDL_FAULTS=N: request N alone is tried, if there are as many. */
static bool is_one_chosen(void)
{
    const char *number = getenv("DDL_FAULTS");
    return number && strcmp(number, "all") != 0;
}

static bool chosen(const struct sweep *s, const struct expected *e, long n)
{
    const char *all = getenv("DDL_FAULTS");
    long sampled = test_sample() ? 10 : s->sampled ? s->sampled : test_sample_sanitized() ? 40 : 80;
    long after = s->first + (s->all && s->all < all_of() ? s->all : all_of());
    long stride = n < s->first ? (test_sample() ? 150 : 50) : n < after ? 1 : (e->requests - after) / sampled;
    if (is_one_chosen())
        return n == strtol(all, NULL, 10);
    return all || stride <= 1 || n % stride == 0;
}

void sweep(const struct sweep *s)
{
    static struct expected e;
    e = (struct expected){ 0 };
    measure(s, &e);
    for (int persistent = 0; persistent < 2; persistent++) {
        struct tally t = { 0 };
        for (long n = 0; n < e.requests && t.complaints < 4 * MOST_COMPLAINTS; n++) {
            if (chosen(s, &e, n))
                try_one(s, &e, n, persistent, &t);
        }
        print_message("%s: %ld requests, %ld tried%s: %ld reported, %ld done without (%ld rounded)\n",
                      s->name, e.requests, t.runs, persistent ? " with all after" : "", t.reported,
                      t.absorbed, t.rounded);
        if (t.complaints)
            fail_msg("%s: %ld complaints", s->name, t.complaints);
        if (t.reported == 0 && !is_one_chosen())
            fail_msg("%s: no error in %ld runs", s->name, t.runs);
    }
}

long make_tokenizer(void)
{
    struct ddl_error err;
    const char *folder = scratch_path("tokenizer");
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    assert_ok(ddl_file_make_dir(folder, &err), err);
    assert_ok(ddl_tokenizer_save(tokenizer, folder, &err), err);
    ddl_tokenizer_free(tokenizer);
    faults_arm(FAULT_NEVER, false);
    assert_ok(ddl_tokenizer_load(&tokenizer, folder, &err), err);
    long requests = faults_requests();
    faults_disarm();
    ddl_tokenizer_free(tokenizer);
    return requests;
}
