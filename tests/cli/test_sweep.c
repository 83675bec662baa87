/* ddl sweep: micro models trained by real processes; stopped, killed, failing, and started again. */
#define _POSIX_C_SOURCE 200809L
#include "support/program.h"
#include "support/pty.h"
#include "support/runs.h"

#include "base/lock.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Writes NAME.yaml in the scratch folder, whose runs are in the scratch folder NAME, which is removed.
 * Returns its path. `steps` of a few tokens. */
static const char *write_sweep(const char *name, int steps, const char *text)
{
    static char path[1024];
    char content[8192], shard[1024];
    snprintf(shard, sizeof shard, "%s", scratch_path("s.bin"));
    write_random_shard(shard, 1, 260, 3000);
    remove_scratch(name);
    snprintf(path, sizeof path, "%s/%s.yaml", scratch_path("."), name);
    snprintf(
        content, sizeof content,
        "base: {vocab_size: 300, num_hidden_layers: 1, num_attention_heads: 1, hidden_size: 8, head_dim: 8, "
        "block_size: 16, batch: 2, warmup: 1, steps: %d, backend: ref, train_data: %s, val_data: %s, "
        "val_every: 100, val_tokens: 32, checkpoint_every: 0, log_every: 1}\nout: %s\n%s",
        steps, shard, shard, scratch_path(name), text);
    write_file(path, content, strlen(content));
    return path;
}

static void pause_briefly(void)
{
    const struct timespec pause = { 0, 10000000 };
    nanosleep(&pause, NULL);
}

static void wait_until_free(const char *folder)
{
    for (int i = 0; i < 60000 && ddl_lock_is_held(folder); i++)
        pause_briefly();
    assert_false(ddl_lock_is_held(folder));
}

/* ---- a sweep with a run in progress ---- */

/* A sweep in the background, and the process of a run of it. */
struct paused {
    pid_t sweep, run;
};

/* The line of a file that begins so, into out[size]; false if there is none. */
static bool find_line(const char *path, const char *key, char *out, size_t size)
{
    bool found = false;
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(out, (int)size, file))
        found = strncmp(out, key, strlen(key)) == 0;
    if (file)
        fclose(file);
    return found;
}

/* Whether each thread of the process is stopped: one that is only about to stop may still take a signal. */
static bool is_paused(pid_t pid)
{
    char folder[64], path[512], line[256];
    int stopped = 0, others = 0;
    snprintf(folder, sizeof folder, "/proc/%ld/task", (long)pid);
    DIR *tasks = opendir(folder);
    if (!tasks)
        return false;
    for (const struct dirent *task; (task = readdir(tasks));) {
        snprintf(path, sizeof path, "%s/%s/status", folder, task->d_name);
        if (task->d_name[0] == '.' || !find_line(path, "State:", line, sizeof line))
            continue;
        if (strstr(line, "\tT"))
            stopped++;
        else
            others++;
    }
    closedir(tasks);
    return stopped > 0 && others == 0;
}

static bool has_pending_term(pid_t pid)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    return find_line(path, "ShdPnd:", line, sizeof line) && strtoull(line + 7, NULL, 16) >> (SIGTERM - 1) & 1;
}

/* The process that holds the lock of a folder, or 0. */
static pid_t holder_of(const char *folder)
{
    const char *path = file_in(folder, ".lock");
    long pid = 0;
    char *text = access(path, R_OK) == 0 ? read_file(path, NULL) : NULL;
    if (!text || sscanf(text, "process %ld ", &pid) != 1)
        pid = 0;
    free(text);
    return (pid_t)pid;
}

/* Starts "ddl sweep FILE <flags>" in the background; the run in the folder `run` is stopped (SIGSTOP) in the
 * middle of its work, however fast the machine is. */
static struct paused start_paused(const char *file, const char *run, const char *flags)
{
    char command[4096];
    const char *library = getenv("DDL_SHIM");
    struct paused p = { 0 };
    assert_non_null(library);
    snprintf(command, sizeof command,
             "cd '%s' && exec env ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD='%s' DDL_SHIM_UNDER='%s/' "
             "DDL_SHIM_ACT=pause DDL_SHIM_AT=300 '%s' sweep %s %s >'%s' 2>&1",
             source_path("."), library, run, ddl_program(), file, flags, scratch_path("background.txt"));
    p.sweep = fork();
    assert_true(p.sweep >= 0);
    if (p.sweep == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 60000 && (p.run == 0 || !is_paused(p.run)); i++) {
        pause_briefly();
        p.run = holder_of(run);
    }
    assert_true(is_paused(p.run));
    return p;
}

/* Sends the sweep a signal that makes it, or its end, stop the run; then lets the run go on. Returns the exit
 * status of the sweep. */
