/* Paths in recipe.yaml and state.json: a run is resumed from another directory, and after it was moved
 * together with its data. */
#define _XOPEN_SOURCE 700
#include "support/runs.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/state.h"
#include "train/config/train_config.h"

#include <jansson.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[800]; /* the scratch folder */

static void go_to(const char *folder)
{
    assert_int_equal(chdir(root), 0);
    assert_int_equal(chdir(folder), 0);
}

/* A project folder, which becomes the working directory: data/, a tokenizer, and no run. */
static struct ddl_train_config a_run(const char *project)
{
    struct ddl_error err;
    char name[256];
    remove_scratch(project);
    snprintf(name, sizeof name, "%s/data", project);
    assert_ok(ddl_file_make_dir(scratch_path(name), &err), err);
    go_to(project);
    write_random_shard("data/train_0.bin", 1, 31, 3000);
    write_random_shard("data/train_1.bin", 2, 31, 3000);
    write_random_shard("data/val_0.bin", 3, 31, 3000);
    struct ddl_train_config t = tiny_run("baseline", 31, "ref", "unused");
    snprintf(t.train_data, sizeof t.train_data, "data/train_*.bin");
    snprintf(t.val_data, sizeof t.val_data, "data/val_0.bin");
    snprintf(t.out, sizeof t.out, "runs/a");
    t.warmup = 1;
    t.steps = 8;
    return t;
}

static char notes[4096];

static void keep_notes(void *user, const char *message)
{
    (void)user;
    size_t used = strlen(notes);
    snprintf(notes + used, sizeof notes - used, "%s\n", message);
}

static int stop_at_once(void *user)
{
    (void)user;
    return 1;
}

