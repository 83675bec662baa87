/* train/log/tensorboard.h and event_file.h: the bytes of event files, by a reader of its own; a run's values
 * in them; runs that are resumed, replaced or refused. With the tensorboard package:
 * tests/python/tensorboard.py. */
#define _POSIX_C_SOURCE 200809L
#include "support/runs.h"

#include "ddl/compare.h"
#include "train/log/tensorboard.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <time.h>

enum { V = TINY_VOCAB, STEPS = 12, MOST_FILES = 8, MOST_EVENTS = 20000 };

/* ---- a reader ---- */

struct event {
    double wall_time;
    int64_t step;
    char tag[192], text[512];
    char kind; /* v: file version, s: start of a session, n: number, h: histogram, t: text */
    double number;
    double min, max, count, sum, sum_squares, limit[64], bucket[64];
    size_t n_limits, n_buckets;
};

static struct event events[MOST_EVENTS];
static size_t n_events;

/* The checksum bit by bit. */
static uint32_t masked_crc(const unsigned char *data, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < 8 * n; i++) {
        crc ^= data[i / 8] >> i % 8 & 1;
        crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static uint64_t little_endian(const unsigned char *at, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* A field of a protobuf message. */
struct field {
    unsigned number, type;
    uint64_t value; /* of types 0, 1 and 5 */
    const unsigned char *bytes;
    size_t size;
};

static uint64_t varint(const unsigned char **at)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
}

static bool next_field(const unsigned char **at, const unsigned char *end, struct field *f)
{
    if (*at == end)
        return false;
    uint64_t key = varint(at);
    *f = (struct field){ .number = (unsigned)(key >> 3), .type = (unsigned)(key & 7) };
    size_t fixed = f->type == 1 ? 8 : f->type == 5 ? 4 : 0;
    if (f->type == 0)
        f->value = varint(at);
    else if (fixed)
        f->value = little_endian(*at, fixed);
    else {
        assert_int_equal(f->type, 2);
        f->size = (size_t)varint(at);
        f->bytes = *at;
    }
    *at += fixed + f->size;
    assert_true(*at <= end);
    return true;
}

static double as_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double as_float(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return (double)x;
}

static void copy_text(char *out, size_t size, const struct field *f)
{
    assert_true(f->size < size);
    memcpy(out, f->bytes, f->size);
    out[f->size] = '\0';
}

static void read_histogram(struct event *e, const struct field *histogram)
{
    double *const numbers[] = { NULL, &e->min, &e->max, &e->count, &e->sum, &e->sum_squares };
    struct field f;
    e->kind = 'h';
    for (const unsigned char *at = histogram->bytes;
         next_field(&at, histogram->bytes + histogram->size, &f);) {
        if (f.type == 1)
            *numbers[f.number] = as_double(f.value);
        else {
            double *list = f.number == 6 ? e->limit : e->bucket;
            *(f.number == 6 ? &e->n_limits : &e->n_buckets) = f.size / 8;
            for (size_t i = 0; i < f.size / 8; i++)
                list[i] = as_double(little_endian(f.bytes + 8 * i, 8));
        }
    }
}

static void read_tensor(struct event *e, const struct field *tensor)
{
    struct field f;
    e->kind = 't';
    for (const unsigned char *at = tensor->bytes; next_field(&at, tensor->bytes + tensor->size, &f);) {
        if (f.number == 1)
            assert_int_equal(f.value, 7); /* DT_STRING */
        else if (f.number == 2)
            assert_true(f.size == 4 && memcmp(f.bytes, "\x12\x02\x08\x01", 4) == 0); /* one dimension of 1 */
        else
            copy_text(e->text, sizeof e->text, &f);
    }
}

static void read_summary(struct event *e, const struct field *summary)
{
    const unsigned char *at = summary->bytes;
    struct field value, f;
    assert_true(next_field(&at, summary->bytes + summary->size, &value));
    assert_true(value.number == 1 && at == summary->bytes + summary->size);
    for (at = value.bytes; next_field(&at, value.bytes + value.size, &f);) {
        if (f.number == 1)
            copy_text(e->tag, sizeof e->tag, &f);
        else if (f.number == 2) {
            e->kind = 'n';
            e->number = as_float(f.value);
        } else if (f.number == 5)
            read_histogram(e, &f);
        else if (f.number == 8)
            read_tensor(e, &f);
        else
            assert_true(f.number == 9 && f.size == 10 &&
                        memcmp(f.bytes, "\x0a\x06\x0a\x04text\x20\x02", 10) == 0);
    }
}

static void read_event(const unsigned char *data, size_t size)
{
    struct event *e = &events[n_events++];
    struct field f;
    assert_true(n_events < MOST_EVENTS);
    *e = (struct event){ 0 };
    for (const unsigned char *at = data; next_field(&at, data + size, &f);) {
        if (f.number == 1)
            e->wall_time = as_double(f.value);
        else if (f.number == 2)
            e->step = (int64_t)f.value;
        else if (f.number == 5)
            read_summary(e, &f);
        else if (f.number == 7) {
            assert_true(f.size == 2 && memcmp(f.bytes, "\x08\x01", 2) == 0); /* START */
            e->kind = 's';
        } else {
            assert_int_equal(f.number, 3);
            copy_text(e->text, sizeof e->text, &f);
            e->kind = 'v';
        }
    }
}

/* Appends the events of a file. Returns the bytes of a truncated record at its end. */
static size_t read_events(const char *path)
{
    size_t size, at = 0;
    char *text = read_file(path, &size);
    const unsigned char *data = (const unsigned char *)text;
    while (at + 12 <= size) {
        size_t n = (size_t)little_endian(data + at, 8);
        assert_int_equal(little_endian(data + at + 8, 4), masked_crc(data + at, 8));
        if (at + 16 + n > size)
            break;
        assert_int_equal(little_endian(data + at + 12 + n, 4), masked_crc(data + at + 12, n));
        read_event(data + at + 12, n);
        at += 16 + n;
    }
    free(text);
    return size - at;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The paths of a run's event files in order. */
static size_t event_files(const char *out, char paths[MOST_FILES][1400])
{
    struct dirent **list;
    char folder[1100];
    snprintf(folder, sizeof folder, "%s", file_in(out, "tensorboard"));
    int n = scandir(folder, &list, not_hidden, by_name);
    assert_true(n <= MOST_FILES);
    for (int i = 0; i < n; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, list[i]->d_name);
        assert_non_null(strstr(list[i]->d_name, "tfevents"));
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    return n > 0 ? (size_t)n : 0;
}

/* All events of a run, in order, as TensorBoard has them: a start removes those of its step and later. */
static void read_run(const char *out)
{
    static char paths[MOST_FILES][1400];
    size_t n = event_files(out, paths);
    n_events = 0;
    for (size_t i = 0; i < n; i++) {
        size_t before = n_events, kept = 0;
        read_events(paths[i]);
        assert_true(n_events >= before + 2);
        assert_true(events[before].kind == 'v' && strcmp(events[before].text, "brain.Event:2") == 0);
        assert_int_equal(events[before + 1].kind, 's');
        int64_t start = events[before + 1].step;
        for (size_t j = 0; j < n_events; j++) {
            if (j >= before + 2 || (j < before && events[j].step < start))
                events[kept++] = events[j];
        }
        n_events = kept;
    }
}

static const struct event *find(const char *tag, uint64_t step)
{
    const struct event *found = NULL;
    for (size_t i = 0; i < n_events; i++) {
        if (events[i].step == (int64_t)step && strcmp(events[i].tag, tag) == 0) {
            assert_null(found); /* once */
            found = &events[i];
        }
    }
    return found;
}

/* ---- runs ---- */

static struct ddl_train_config a_run(const char *preset, const char *out)
{
    struct ddl_train_config t = tiny_run(preset, V, test_backend(0), out);
    struct ddl_error err;
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    assert_ok(ddl_file_make_dir(scratch_path("tokenizer"), &err), err);
    assert_ok(ddl_tokenizer_save(tokenizer, scratch_path("tokenizer"), &err), err);
    ddl_tokenizer_free(tokenizer);
    write_random_shard(scratch_path("train.bin"), 1, V, 5000);
    write_random_shard(scratch_path("val.bin"), 2, V, 700);
    snprintf(t.val_data, sizeof t.val_data, "%s", scratch_path("val.bin"));
    snprintf(t.tokenizer, sizeof t.tokenizer, "%s", scratch_path("tokenizer"));
    snprintf(t.sample_prompt, sizeof t.sample_prompt, "The");
    t.steps = STEPS;
    t.warmup = 2;
    t.val_every = t.checkpoint_every = t.sample_every = 4;
    t.keep_last = 0;
    t.sample_tokens = 10;
    t.val_tokens = 100;
    t.telemetry_every = 3;
    t.tensorboard = true;
    return t;
}

static void near(double found, double expected, double relative)
{
    assert_true(fabs(found - expected) <= relative * fabs(expected));
}

static void compare_number(const char *tag, uint64_t step, const json_t *expected)
{
    const struct event *e = find(tag, step);
    assert_true((e != NULL) == (expected != NULL));
    if (e) {
        assert_int_equal(e->kind, 'n');
        near(e->number, json_number_value(expected), 6e-6);
    }
}

static void compare_line(const json_t *line, uint64_t step)
{
    static const char *const keys[] = { "loss", "val_loss", "lr", "grad_norm", "tokens_per_s" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "train/%s", keys[i]);
        compare_number(tag, step, json_object_get(line, keys[i]));
    }
}

static void compare_sublayer(json_t *sublayer, uint64_t step)
{
    char place[64], tag[192];
    const char *key;
    json_t *value;
    snprintf(place, sizeof place, "layer.%d.%s", (int)json_integer_value(json_object_get(sublayer, "layer")),
             json_string_value(json_object_get(sublayer, "sub")));
    json_object_foreach(sublayer, key, value)
    {
        snprintf(tag, sizeof tag, "%s/%s", key, place);
        if (json_is_number(value) && strcmp(key, "layer") != 0 && strncmp(key, "gate_", 5) != 0)
            compare_number(tag, step, value);
    }
    json_t *bins = json_object_get(sublayer, "histogram");
    snprintf(tag, sizeof tag, "gate/%s", place);
    const struct event *e = find(tag, step);
    assert_true((e != NULL) == (bins != NULL));
    if (!e)
        return;
    const char *name = json_object_get(sublayer, "beta_mean") ? "beta" : "tau";
    double top = json_number_value(json_object_get(sublayer, "gate_max"));
    char mean[16], min[16], max[16];
    snprintf(mean, sizeof mean, "%s_mean", name);
    snprintf(min, sizeof min, "%s_min", name);
    snprintf(max, sizeof max, "%s_max", name);
    assert_true(e->kind == 'h' && e->n_limits == e->n_buckets && e->n_limits > 0);
    near(e->count, json_number_value(json_object_get(sublayer, "gate_values")), 0);
    near(e->min, json_number_value(json_object_get(sublayer, min)), 6e-6);
    near(e->max, json_number_value(json_object_get(sublayer, max)), 6e-6);
    near(e->sum, e->count * json_number_value(json_object_get(sublayer, mean)), 6e-6);
    assert_true(e->sum_squares >= e->sum * e->sum / e->count * (1 - 1e-9));
    assert_true(e->sum_squares <= e->count * e->max * e->max * (1 + 1e-9));
    /* Without the empty bins at both ends. */
    size_t first = (size_t)lround(e->limit[0] / top * 40) - 1;
    assert_true(e->bucket[0] > 0 && e->bucket[e->n_buckets - 1] > 0 && e->min <= e->limit[0]);
    for (size_t bin = 0; bin < 40; bin++) {
        size_t i = bin - first;
        bool inside = bin >= first && i < e->n_buckets;
        near(inside ? e->bucket[i] : 0, json_number_value(json_array_get(bins, bin)), 0);
        if (inside)
            near(e->limit[i], top * (double)(bin + 1) / 40, 1e-12);
    }
}

static void compare_record(json_t *record, uint64_t step)
{
    json_t *norms = json_object_get(record, "grad_norms"), *item;
    size_t i;
    json_array_foreach(json_object_get(record, "sublayers"), i, item) compare_sublayer(item, step);
    compare_number("grad_norms/embedding", step, json_object_get(norms, "embedding"));
    compare_number("grad_norms/head", step, json_object_get(norms, "head"));
    json_array_foreach(json_object_get(norms, "layers"), i, item)
    {
        char tag[64];
        snprintf(tag, sizeof tag, "grad_norms/layer.%zu", i);
        compare_number(tag, step, item);
    }
}

/* Every line and record of metrics.jsonl is in `events`. */
static void compare_with_metrics(const char *out)
{
    char *text = read_file(file_in(out, "metrics.jsonl"), NULL);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *object = json_loadb(line, (size_t)(end - line), 0, NULL);
        uint64_t step = (uint64_t)json_integer_value(json_object_get(object, "step"));
        if (json_object_get(object, "kind"))
            compare_record(object, step);
        else
            compare_line(object, step);
        json_decref(object);
    }
    free(text);
}