static int signal_sweep(const struct paused *p, int number)
{
    int status;
    assert_int_equal(kill(p->sweep, number), 0);
    /* Where the sweep is killed, the kernel lets the run go on: its process group is orphaned. */
    for (int i = 0; i < 60000 && is_paused(p->run) && !has_pending_term(p->run); i++)
        pause_briefly();
    assert_true(!is_paused(p->run) || has_pending_term(p->run));
    assert_true(kill(p->run, SIGCONT) == 0 || number == SIGKILL);
    assert_int_equal(waitpid(p->sweep, &status, 0), p->sweep);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The states of the runs by ddl sweep --status. */
static size_t count(const char *file, const char *state)
{
    json_t *root = ddl_json("sweep %s --status --json", file);
    size_t n = (size_t)json_integer_value(json_object_get(root, state));
    json_decref(root);
    return n;
}

static const char two_by_two[] = "models: [baseline, ddl-1]\nseeds: [0, 1]\n";

/* Two at a time; a second start trains nothing; the folders are what ddl compare reads; equal to ddl train.
 */
static void two_models_two_seeds(void **state)
{
    (void)state;
    char file[1024], out[1024], alone[1024];
    snprintf(file, sizeof file, "%s", write_sweep("plain", 6, two_by_two));
    snprintf(out, sizeof out, "%s", scratch_path("plain"));
    assert_int_equal(ddl("sweep %s --jobs 2", file), 0);
    assert_printed("baseline_seed=0: started\n");
    assert_printed("ddl-1_seed=1: finished, loss ");
    assert_printed("finished        6        6 ");
    assert_int_equal(count(file, "finished"), 4);
    char *recipe = read_file(scratch_path("plain/ddl-1_seed=1/recipe.yaml"), NULL);
    assert_null(strstr(recipe, "\nthreads: 0\n")); /* a share of the processors */
    free(recipe);
    assert_int_equal(ddl("sweep %s", file), 0);
    assert_null(strstr(printed, "started"));
    json_t *root = ddl_json("sweep %s --json --quiet", file);
    assert_int_equal(json_array_size(json_object_get(root, "runs")), 4);
    json_decref(root);
    assert_int_equal(ddl("compare %s --markdown", out), 0);
    assert_printed("\ngroup baseline: baseline_seed=0, baseline_seed=1\n"
                   "group ddl-1: ddl-1_seed=0, ddl-1_seed=1\n");
    snprintf(alone, sizeof alone, "%s", scratch_path("alone"));
    assert_int_equal(ddl("train %s/ddl-1_seed=1/recipe.yaml --out %s --overwrite", out, alone), 0);
    assert_same_file(file_in(alone, "model.safetensors"),
                     file_in(scratch_path("plain/ddl-1_seed=1"), "model.safetensors"));
}

/* The recipe and the metrics of a finished run, as an archive keeps them, are one; with the log of a process
 * that lost its model, or with metrics that end early, they are not. */
static void archived_run(void **state)
{
    (void)state;
    static const char run[] = "archived/baseline_seed=0";
    char file[1024], folder[1024];
    snprintf(file, sizeof file, "%s", write_sweep("archived", 6, two_by_two));
    snprintf(folder, sizeof folder, "%s", scratch_path(run));
    assert_int_equal(ddl("sweep %s --jobs 2", file), 0);
    char *recipe = read_file(file_in(folder, "recipe.yaml"), NULL);
    char *metrics = read_file(file_in(folder, "metrics.jsonl"), NULL);
    remove_scratch(run);
    assert_int_equal(mkdir(folder, 0777), 0);
    write_file(file_in(folder, "recipe.yaml"), recipe, strlen(recipe));
    write_file(file_in(folder, "metrics.jsonl"), metrics, strlen(metrics));
    assert_int_equal(count(file, "finished"), 4);
    assert_int_equal(ddl("sweep %s", file), 0);
    assert_null(strstr(printed, "started"));
    assert_int_equal(ddl("compare %s", scratch_path("archived")), 0);
    write_file(file_in(folder, "log.txt"), "", 0);
    assert_int_equal(count(file, "finished"), 3);
    assert_int_equal(unlink(file_in(folder, "log.txt")), 0);
    *strstr(metrics, "{\"step\":6,") = '\0';
    write_file(file_in(folder, "metrics.jsonl"), metrics, strlen(metrics));
    assert_int_equal(count(file, "stopped"), 1);
    free(recipe);
    free(metrics);
}

/* SIGTERM: exit status 3 with a checkpoint; the same command continues, with the bits of a run that was not
 * stopped. */
static void stopped_and_continued(void **state)
{
    (void)state;
    char file[1024], run[1024];
    static const char text[] = "models: [baseline]\nseeds: [0, 1]\n";
    snprintf(file, sizeof file, "%s", write_sweep("whole", 1000, text));
    assert_int_equal(ddl("sweep %s --quiet --threads 1", file), 0);
    snprintf(file, sizeof file, "%s", write_sweep("stopped", 1000, text));
    snprintf(run, sizeof run, "%s", scratch_path("stopped/baseline_seed=0"));
    const struct paused paused = start_paused(file, run, "--threads 1");
    assert_int_equal(signal_sweep(&paused, SIGTERM), 3);
    assert_int_equal(count(file, "stopped"), 1);
    assert_int_equal(count(file, "waiting"), 1);
    assert_int_equal(ddl("sweep %s --threads 1", file), 0);
    assert_printed("baseline_seed=0: started, continues after step ");
    assert_same_file(scratch_path("stopped/baseline_seed=0/model.safetensors"),
                     scratch_path("whole/baseline_seed=0/model.safetensors"));
    assert_int_equal(count(file, "finished"), 2);
}

/* A run that the sweep's signal ends before it catches signals has not failed. */
static void stopped_at_any_time(void **state)
{
    (void)state;
    char file[1024], command[4096];
    snprintf(file, sizeof file, "%s", write_sweep("early", 100000, "seeds: [0, 1]\n"));
    for (int hundredths = 3; hundredths <= 36; hundredths += 3) {
        snprintf(command, sizeof command,
                 "cd '%s' && timeout -s INT 0.%02d '%s' sweep %s --jobs 2 >/dev/null 2>&1", source_path("."),
                 hundredths, ddl_program(), file);
        assert_int_equal(WEXITSTATUS(system(command)), 124);
        assert_int_equal(count(file, "failed"), 0);
    }
}

/* A killed sweep takes its runs along, and leaves nothing that the next one stumbles over. While it runs, no
 * other may. */
static void killed_sweep(void **state)
{
    (void)state;
    char file[1024], out[1024], run[1024];
    snprintf(file, sizeof file, "%s", write_sweep("killed", 1000, "seeds: [0]\n"));
    snprintf(out, sizeof out, "%s", scratch_path("killed"));
    snprintf(run, sizeof run, "%s", scratch_path("killed/run_seed=0"));
    const struct paused paused = start_paused(file, run, "--quiet");
    assert_int_equal(ddl("sweep %s", file), 1);
    assert_printed("killed: in use by process ");
    assert_int_equal(count(file, "running"), 1);
    assert_int_equal(signal_sweep(&paused, SIGKILL), 128 + SIGKILL);
    assert_int_equal(ddl("sweep %s", file), 0); /* waits until the run has stopped */
    assert_printed("run_seed=0: started, continues after step ");
    assert_int_equal(count(file, "finished"), 1);
    wait_until_free(out);
}

/* A run whose process is killed is recorded, the others go on; --retry continues it. */
static void killed_run(void **state)
{
    (void)state;
    char file[1024], run[1024];
    int status;
    snprintf(file, sizeof file, "%s", write_sweep("victim", 1000, "seeds: [0, 1]\n"));
    snprintf(run, sizeof run, "%s", scratch_path("victim/run_seed=0"));
    const struct paused paused = start_paused(file, run, "--quiet");
    assert_int_equal(kill(paused.run, SIGKILL), 0);
    assert_int_equal(waitpid(paused.sweep, &status, 0), paused.sweep);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_int_equal(count(file, "failed"), 1);
    assert_int_equal(count(file, "finished"), 1);
    assert_int_equal(ddl("sweep %s", file), 1);
    assert_printed("run_seed=0: ended by signal 9\n");
    assert_printed("1 of 2 runs failed: see log.txt in their folders; --retry starts them again");
    assert_null(strstr(printed, "started\n"));
    assert_int_equal(ddl("sweep %s --retry", file), 0);
    assert_printed("run_seed=0: finished");
}

/* A sweep's folder from a stranger may have a link in place of a run's folder. */
static void linked_run(void **state)
{
    (void)state;
    char file[1024], victim[1024];
    struct ddl_error err;
    snprintf(file, sizeof file, "%s", write_sweep("linked", 2, "models: [{name: a}, {name: b}]\n"));
    snprintf(victim, sizeof victim, "%s", scratch_path("victim"));
    remove_scratch("victim");
    assert_ok(ddl_file_make_dir(victim, &err), err);
    assert_ok(ddl_file_make_dir(scratch_path("linked"), &err), err);
    assert_int_equal(symlink(victim, scratch_path("linked/a")), 0);
    assert_int_equal(ddl("sweep %s", file), 1);
    assert_printed("a: is a symbolic link: expected a folder");
    assert_int_equal(count(file, "finished"), 1);
    assert_int_equal(rmdir(victim), 0); /* it is still empty */
}

/* A run that diverges: its message is the program's, the others go on. */
static void failing_run(void **state)
{
    (void)state;
    char file[1024];
    snprintf(
        file, sizeof file, "%s",
        write_sweep("failing", 20,
                    "models: [{name: a}, {name: bad, lr: 1000, weight_decay: 10, warmup: 0}, {name: c}]\n"));
    assert_int_equal(ddl("sweep %s", file), 1);
    assert_printed("bad: failed: step ");
    assert_printed("is not finite: first in ");
    assert_printed("1 of 3 runs failed: see log.txt in their folders; --retry starts them again");
    assert_int_equal(count(file, "finished"), 2);
    char *record = read_file(scratch_path("failing/sweep.json"), NULL);
    assert_non_null(strstr(record, "\"exit_status\":1,\"message\":\"step "));
    free(record);
    assert_int_equal(ddl("sweep %s", file), 1); /* it is not started again */
    assert_null(strstr(printed, "started\n"));
    assert_int_equal(ddl("sweep %s --retry", file), 1); /* the same values diverge again */
    assert_printed("bad: started, continues after step ");
}

/* Another value in the file than in the folder of a run: the key is named, nothing runs. */
static void changed_file(void **state)
{
    (void)state;
    char file[1024], folder[1024];
    snprintf(file, sizeof file, "%s", write_sweep("changed", 6, "models: [{name: a, lr: 1e-3}]\n"));
    assert_int_equal(ddl("sweep %s --quiet", file), 0);
    snprintf(folder, sizeof folder, "%s", scratch_path("changed"));
    char *text = read_file(file, NULL), *at = strstr(text, "lr: 1e-3");
    at[strlen("lr: ")] = '2';
    write_file(file, text, strlen(text));
    free(text);
    assert_int_equal(ddl("sweep %s", file), 1);
    assert_printed("changed/a: the run there is not the one that ");
    assert_printed(" plans: lr: expected 0.002, found 0.001; remove the folder or choose another out");
    assert_int_equal(ddl("sweep %s --status", file), 1);
}

/* Of three values two are far too small: the third is taken, and used. */
static void choice(void **state)
{
    (void)state;
    char file[1024];
    snprintf(file, sizeof file, "%s",
             write_sweep("choice", 8,
                         "models: [baseline, {name: fixed, lr: 3e-3}]\nseeds: [0, 1]\n"
                         "choose: {key: lr, values: [1e-9, 1e-2, 1e-8], steps: 20, set: {val_every: 10}}\n"));
    assert_int_equal(ddl("sweep %s --dry-run", file), 0);
    assert_printed("baseline: lr not chosen yet: 1e-9 -, 1e-2 -, 1e-8 -\n");
    assert_printed("\n7 runs, 1 at a time: ");
    assert_int_equal(access(scratch_path("choice"), F_OK), -1);
    assert_int_equal(ddl("sweep %s --jobs 2", file), 0);
    assert_printed("baseline: lr 1e-2 chosen by val_loss: 1e-9 ");
    assert_printed("at the edge of the values: a better one may be outside"); /* the largest */
    char *recipe = read_file(scratch_path("choice/baseline_seed=1/recipe.yaml"), NULL);
    assert_non_null(strstr(recipe, "\nlr: 0.01\n"));
    free(recipe);
    recipe = read_file(scratch_path("choice/fixed_seed=0/recipe.yaml"), NULL);
    assert_non_null(strstr(recipe, "\nlr: 0.003\n"));
    free(recipe);
    /* Its losses, and that the lowest is the chosen one. */
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "sweep %s --status --json", file), 0);
    json_t *root = printed_json(), *made = json_array_get(json_object_get(root, "choices"), 0);
    assert_string_equal(json_string_value(json_object_get(made, "chosen")), "1e-2");
    assert_true(json_is_true(json_object_get(made, "at_edge")));
    double losses[3];
    for (size_t i = 0; i < 3; i++)
        losses[i] =
            json_number_value(json_object_get(json_array_get(json_object_get(made, "values"), i), "loss"));
    assert_true(losses[1] < losses[0] && losses[1] < losses[2]);
    json_decref(root);
    /* Candidates are not compared. */
    assert_int_equal(ddl("compare %s --csv", scratch_path("choice")), 0);
    assert_null(strstr(printed, "1e-9"));
    assert_printed("fixed_seed=1");
    /* With a further value the choice is open again, and the losses known so far are printed. */
    char *text = read_file(file, NULL), more[2048], expected[128];
    const char *values = strstr(text, ", 1e-8]");
    assert_non_null(values);
    snprintf(more, sizeof more, "%.*s, 1e-8, 1e-7]%s", (int)(values - text), text,
             values + strlen(", 1e-8]"));
    write_file(file, more, strlen(more));
    free(text);
    assert_int_equal(ddl("sweep %s --status", file), 0);
    snprintf(expected, sizeof expected,
             "baseline: lr not chosen yet: 1e-9 %.4f, 1e-2 %.4f, 1e-8 %.4f, 1e-7 -\n", losses[0], losses[1],
             losses[2]);
    assert_printed(expected);
}