/* Trains one step; what the run notes is in `notes`. */
static void one_step(const struct ddl_train_config *t)
{
    struct ddl_error err;
    const struct ddl_train_callbacks callbacks = { .note = keep_notes, .stop = stop_at_once };
    notes[0] = '\0';
    assert_int_equal(ddl_train_run(t, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
}

static ddl_status read_recipe(struct ddl_train_config *t, const char *path, const char *flag,
                              struct ddl_error *err)
{
    char program[] = "train", copy[256], *argv[] = { program, copy, NULL };
    int n;
    snprintf(copy, sizeof copy, "%s", flag ? flag : "");
    return ddl_train_configure(t, path, flag ? 2 : 1, argv, NULL, NULL, &n, err);
}

/* Resumes from the recipe; nothing but checkpoints is noted. */
static void resumes(const char *recipe, uint64_t step)
{
    struct ddl_error err;
    struct ddl_train_config t;
    char name[64];
    assert_ok(read_recipe(&t, recipe, NULL, &err), err);
    t.resume = true;
    one_step(&t);
    if (strstr(notes, " was '"))
        fail_msg("%s", notes);
    snprintf(name, sizeof name, "checkpoint-%d", (int)step);
    assert_true(ddl_file_exists(file_in(t.out, name)));
}

static void has_line(const char *path, const char *line)
{
    char *text = read_file(path, NULL), wanted[2048];
    snprintf(wanted, sizeof wanted, "\n%s\n", line);
    if (!strstr(text, wanted))
        fail_msg("%s lacks '%s':\n%s", path, line, text);
    free(text);
}

static void another_directory(void **state)
{
    (void)state;
    char whole[1000];
    struct ddl_train_config t = a_run("project");
    one_step(&t);
    has_line("runs/a/recipe.yaml", "relative_to: recipe");
    has_line("runs/a/recipe.yaml", "train_data: \"../../data/train_*.bin\"");
    has_line("runs/a/recipe.yaml", "val_data: \"../../data/val_0.bin\"");
    has_line("runs/a/recipe.yaml", "tokenizer: \"\"");
    has_line("runs/a/recipe.yaml", "out: \".\"");
    resumes("runs/a/recipe.yaml", 2);
    go_to("project/runs/a");
    resumes("recipe.yaml", 3);
    go_to("project/data");
    resumes("../runs/a/recipe.yaml", 4);
    snprintf(whole, sizeof whole, "%s/project/runs/a/recipe.yaml", root);
    resumes(whole, 5);
    assert_int_equal(chdir("/"), 0);
    resumes(whole, 6);
    /* What is stored does not depend on the directory. */
    has_line(whole, "train_data: \"../../data/train_*.bin\"");
    /* The whole project is moved. */
    go_to(".");
    remove_scratch("moved");
    assert_int_equal(rename("project", "moved"), 0);
    resumes("moved/runs/a/recipe.yaml", 7);
    has_line("moved/runs/a/recipe.yaml", "train_data: \"../../data/train_*.bin\"");
}

/* An absolute path stays one, so that the run alone can be moved; its own folder is never stored as one. */
static void absolute_paths(void **state)
{
    (void)state;
    char line[1000];
    struct ddl_train_config t = a_run("absolute");
    snprintf(t.train_data, sizeof t.train_data, "%s/absolute/data/train_0.bin", root);
    snprintf(t.val_data, sizeof t.val_data, "auto");
    snprintf(t.out, sizeof t.out, "%s/absolute/runs/a", root);
    one_step(&t);
    snprintf(line, sizeof line, "train_data: \"%s/absolute/data/train_0.bin\"", root);
    has_line("runs/a/recipe.yaml", line);
    has_line("runs/a/recipe.yaml", "val_data: \"auto\"");
    has_line("runs/a/recipe.yaml", "out: \".\"");
    go_to(".");
    remove_scratch("elsewhere");
    assert_int_equal(rename("absolute/runs/a", "elsewhere"), 0);
    resumes("elsewhere/recipe.yaml", 2);
    has_line("elsewhere/recipe.yaml", line);
}

/* Several paths, and paths with a comma in them. */
static void lists_of_paths(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("lists");
    snprintf(t.train_data, sizeof t.train_data, "data/train_0.bin,%s/lists/data/train_1.bin", root);
    assert_int_equal(rename("data/val_0.bin", "data/a,b.bin"), 0);
    snprintf(t.val_data, sizeof t.val_data, "data/a,b.bin");
    one_step(&t);
    char line[1000];
    snprintf(line, sizeof line, "train_data: \"../../data/train_0.bin,%s/lists/data/train_1.bin\"", root);
    has_line("runs/a/recipe.yaml", line);
    has_line("runs/a/recipe.yaml", "val_data: \"../../data/a,b.bin\"");
    go_to("lists/runs");
    resumes("a/recipe.yaml", 2);
    has_line("a/recipe.yaml", line);
    has_line("a/recipe.yaml", "val_data: \"../../data/a,b.bin\"");
}

/* The same file under another name is no change; another file is. */
static void names_of_a_file(void **state)
{
    (void)state;
    struct ddl_train_config t = a_run("names");
    one_step(&t);
    t.resume = true;
    snprintf(t.train_data, sizeof t.train_data, "%s/names/runs/../data/train_*.bin", root);
    snprintf(t.val_data, sizeof t.val_data, "./runs/../data//val_0.bin");
    one_step(&t);
    assert_null(strstr(notes, " was '"));
    assert_int_equal(symlink("data", "link"), 0);
    snprintf(t.train_data, sizeof t.train_data, "link/train_*.bin");
    one_step(&t);
    assert_null(strstr(notes, " was '"));
    snprintf(t.train_data, sizeof t.train_data, "link/train_0.bin");
    one_step(&t);
    assert_non_null(strstr(
        notes,
        "train_data was 'link/train_*.bin' before the run was resumed, now it is 'link/train_0.bin'\n"));
    assert_null(strstr(notes, "val_data was"));
}

/* A value that is a word of its row, as gpt2 of a tokenizer, is no path; a path never becomes a word. */
static void words_and_paths(void **state)
{
    (void)state;
    static const struct {
        enum ddl_path_use use;
        const char *value, *mapped;
    } cases[] = { { DDL_PATHS_STORE, "gpt2", "gpt2" },
                  { DDL_PATHS_LOAD, "gpt2", "gpt2" },
                  { DDL_PATHS_STORE, "./gpt2", "../../gpt2" },
                  { DDL_PATHS_LOAD, "../../gpt2", "./gpt2" },
                  { DDL_PATHS_STORE, "runs/a/gpt2", "./gpt2" },
                  { DDL_PATHS_LOAD, "./gpt2", "runs/a/gpt2" },
                  { DDL_PATHS_LOAD, "../../gpt2.json", "gpt2.json" } };
    const struct ddl_option *row = ddl_option_find(ddl_train_options(), "tokenizer");
    remove_scratch("words");
    assert_int_equal(mkdir(scratch_path("words"), 0777), 0);
    go_to("words");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[1024];
        assert_true(ddl_train_map_paths(row, cases[i].use, "runs/a", cases[i].value, out, sizeof out));
        assert_string_equal(out, cases[i].mapped);
    }
}

/* A run of an earlier version: paths in recipe.yaml and state.json are relative to the directory of that
 * time. */
static void former_runs(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("former");
    json_t *root_object, *config;
    static const char recipe[] =
        "train_data: \"data/train_*.bin\"\nval_data: \"data/val_0.bin\"\nout: \"runs/a\"\n";
    static const char *const ours[] = { "version", "files", "crc32" };
    one_step(&t);
    /* The recipe: these three lines, and the others as they are. */
    char *text = read_file("runs/a/recipe.yaml", NULL), *all = calloc(1, strlen(text) + sizeof recipe);
    strcpy(all, recipe);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "train_data:", 11) != 0 && strncmp(line, "val_data:", 9) != 0 &&
            strncmp(line, "out:", 4) != 0 && strncmp(line, "relative_to:", 12) != 0)
            strcat(strcat(all, line), "\n");
    }
    write_file("runs/a/recipe.yaml", all, strlen(all));
    free(all);
    free(text);
    /* The state. */
    assert_ok(ddl_checkpoint_read_state("runs/a/checkpoint-1", &root_object, &err), err);
    for (size_t i = 0; i < 3; i++)
        (void)json_object_del(root_object, ours[i]);
    config = json_object_get(root_object, "config");
    assert_int_equal(json_object_del(config, "relative_to"), 0);
    assert_int_equal(json_object_set_new(config, "train_data", json_string("data/train_*.bin")), 0);
    assert_int_equal(json_object_set_new(config, "val_data", json_string("data/val_0.bin")), 0);
    assert_int_equal(json_object_set_new(config, "out", json_string("runs/a")), 0);
    assert_ok(ddl_state_write("runs/a/checkpoint-1", root_object, &err), err);
    json_decref(root_object);
    /* As before it resumes from the same directory; then it is stored in the present way. */
    resumes("runs/a/recipe.yaml", 2);
    has_line("runs/a/recipe.yaml", "train_data: \"../../data/train_*.bin\"");
    go_to("former/data");
    resumes("../runs/a/recipe.yaml", 3);
}

