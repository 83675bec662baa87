/* Event files with protobuf-c; the messages are in tensorboard.proto. An event has one value, in the form
 * that every version of TensorBoard reads: a scalar as simple_value, a histogram as histo, a text as a
 * tensor. */
#include "train/log/tensorboard.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "train/log/tensorboard.pb-c.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 192 };

ddl_status ddl_tensorboard_check(struct ddl_error *err)
{
    (void)err;
    return DDL_OK;
}

/* ---- events ---- */

/* Small events are packed on the stack: a training step allocates nothing. */
static ddl_status add_event(struct ddl_tensorboard *tb, Tensorboard__Event *event, struct ddl_error *err)
{
    unsigned char small[4096], *bytes = small;
    event->wall_time = ddl_clock_unix();
    size_t size = tensorboard__event__get_packed_size(event);
    if (size > sizeof small && !(bytes = malloc(size)))
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for an event of %zu bytes", tb->file.path,
                             size);
    tensorboard__event__pack(event, bytes);
    ddl_status status = ddl_event_file_add(&tb->file, bytes, size, err);
    if (bytes != small)
        free(bytes);
    return status;
}

static ddl_status add_value(struct ddl_tensorboard *tb, uint64_t step, Tensorboard__Summary__Value *value,
                            struct ddl_error *err)
{
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    summary.n_value = 1;
    summary.value = &value;
    event.step = (int64_t)step;
    event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return add_event(tb, &event, err);
}

static ddl_status add_scalar(struct ddl_tensorboard *tb, uint64_t step, char *tag, double number,
                             struct ddl_error *err)
{
    Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT;
    value.tag = tag;
    value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    value.simple_value = (float)number;
    return add_value(tb, step, &value, err);
}

ddl_status ddl_tensorboard_open(struct ddl_tensorboard *tb, const char *folder, uint64_t step,
                                struct ddl_error *err)
{
    char version[] = "brain.Event:2";
    Tensorboard__Event first = TENSORBOARD__EVENT__INIT, start = TENSORBOARD__EVENT__INIT;
    Tensorboard__SessionLog session = TENSORBOARD__SESSION_LOG__INIT;
    first.what_case = TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    first.file_version = version;
    session.status = TENSORBOARD__SESSION_LOG__STATUS__START;
    start.step = (int64_t)step;
    start.what_case = TENSORBOARD__EVENT__WHAT_SESSION_LOG;
    start.session_log = &session;
    ddl_status status = ddl_event_file_create(&tb->file, folder, err);
    if (!status)
        status = add_event(tb, &first, err);
    if (!status)
        status = add_event(tb, &start, err);
    return status ? status : ddl_event_file_flush(&tb->file, err);
}

void ddl_tensorboard_close(struct ddl_tensorboard *tb)
{
    ddl_event_file_close(&tb->file);
}

/* ---- lines of metrics.jsonl ---- */

static ddl_status add_tasks(struct ddl_tensorboard *tb, const struct ddl_train_progress *p,
                            struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    for (size_t i = 0; i < p->n_tasks; i++) {
        for (size_t j = 0; j < p->tasks[i].n_values && !status; j++) {
            const struct ddl_task_value *value = &p->tasks[i].values[j];
            char tag[TAG];
            snprintf(tag, sizeof tag, "tasks/%s/%s", p->tasks[i].task, value->name);
            status = add_scalar(tb, p->step, tag, value->value, err);
        }
    }
    return status;
}

ddl_status ddl_tensorboard_line(struct ddl_tensorboard *tb, const struct ddl_train_progress *p,
                                struct ddl_error *err)
{
    const struct {
        const char *tag;
        bool present;
        double value;
    } rows[] = {
        { "train/loss", true, p->loss },
        { "train/val_loss", p->has_val, p->val_loss },
        { "train/lr", p->step > 0, p->lr },
        { "train/grad_norm", p->step > 0, p->grad_norm },
        { "train/tokens_per_s", p->step > 0, p->tokens_per_s },
        { "train/mfu", p->step > 0 && p->mfu > 0, p->mfu },
    };
    ddl_status status = DDL_OK;
    if (!tb->file.stream)
        return DDL_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !status; i++) {
        char tag[TAG];
        snprintf(tag, sizeof tag, "%s", rows[i].tag);
        if (rows[i].present)
            status = add_scalar(tb, p->step, tag, rows[i].value, err);
    }
    if (!status)
        status = add_tasks(tb, p, err);
    return status ? status : ddl_event_file_flush(&tb->file, err);
}