/* "sweep FILE <flags>" with a fault at a call on files below `folder` by any of the processes:
 * "DDL_SHIM_ACT=kill DDL_SHIM_AT=3", see crash/shim.c. Both streams in `printed`. */
static int sweep_with_fault(const char *file, const char *folder, const char *settings, const char *flags)
{
    char command[4096];
    const char *library = getenv("DDL_SHIM");
    assert_non_null(library);
    snprintf(command, sizeof command,
             "cd '%s' && ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD='%s' DDL_SHIM_UNDER='%s' %s '%s' "
             "sweep %s %s 2>&1",
             source_path("."), library, folder, settings, ddl_program(), file, flags);
    return run_command(command, printed, sizeof printed);
}

static json_t *states(const char *file)
{
    return ddl_json("sweep %s --status --json", file);
}

/* What --status --json has for a run of this name. */
static json_t *state_of(const json_t *root, const char *name)
{
    const json_t *runs = json_object_get(root, "runs");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_t *run = json_array_get(runs, i);
        if (strcmp(json_string_value(json_object_get(run, "name")), name) == 0)
            return run;
    }
    fail_msg("no run %s", name);
    return NULL;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Rates that are too small are continued upwards; a sweep that is killed goes on with the same values. */
static void extended_choice(void **state)
{
    (void)state;
    char file[1024], folder[1024];
    snprintf(file, sizeof file, "%s",
             write_sweep("extended", 8,
                         "models: [baseline]\nseeds: [0, 1]\n"
                         "choose: {key: lr, values: [1e-4, 1e-3], steps: 20, extend: 2}\n"));
    assert_int_equal(ddl("sweep %s --dry-run", file), 0);
    assert_printed("\nup to 2 further runs where the lowest loss is at an edge of the values\n");
    snprintf(folder, sizeof folder, "%s", scratch_path("extended/choose/baseline_lr=0.01"));
    assert_int_equal(sweep_with_fault(file, folder, "DDL_SHIM_ACT=kill DDL_SHIM_AT=30", ""), 1);
    assert_printed("baseline: lr 1e-3 is at the edge of the values: 0.01 is tried, too\n");
    assert_printed("no lr is chosen before choose/baseline_lr=0.01 has finished");
    assert_int_equal(ddl("sweep %s --dry-run", file), 0);
    assert_printed("\nup to 1 further run where");
    assert_int_equal(ddl("sweep %s --retry --jobs 2", file), 0);
    assert_null(strstr(printed, "lr=1e-3: started"));
    json_t *root = states(file), *made = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *values = json_object_get(made, "values");
    const size_t n = json_array_size(values);
    assert_true(n == 3 || n == 4); /* 0.1 is tried if 0.01 is better than 1e-3 */
    assert_true(json_is_true(json_object_get(json_array_get(values, 2), "added")));
    assert_null(json_object_get(json_array_get(values, 1), "added"));
    assert_string_equal(text_of(json_array_get(values, 2), "value"), "0.01");
    assert_string_equal(text_of(state_of(root, "baseline_seed=1"), "value"), text_of(made, "chosen"));
    json_decref(root);
    assert_int_equal(ddl("sweep %s", file), 0);
    assert_null(strstr(printed, "started"));
}