/* A recipe of a user: relative to the working directory, unless it says otherwise. */
static void recipes_of_users(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("user");
    static const char text[] = "tokenizer: tok\ntrain_data: data/t.bin,/x\nval_data: none\nout: runs/b\n";
    static const char marked[] = "tokenizer: tok\ntrain_data: data/t.bin,/x\nval_data: none\nout: runs/b\n"
                                 "relative-to: recipe\n";
    write_file("data/r.yaml", text, sizeof text - 1);
    assert_ok(read_recipe(&t, "data/r.yaml", NULL, &err), err);
    assert_string_equal(t.tokenizer, "tok");
    assert_string_equal(t.train_data, "data/t.bin,/x");
    assert_string_equal(t.out, "runs/b");
    write_file("data/r.yaml", marked, sizeof marked - 1);
    assert_ok(read_recipe(&t, "data/r.yaml", "--init-which=4", &err), err);
    assert_string_equal(t.tokenizer, "data/tok");
    assert_string_equal(t.train_data, "data/data/t.bin,/x");
    assert_string_equal(t.val_data, "none");
    assert_string_equal(t.out, "data/runs/b");
    /* A flag is relative to the working directory. */
    assert_ok(read_recipe(&t, "data/r.yaml", "--out=x", &err), err);
    assert_string_equal(t.out, "x");
    go_to("user/data");
    assert_ok(read_recipe(&t, "r.yaml", NULL, &err), err);
    assert_string_equal(t.tokenizer, "tok");
    static const char wrong[] = "steps: 3\nrelative_to: here\n";
    write_file("r.yaml", wrong, sizeof wrong - 1);
    assert_int_equal(read_recipe(&t, "r.yaml", NULL, &err), DDL_E_USAGE);
    assert_says(&err, "r.yaml:2: relative_to: 'here' is none of working_directory, recipe");
    /* It is a key of a file, not of a run. */
    assert_int_equal(read_recipe(&t, NULL, "--relative-to=recipe", &err), DDL_E_USAGE);
    assert_says(&err, "unknown option '--relative-to'");
}

/* A path that is too long once it is relative to the run's folder is an error before the first step. */
static void long_paths(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config t = a_run("long");
    memset(t.tokenizer, 'x', sizeof t.tokenizer - 1);
    for (size_t i = 0; i + 50 < sizeof t.tokenizer; i += 100)
        t.tokenizer[i + 50] = '/';
    struct ddl_train_config stored = t;
    assert_int_equal(ddl_train_store_paths(ddl_train_options(), &stored, "runs/a", &err), DDL_E_USAGE);
    assert_says(&err, "tokenizer: ");
}

int main(void)
{
    char whole[PATH_MAX];
    if (!realpath(scratch_path("."), whole) || strlen(whole) >= sizeof root)
        return 1;
    memcpy(root, whole, strlen(whole) + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_directory), cmocka_unit_test(absolute_paths),
        cmocka_unit_test(lists_of_paths),    cmocka_unit_test(names_of_a_file),
        cmocka_unit_test(words_and_paths),   cmocka_unit_test(former_runs),
        cmocka_unit_test(recipes_of_users),  cmocka_unit_test(long_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