/* ---- telemetry records ---- */

/* The histogram of a gate. Empty bins at both ends are left out: readers take the minimum as the lower limit
 * of the first bin, and the maximum as the upper limit of the last. */
static ddl_status add_gate(struct ddl_tensorboard *tb, uint64_t step, char *tag,
                           const struct ddl_telemetry_sublayer *sublayer, struct ddl_error *err)
{
    double limits[DDL_DISTRIBUTION_BINS], counts[DDL_DISTRIBUTION_BINS];
    double n = (double)sublayer->gate_values;
    Tensorboard__HistogramProto histogram = TENSORBOARD__HISTOGRAM_PROTO__INIT;
    Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT;
    size_t first = 0, last = DDL_DISTRIBUTION_BINS - 1;
    while (first < last && sublayer->histogram[first] == 0)
        first++;
    while (last > first && sublayer->histogram[last] == 0)
        last--;
    for (size_t i = 0; i < DDL_DISTRIBUTION_BINS; i++) {
        limits[i] = sublayer->gate_max * (double)(i + 1) / DDL_DISTRIBUTION_BINS;
        counts[i] = (double)sublayer->histogram[i];
    }
    histogram.min = sublayer->gate_low;
    histogram.max = sublayer->gate_high;
    histogram.num = n;
    histogram.sum = n * sublayer->gate_mean;
    histogram.sum_squares = sublayer->gate_squares;
    histogram.n_bucket_limit = histogram.n_bucket = last + 1 - first;
    histogram.bucket_limit = limits + first;
    histogram.bucket = counts + first;
    value.tag = tag;
    value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_HISTO;
    value.histo = &histogram;
    return add_value(tb, step, &value, err);
}

static ddl_status add_sublayer(struct ddl_tensorboard *tb, uint64_t step,
                               const struct ddl_figure_table *table,
                               const struct ddl_telemetry_sublayer *sublayer, struct ddl_error *err)
{
    char place[48], index[16] = "", tag[TAG];
    if (sublayer->n_steps > 1)
        snprintf(index, sizeof index, ".%u", (unsigned)sublayer->step);
    snprintf(place, sizeof place, "layer.%zu.%s%s", sublayer->layer, ddl_sublayer_names[sublayer->sub],
             index);
    snprintf(tag, sizeof tag, "x_rms/%s", place);
    ddl_status status = add_scalar(tb, step, tag, sublayer->x_rms, err);
    snprintf(tag, sizeof tag, "f_rms/%s", place);
    if (!status)
        status = add_scalar(tb, step, tag, sublayer->f_rms, err);
    for (size_t i = 0; i < table->n && !status; i++) {
        double figure = sublayer->figures.value[i];
        snprintf(tag, sizeof tag, "%s/%s", table->row[i]->name, place);
        if (!isnan(figure))
            status = add_scalar(tb, step, tag, figure, err);
    }
    snprintf(tag, sizeof tag, "gate/%s", place);
    return status || sublayer->gate_max == 0 ? status : add_gate(tb, step, tag, sublayer, err);
}

static ddl_status add_gradients(struct ddl_tensorboard *tb, uint64_t step, const struct ddl_telemetry *t,
                                struct ddl_error *err)
{
    char embedding[] = "grad_norms/embedding", head[] = "grad_norms/head";
    ddl_status status = add_scalar(tb, step, embedding, t->grad_embedding, err);
    for (size_t l = 0; l < ddl_model_config(t->model)->n_layers && !status; l++) {
        char tag[TAG];
        snprintf(tag, sizeof tag, "grad_norms/layer.%zu", l);
        status = add_scalar(tb, step, tag, t->grad_layers[l], err);
    }
    return status ? status : add_scalar(tb, step, head, t->grad_head, err);
}