static const char three_rates[] = "seeds: [0, 1]\nchoose: {key: lr, values: [1e-9, 1e-2, 1e-8], steps: 20}\n";

/* The candidate with the best value has no result because of a fault: nothing is chosen without it, and a
 * retry chooses as the sweep without the fault. */
static void candidate_without_a_result(const char *name, const char *fault, const char *flags,
                                       const char *reason)
{
    char file[1024], folder[1024];
    snprintf(file, sizeof file, "%s", write_sweep(name, 8, three_rates));
    snprintf(folder, sizeof folder, "%s/choose/run_lr=1e-2", scratch_path(name));
    assert_int_equal(sweep_with_fault(file, folder, fault, flags), 1);
    assert_printed("choose/run_lr=1e-8: finished");
    assert_null(strstr(printed, "run_seed=0: started"));
    assert_null(strstr(printed, "chosen by"));
    assert_printed("run: no lr is chosen before choose/run_lr=1e-2 has finished or diverged (it failed: ");
    assert_printed(reason);
    assert_printed("; --retry continues it\n");
    json_t *root = states(file);
    assert_int_equal(json_integer_value(json_object_get(root, "waiting")), 2);
    assert_true(json_is_false(json_object_get(state_of(root, "choose/run_lr=1e-2"), "diverged")));
    assert_true(json_is_null(json_object_get(state_of(root, "run_seed=0"), "value")));
    json_decref(root);
    assert_int_equal(ddl("sweep %s %s", file, flags), 1); /* it is left alone */
    assert_null(strstr(printed, "started"));
    assert_printed("--retry continues it");
    assert_int_equal(ddl("sweep %s --retry %s", file, flags), 0);
    assert_printed("run: lr 1e-2 chosen by val_loss: ");
    for (int seed = 0; seed < 2; seed++) {
        char model[64];
        snprintf(model, sizeof model, "run_seed=%d/model.safetensors", seed);
        assert_same_file(file_in(scratch_path(name), model), file_in(scratch_path("unhurt"), model));
    }
    root = states(file);
    assert_string_equal(text_of(state_of(root, "run_seed=1"), "value"), "1e-2");
    json_decref(root);
}