struct samples {
    char text[STEPS + 1][512];
};

static void keep_sample(void *user, uint64_t step, const char *prompt, const char *text, size_t size)
{
    struct samples *samples = user;
    snprintf(samples->text[step], sizeof *samples->text, "%s%.*s", prompt, (int)size, text);
}

/* The ASCII characters of a text: the others may have been repaired. */
static const char *ascii(const char *text, char *out)
{
    char *to = out;
    for (; *text; text++) {
        if ((unsigned char)*text < 128)
            *to++ = *text;
    }
    *to = '\0';
    return out;
}

static bool is_available(void)
{
    return ddl_tensorboard_check(NULL) == DDL_OK;
}

static void has_what_metrics_has(void **state)
{
    (void)state;
    static const char *const presets[] = { "baseline", "ddl-cc-ec", "scale", "highway" };
    if (!is_available())
        skip();
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        struct ddl_error err;
        static struct samples samples;
        const struct ddl_train_callbacks callbacks = { .user = &samples, .sample = keep_sample };
        struct ddl_train_config t = a_run(presets[i], "all");
        double before = (double)time(NULL);
        assert_ok(ddl_train_run(&t, &callbacks, NULL, &err), err);
        read_run(t.out);
        compare_with_metrics(t.out);
        assert_non_null(find("train/val_loss", 4));
        assert_non_null(find("f_rms/layer.0.mlp", 3));
        for (uint64_t step = 4; step <= STEPS; step += 4) {
            char found[512], expected[512];
            assert_int_equal(find("sample", step)->kind, 't');
            assert_string_equal(ascii(find("sample", step)->text, found),
                                ascii(samples.text[step], expected));
        }
        for (size_t e = 0; e < n_events; e++)
            assert_true(events[e].wall_time >= before && events[e].wall_time < before + 600);
    }
}

