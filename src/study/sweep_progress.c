/* How far the runs of a sweep are, from the ends of the files that they append to. */
#include "study/sweep_internal.h"

#include "base/file.h"
#include "base/json.h"
#include "ddl/model.h"
#include "study/run_log.h"
#include "train/config/train_config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL = 1 << 18 }; /* bytes that are read */

/* Shortens text (size bytes, NUL-terminated) by its last line and returns that line; NULL at its beginning. A
 * first line whose beginning is missing is a line too. */
static char *last_line(char *text, size_t *size)
{
    while (*size > 0 && text[*size - 1] == '\n')
        text[--*size] = '\0';
    if (*size == 0)
        return NULL;
    while (*size > 0 && text[*size - 1] != '\n')
        --*size;
    return text + *size;
}

static double number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* Takes from a line of metrics.jsonl what later lines did not have. False: nothing is left to find. */
static bool take_line(struct ddl_sweep_run *run, const char *text)
{
    json_error_t why;
    json_t *line;
    if (ddl_json_parse(&line, text, strlen(text), 0, &why))
        return true;
    const json_t *step = json_object_get(line, "step");
    double loss = number(line, "loss");
    if (json_is_integer(step) && !isnan(loss)) {
        if (run->step == 0 && run->seconds == 0) { /* the newest line */
            run->step = (uint64_t)json_integer_value(step);
            run->seconds = number(line, "seconds");
            run->tokens_per_s = number(line, "tokens_per_s");
        }
        if (isnan(run->loss) && run_log_has_loss(line))
            run->loss = loss;
        if (isnan(run->val_loss))
            run->val_loss = number(line, "val_loss");
    }
    json_decref(line);
    return isnan(run->loss) || isnan(run->val_loss);
}

/* *text is NULL if there is no such file. */
static ddl_status read_end(const struct ddl_sweep_run *run, const char *name, char **text, size_t *size,
                           struct ddl_error *err)
{
    char path[2048];
    *text = NULL;
    if (!ddl_path_join(path, sizeof path, run->folder, name) || !ddl_file_exists(path))
        return DDL_OK;
    return ddl_file_read_end(path, TAIL, text, size, err);
}

ddl_status sweep_read_progress(struct ddl_sweep_run *run, struct ddl_error *err)
{
    char *text, *line;
    size_t size;
    ddl_status status = read_end(run, "metrics.jsonl", &text, &size, err);
    if (status)
        return status;
    run->step = 0;
    run->loss = run->val_loss = run->seconds_left = (double)NAN;
    run->seconds = run->tokens_per_s = 0;
    if (!text)
        return DDL_OK;
    char *end = strrchr(text, '\n'); /* what follows is still being written */
    size = end ? (size_t)(end - text) : 0;
    text[size] = '\0';
    while ((line = last_line(text, &size)) && take_line(run, line))
        continue;
    free(text);
    if (run->step > 0 && run->seconds > 0)
        run->seconds_left = run->seconds / (double)run->step * (double)(run->config->steps - run->step);
    return DDL_OK;
}

void sweep_read_message(struct ddl_sweep_run *run)
{
    static const char prefix[] = "ddl: ";
    char *text;
    size_t size;
    *run->message = '\0';
    if (read_end(run, "log.txt", &text, &size, NULL) || !text)
        return;
    const char *line = last_line(text, &size);
    if (line && strncmp(line, prefix, sizeof prefix - 1) == 0)
        line += sizeof prefix - 1;
    snprintf(run->message, sizeof run->message, "%s", line ? line : "");
    free(text);
}

/* ---- time ---- */

/* Floating-point operations of the whole run. */
static double work_of(const struct ddl_sweep_run *run)
{
    const struct ddl_train_config t = ddl_train_resolved(run->config);
    return (double)t.steps * (double)t.global_batch * (double)t.seq *
           ddl_config_flops_per_token(&t.config, t.seq, true);
}

/* Seconds and operations of what runs have done. */
struct rate {
    double seconds, work;
};

static void add_rate(struct rate *rate, const struct ddl_sweep_run *run, double work)
{
    if (run->step == 0 || !(run->seconds > 0))
        return;
    rate->seconds += run->seconds;
    rate->work += work * (double)run->step / (double)run->config->steps;
}

/* The rate of the run's setting, or of all settings. work: of each run. */
static struct rate rate_of(const struct ddl_sweep *sweep, const double *work, const struct ddl_sweep_run *run)
{
    struct rate same = { 0 }, all = { 0 };
    for (size_t i = 0; i < sweep->n_runs; i++) {
        if (sweep->runs[i].setting == run->setting)
            add_rate(&same, &sweep->runs[i], work[i]);
        add_rate(&all, &sweep->runs[i], work[i]);
    }
    return same.work > 0 ? same : all;
}

void sweep_estimate(struct ddl_sweep *sweep, size_t jobs)
{
    double sum = 0, longest = 0, *work = malloc((sweep->n_runs + 1) * sizeof *work);
    sweep->seconds_left = NAN;
    if (!work)
        return;
    for (size_t i = 0; i < sweep->n_runs; i++)
        work[i] = work_of(&sweep->runs[i]);
    for (size_t i = 0; i < sweep->n_runs; i++) {
        const struct ddl_sweep_run *run = &sweep->runs[i];
        if (run->state == DDL_SWEEP_FINISHED || run->state == DDL_SWEEP_FAILED ||
            run->state == DDL_SWEEP_STALE)
            continue;
        double left = run->seconds_left;
        if (isnan(left)) {
            struct rate rate = rate_of(sweep, work, run);
            left = rate.seconds / rate.work * work[i]; /* NaN without any rate */
        }
        sum += left;
        longest = left > longest ? left : longest;
    }
    free(work);
    double shared = sum / (double)(jobs ? jobs : 1);
    sweep->seconds_left = isnan(shared) || shared > longest ? shared : longest;
}