static void candidates_without_a_result(void **state)
{
    (void)state;
    char file[1024];
    snprintf(file, sizeof file, "%s", write_sweep("unhurt", 8, three_rates));
    assert_int_equal(ddl("sweep %s --threads 1", file), 0);
    candidate_without_a_result("hurt", "DDL_SHIM_ACT=kill DDL_SHIM_AT=30", "--threads 1",
                               "(it failed: ended by signal 9)");
    candidate_without_a_result("full", "DDL_SHIM_ACT=full DDL_SHIM_AT=30", "--threads 1 --jobs 2",
                               "No space left on device");
    candidate_without_a_result("dead", "DDL_SHIM_ACT=dead DDL_SHIM_AT=30", "--threads 1",
                               "Input/output error");
}

/* A candidate that diverged has a result, which another attempt would not change. */
static void diverged_candidate(void **state)
{
    (void)state;
    char file[1024], folder[1024];
    snprintf(file, sizeof file, "%s",
             write_sweep("diverged", 4,
                         "set: {weight_decay: 10, warmup: 0}\nseeds: [0]\n"
                         "choose: {key: lr, values: [1000, 1e-3], steps: 20}\n"));
    snprintf(folder, sizeof folder, "%s", scratch_path("diverged/choose/run_lr=1e-3"));
    assert_int_equal(sweep_with_fault(file, folder, "DDL_SHIM_ACT=kill DDL_SHIM_AT=30", ""), 1);
    assert_printed("choose/run_lr=1000: failed: step ");
    assert_printed("before choose/run_lr=1e-3 has finished");
    assert_null(strstr(printed, "before choose/run_lr=1000"));
    assert_true(ddl_file_exists(scratch_path("diverged/choose/run_lr=1000/diverged.json")));
    assert_int_equal(unlink(scratch_path("diverged/sweep.json")), 0); /* the folders have the results */
    assert_int_equal(ddl("sweep %s --retry", file), 0);
    assert_null(strstr(printed, "choose/run_lr=1000: started"));
    assert_printed("run: lr 1e-3 chosen by val_loss: 1000 -, 1e-3 ");
    json_t *root = states(file);
    assert_true(json_is_true(json_object_get(state_of(root, "choose/run_lr=1000"), "diverged")));
    json_decref(root);
    /* A run that is started again has not diverged: its end is open. */
    snprintf(folder, sizeof folder, "%s", scratch_path("diverged/choose/run_lr=1000"));
    assert_int_equal(ddl("train %s/recipe.yaml --overwrite --lr 1e-3", folder), 0);
    assert_false(ddl_file_exists(file_in(folder, "diverged.json")));
}