/* Without the key there is no folder; a run that replaces one removes its files, and no others. */
static void is_written_only_if_wanted(void **state)
{
    (void)state;
    static char paths[MOST_FILES][1400];
    struct ddl_error err;
    if (!is_available())
        skip();
    struct ddl_train_config t = a_run("baseline", "wanted");
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_int_equal(event_files(t.out, paths), 1);
    t.overwrite = true;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_int_equal(event_files(t.out, paths), 1);
    t.tensorboard = false;
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_false(ddl_file_exists(file_in(t.out, "tensorboard")));
    assert_ok(ddl_file_make_dir(file_in(t.out, "tensorboard"), &err), err);
    write_file(file_in(t.out, "tensorboard/notes"), "x", 1);
    assert_ok(ddl_train_run(&t, NULL, NULL, &err), err);
    assert_true(ddl_file_exists(file_in(t.out, "tensorboard/notes")));
}

/* Stopped; stopped in a validation; killed, so that steps are repeated and the file ends in a record that is
 * not whole: each step once, with the values of a run that was not stopped. */
static void resumes(void **state)
{
    (void)state;
    static char paths[MOST_FILES][1400];
    static struct event whole_events[MOST_EVENTS];
    struct ddl_error err;
    struct validation_stop stop = { .step = 8 };
    const struct ddl_train_callbacks callbacks = { .user = &stop, .validation = stop_validation };
    if (!is_available())
        skip();
    struct ddl_train_config whole = a_run("ddl-1", "whole"), parts = a_run("ddl-1", "parts");
    assert_ok(ddl_train_run(&whole, NULL, NULL, &err), err);
    read_run(whole.out);
    size_t n = n_events;
    memcpy(whole_events, events, n * sizeof *events);
    assert_int_equal(run_until(&parts, 6, NULL, &err), DDL_E_INTERRUPTED);
    parts.resume = true;
    assert_int_equal(ddl_train_run(&parts, &callbacks, NULL, &err), DDL_E_INTERRUPTED);
    assert_int_equal(run_until(&parts, 3, NULL, &err), DDL_E_INTERRUPTED);
    remove_scratch("parts/checkpoint-11"); /* as if killed in step 11, with steps 9 and 10 lost */
    assert_int_equal(event_files(parts.out, paths), 3);
    FILE *torn = fopen(paths[2], "ab");
    fwrite("\x30\0\0\0\0\0\0\0\1", 1, 9, torn);
    fclose(torn);
    assert_ok(ddl_train_run(&parts, NULL, NULL, &err), err);
    assert_int_equal(event_files(parts.out, paths), 4);
    n_events = 0;
    assert_int_equal(read_events(paths[2]), 9);
    read_run(parts.out);
    compare_with_metrics(parts.out);
    for (size_t i = 0; i < n; i++) {
        const struct event *a = &whole_events[i], *b = find(a->tag, (uint64_t)a->step);
        if (strcmp(a->tag, "sample") == 0 && a->step == 8)
            continue; /* a run that is stopped at a step has no sample of it */
        assert_true(b && a->kind == b->kind && strcmp(a->text, b->text) == 0);
        if (strcmp(a->tag, "train/tokens_per_s") != 0)
            assert_true(a->number == b->number && memcmp(a->bucket, b->bucket, sizeof a->bucket) == 0);
    }
}