ddl_status ddl_tensorboard_telemetry(struct ddl_tensorboard *tb, uint64_t step, const struct ddl_telemetry *t,
                                     struct ddl_error *err)
{
    ddl_status status = DDL_OK;
    if (!tb->file.stream)
        return DDL_OK;
    for (size_t s = 0; s < t->n_sublayers && !status; s++)
        status = add_sublayer(tb, step, &t->copies.table, &t->sublayers[s], err);
    if (!status)
        status = add_gradients(tb, step, t, err);
    return status ? status : ddl_event_file_flush(&tb->file, err);
}

/* ---- samples ---- */

/* Appends the text to out, which has space for three times its size. Returns the bytes appended. */
static size_t append_utf8(const char *text, size_t size, char *out)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t used = 0;
    for (size_t i = 0, n; i < size; i += n ? n : 1) {
        uint32_t code;
        n = ddl_utf8_decode((const unsigned char *)text + i, size - i, &code);
        memcpy(out + used, n ? text + i : replacement, n ? n : sizeof replacement - 1);
        used += n ? n : sizeof replacement - 1;
    }
    return used;
}

static ddl_status add_text(struct ddl_tensorboard *tb, uint64_t step, ProtobufCBinaryData text,
                           struct ddl_error *err)
{
    char tag[] = "sample", plugin[] = "text";
    Tensorboard__SummaryMetadata__PluginData data = TENSORBOARD__SUMMARY_METADATA__PLUGIN_DATA__INIT;
    Tensorboard__SummaryMetadata metadata = TENSORBOARD__SUMMARY_METADATA__INIT;
    Tensorboard__TensorShapeProto__Dim dim = TENSORBOARD__TENSOR_SHAPE_PROTO__DIM__INIT, *dims = &dim;
    Tensorboard__TensorShapeProto shape = TENSORBOARD__TENSOR_SHAPE_PROTO__INIT;
    Tensorboard__TensorProto tensor = TENSORBOARD__TENSOR_PROTO__INIT;
    Tensorboard__Summary__Value value = TENSORBOARD__SUMMARY__VALUE__INIT;
    data.plugin_name = plugin;
    metadata.plugin_data = &data;
    metadata.data_class = TENSORBOARD__DATA_CLASS__DATA_CLASS_TENSOR;
    dim.size = 1;
    shape.n_dim = 1;
    shape.dim = &dims;
    tensor.dtype = TENSORBOARD__DATA_TYPE__DT_STRING;
    tensor.tensor_shape = &shape;
    tensor.n_string_val = 1;
    tensor.string_val = &text;
    value.tag = tag;
    value.metadata = &metadata;
    value.value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_TENSOR;
    value.tensor = &tensor;
    return add_value(tb, step, &value, err);
}

ddl_status ddl_tensorboard_sample(struct ddl_tensorboard *tb, uint64_t step, const char *prompt,
                                  const char *text, size_t size, struct ddl_error *err)
{
    size_t n = strlen(prompt);
    if (!tb->file.stream)
        return DDL_OK;
    char *valid = malloc(3 * (n + size) + 1);
    if (!valid)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for a sample of text", tb->file.path);
    size_t used = append_utf8(prompt, n, valid);
    used += append_utf8(text, size, valid + used);
    ddl_status status =
        add_text(tb, step, (ProtobufCBinaryData){ .len = used, .data = (unsigned char *)valid }, err);
    free(valid);
    return status ? status : ddl_event_file_flush(&tb->file, err);
}

ddl_status ddl_tensorboard_sync(struct ddl_tensorboard *tb, struct ddl_error *err)
{
    return tb->file.stream ? ddl_event_file_sync(&tb->file, err) : DDL_OK;
}