/* Replaces a text that is in the file once by another. */
static void edit(const char *file, const char *from, const char *to)
{
    char *text = read_file(file, NULL), *at = strstr(text, from), edited[8192];
    assert_non_null(at);
    snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    write_file(file, edited, strlen(edited));
    free(text);
}

/* With a further value the choice changes: the runs with the earlier one are stale until they are trained
 * again. */
static void stale_runs(void **state)
{
    (void)state;
    char file[1024], out[1024];
    snprintf(
        file, sizeof file, "%s",
        write_sweep(
            "stale", 8,
            "seeds: [0, 1]\nchoose: {key: lr, values: [1e-9, 3e-3], steps: 20, set: {val_tokens: 500}}\n"));
    snprintf(out, sizeof out, "%s", scratch_path("stale"));
    assert_int_equal(ddl("sweep %s --threads 1", file), 0);
    assert_printed("run: lr 3e-3 chosen");
    edit(file, "[1e-9, 3e-3]", "[1e-9, 1e-2, 3e-3]");
    json_t *root = states(file); /* the choice is open */
    assert_int_equal(json_integer_value(json_object_get(root, "stale")), 2);
    assert_int_equal(json_integer_value(json_object_get(root, "finished")), 2);
    json_decref(root);
    assert_int_equal(ddl("sweep %s --threads 1", file), 1);
    assert_printed("run: lr 1e-2 chosen by val_loss: ");
    assert_null(strstr(printed, "run_seed=0: started"));
    assert_printed("run_seed=0: trained with lr 3e-3, but 1e-2 is chosen\n");
    assert_printed("stale.yaml: 2 of 5 runs are stale: run_seed=0: trained with lr 3e-3, but 1e-2 is chosen; "
                   "--retrain trains such runs again\n");
    root = states(file);
    assert_int_equal(json_integer_value(json_object_get(root, "stale")), 2);
    assert_string_equal(text_of(state_of(root, "run_seed=1"), "value"), "3e-3");
    assert_string_equal(text_of(state_of(root, "run_seed=1"), "state"), "stale");
    json_decref(root);
    /* Later commands say so. */
    assert_int_equal(ddl("compare %s", out), 1);
    assert_printed(
        "stale: 2 stale runs are left out: run_seed=0: trained with lr 3e-3, but 1e-2 is chosen; 'ddl ");
    assert_int_equal(ddl("compare %s/run_seed=0 %s/run_seed=1", out, out), 0);
    assert_printed("run_seed=1: a stale run of a sweep: trained with lr 3e-3, but 1e-2 is chosen\n");
    assert_int_equal(ddl("report %s/run_seed=0", out), 0);
    assert_printed("stale run of a sweep: trained with lr 3e-3, but 1e-2 is chosen\n");
    /* A kill before ddl train has removed the earlier files leaves the run stale. */
    assert_int_equal(sweep_with_fault(file, file_in(out, "run_seed=0/config.json"),
                                      "DDL_SHIM_ACT=kill DDL_SHIM_AT=1", "--retrain --threads 1"),
                     1);
    assert_printed("run_seed=0: failed: ended by signal 9\n");
    root = states(file);
    assert_string_equal(text_of(state_of(root, "run_seed=0"), "state"), "stale");
    assert_string_equal(text_of(state_of(root, "run_seed=1"), "state"), "finished");
    json_decref(root);
    assert_int_equal(ddl("sweep %s --retrain --threads 1", file), 0);
    assert_null(strstr(printed, "run_seed=1: started"));
    assert_same_file(scratch_path("stale/run_seed=0/model.safetensors"),
                     scratch_path("unhurt/run_seed=0/model.safetensors"));
    assert_int_equal(ddl("compare %s", out), 0);
    assert_null(strstr(printed, "stale runs"));
    /* Without the value that they were trained with. */
    edit(file, "[1e-9, 1e-2, 3e-3]", "[1e-9, 3e-3]");
    assert_int_equal(ddl("sweep %s --threads 1", file), 1);
    assert_printed("run_seed=0: trained with lr 0.01, but 3e-3 is chosen\n");
}