/* ---- errors ---- */

static void reports_errors(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_train_config base = a_run("baseline", "errors"), t;
    if (!is_available()) {
        ASSERT_REFUSED(t, base, (void)0, DDL_E_USAGE,
                       "tensorboard: not available: this ddl was built without");
        return;
    }
    /* A file where the folder should be. */
    t = base;
    assert_ok(ddl_file_make_dir(t.out, &err), err);
    write_file(file_in(t.out, "tensorboard"), "", 0);
    assert_int_equal(ddl_train_run(&t, NULL, NULL, &err), DDL_E_IO);
    assert_says(&err, "errors/tensorboard");
    /* A full disk: at the latest when records are flushed. */
    struct ddl_tensorboard tb = { .file = { .path = "/dev/full" } };
    const struct ddl_train_progress progress = { .step = 1 };
    tb.file.stream = fopen("/dev/full", "wb");
    if (!tb.file.stream)
        skip();
    assert_int_equal(ddl_tensorboard_line(&tb, &progress, &err), DDL_E_IO);
    assert_says(&err, "/dev/full: cannot write");
    struct ddl_error again;
    assert_int_equal(ddl_tensorboard_line(&tb, &progress, &again), DDL_E_IO);
    assert_string_equal(again.text, err.text);
    ddl_tensorboard_close(&tb);
    ddl_tensorboard_close(&tb);
}