/* A candidate that diverges does not count; without any other, the runs are not started. */
static void failing_candidates(void **state)
{
    (void)state;
    char file[1024];
    static const char text[] =
        "set: {weight_decay: 10, warmup: 0}\nseeds: [0]\nchoose: {key: lr, values: [1000%s], steps: 20}\n";
    char content[512];
    snprintf(content, sizeof content, text, ", 1e-3");
    snprintf(file, sizeof file, "%s", write_sweep("unchosen", 4, content));
    assert_int_equal(ddl("sweep %s", file), 0);
    assert_printed("run: lr 1e-3 chosen by val_loss: 1000 -, 1e-3 ");
    snprintf(content, sizeof content, text, "");
    snprintf(file, sizeof file, "%s", write_sweep("unchosen", 4, content));
    assert_int_equal(ddl("sweep %s", file), 1);
    assert_printed("run_seed=0: failed: not started: no run with a value of lr has finished");
}

/* The data of the runs is checked before the candidates, which have other data, are trained. */
static void missing_data(void **state)
{
    (void)state;
    char text[2048];
    snprintf(text, sizeof text,
             "set: {val_data: %s}\nseeds: [0]\n"
             "choose: {key: lr, values: [1e-3, 2e-3], steps: 2, set: {val_data: %s}}\n",
             scratch_path("missing.bin"), scratch_path("s.bin"));
    assert_int_equal(ddl("sweep %s", write_sweep("missing", 4, text)), 1);
    assert_printed("run_seed=0: val_data: ");
    assert_false(ddl_file_exists(scratch_path("missing/choose")));
}

static void usage(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        { "sweep", 2, "sweep: missing argument: expected a sweep file (SWEEP.yaml)" },
        { "sweep a b", 2, "sweep: too many arguments: expected at most 1, found 2: 'b'" },
        { "sweep a --jobs 0", 2, "--jobs: 0 is out of range" },
        { "sweep a --status --dry-run", 2, "sweep: expected one of --status and --dry-run, found both" },
        { "sweep /nowhere/s.yaml", 1, "/nowhere/s.yaml: cannot open" },
    };
    assert_refused(cases, sizeof cases / sizeof *cases);
    char file[1024];
    snprintf(file, sizeof file, "%s", write_sweep("nodata", 4, "set: {train_data: /nowhere}\n"));
    assert_int_equal(ddl("sweep %s", file), 1);
    assert_printed("ddl: run: train_data: /nowhere: cannot open");
    assert_int_equal(access(scratch_path("nodata/run"), F_OK), -1);
    assert_int_equal(ddl("sweep %s --dry-run", file), 1); /* the plan is printed all the same */
    assert_printed("time not measured");
    assert_int_equal(ddl("compare %s", scratch_path("nodata")), 1);
}