/* Names in order, whatever the clock says. */
static void files_are_in_order(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_event_file f;
    static char paths[MOST_FILES][1400];
    remove_scratch("order");
    assert_ok(ddl_file_make_dir(scratch_path("order"), &err), err);
    char last[1400] = "";
    for (int i = 0; i < 4; i++) {
        assert_ok(ddl_event_file_create(&f, scratch_path("order/tensorboard"), &err), err);
        ddl_event_file_close(&f);
        assert_true(strcmp(f.path, last) > 0);
        snprintf(last, sizeof last, "%s", f.path);
    }
    assert_int_equal(event_files(scratch_path("order"), paths), 4);
    assert_ok(ddl_event_file_remove_all(scratch_path("order/tensorboard"), &err), err);
    assert_ok(ddl_event_file_remove_all(scratch_path("order/tensorboard"), &err), err);
    assert_false(ddl_file_exists(scratch_path("order/tensorboard")));
}

/* Text that is not UTF-8 is repaired, however long it is. */
static void texts_are_valid(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_tensorboard tb;
    if (!is_available())
        skip();
    remove_scratch("text");
    assert_ok(ddl_file_make_dir(scratch_path("text"), &err), err);
    assert_ok(ddl_tensorboard_open(&tb, scratch_path("text/tensorboard"), 0, &err), err);
    assert_ok(ddl_tensorboard_sample(&tb, 3, "a\xff", "\xc3\xa9\xe2\x82", 4, &err), err);
    char *large = malloc(100000);
    memset(large, 'x', 100000);
    ddl_tensorboard_close(&tb);
    read_run(scratch_path("text"));
    assert_string_equal(find("sample", 3)->text, "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd");
    assert_ok(ddl_tensorboard_open(&tb, scratch_path("text/tensorboard"), 0, &err), err);
    assert_ok(ddl_tensorboard_sample(&tb, 3, "", large, 100000, &err), err);
    ddl_tensorboard_close(&tb);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_what_metrics_has),
        cmocka_unit_test(is_written_only_if_wanted),
        cmocka_unit_test(resumes),
        cmocka_unit_test(reports_errors),
        cmocka_unit_test(files_are_in_order),
        cmocka_unit_test(texts_are_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