/* A recipe of a study, in a folder without its data: the plan is complete but for the time. */
struct study {
    const char *recipe;
    size_t n_models, n_checks; /* with all seeds; with one seed and a given learning rate */
    unsigned steps;
    json_int_t least, most; /* parameters of every run */
};

static void check_study(const struct study *study)
{
    char command[4096], folder[1024];
    struct ddl_error err;
    snprintf(folder, sizeof folder, "%s", scratch_path("study"));
    assert_ok(ddl_file_make_dir(folder, &err), err);
    snprintf(command, sizeof command, "cd '%s' && '%s' sweep '%s' --dry-run --json 2>errors", folder,
             ddl_program(), source_path(study->recipe));
    assert_int_equal(run_command(command, printed, sizeof printed), 1);
    json_t *root = printed_json(), *runs = json_object_get(root, "runs");
    assert_int_equal(json_array_size(runs), (5 + 3) * study->n_models + study->n_checks); /* rates, seeds */
    const double steps =
        (double)(study->n_models * (3 * study->steps + 5 * 120) + study->n_checks * study->steps);
    assert_true(json_number_value(json_object_get(root, "tokens")) == steps * 16 * 256);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i);
        json_int_t parameters = json_integer_value(json_object_get(run, "parameters"));
        assert_true(parameters >= study->least && parameters <= study->most);
        assert_true(json_number_value(json_object_get(run, "flops_per_token")) > 8e6);
        assert_true(json_integer_value(json_object_get(run, "memory")) > 100 << 20);
    }
    json_decref(root);
    char *errors = read_file(file_in(folder, "errors"), NULL);
    assert_non_null(strstr(errors, "data/shards/study: cannot open"));
    free(errors);
}

static void studies(void **state)
{
    (void)state;
    check_study(&(struct study){ .recipe = "recipes/study-cpu.yaml",
                                 .n_models = 11,
                                 .n_checks = 6,
                                 .steps = 640,
                                 .least = 1311616,
                                 .most = 1340000 });
    /* Matched to the 1,321,404 parameters of ddl-cc-ec: within half of what a unit of mlp_size adds. */
    check_study(&(struct study){ .recipe = "recipes/rivals-cpu.yaml",
                                 .n_models = 13,
                                 .steps = 448,
                                 .least = 1321404 - 3 * 128 * 4 / 2,
                                 .most = 1321404 + 3 * 128 * 4 / 2 });
}

/* On a terminal the table is redrawn; Ctrl-C reaches the runs through the sweep only, once; so does its end.
 */
static void terminal(void **state)
{
    (void)state;
    char file[1024];
    snprintf(file, sizeof file, "%s", write_sweep("terminal", 100000, "seeds: [0, 1, 2]\n"));
    const char *const argv[] = { ddl_program(), "sweep", file, "--jobs", "2", NULL };
    const char *const environment[] = { "TERM=xterm", NULL };
    pty_start(argv, environment);
    pty_expect("0/3 runs finished  2 running");
    pty_expect("  run_seed=0  step ");
    pty_expect("  run_seed=1  step ");
    pty_expect("\033[3A");
    pty_send("\x03");
    pty_expect("stopped at step ");
    assert_int_equal(pty_finish(), 3);
    assert_int_equal(count(file, "stopped"), 2);
    pty_start(argv, environment);
    pty_expect("  run_seed=0  step ");
    assert_int_equal(pty_hang_up(), 3);
    assert_int_equal(count(file, "stopped"), 2);
    assert_int_equal(count(file, "failed"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_models_two_seeds),
        cmocka_unit_test(archived_run),
        cmocka_unit_test(stopped_and_continued),
        cmocka_unit_test(stopped_at_any_time),
        cmocka_unit_test(killed_sweep),
        cmocka_unit_test(killed_run),
        cmocka_unit_test(linked_run),
        cmocka_unit_test(failing_run),
        cmocka_unit_test(changed_file),
        cmocka_unit_test(choice),
        cmocka_unit_test(extended_choice),
        cmocka_unit_test(candidates_without_a_result),
        cmocka_unit_test(diverged_candidate),
        cmocka_unit_test(stale_runs),
        cmocka_unit_test(failing_candidates),
        cmocka_unit_test(missing_data),
        cmocka_unit_test(usage),
        cmocka_unit_test(studies),
        cmocka_unit_test(terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
