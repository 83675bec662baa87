/* ddl logprobs: its lines as TSV and JSON, and where the text comes from. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"
#include "support/program.h"
#include "support/runs.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than the context of 16 tokens; one character of three bytes, which the tokenizer divides. */
static const char words[] =
    "Permission is hereby\tgranted \\ free of charge,\nto any person \xe2\x82\xac.\r\n";

static char folder[2048], text[2048];

static int write_inputs(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", tiny_folder("model", "ddl-cc-ec"));
    snprintf(text, sizeof text, "%s", scratch_path("text.txt"));
    write_file(text, words, strlen(words));
    return 0;
}

/* ---- reading lines back ---- */

struct line {
    unsigned long long position;
    long id, rank;
    char bytes[64];
    size_t size;
    double logprob, entropy;
};

static size_t unescape(const char *from, char *out)
{
    size_t n = 0;
    for (; *from && n < 63; from++) {
        if (*from != '\\') {
            out[n++] = *from;
        } else if (*++from == 'x') {
            char digits[3] = { from[1], from[2], '\0' };
            out[n++] = (char)strtol(digits, NULL, 16);
            from += 2;
        } else {
            out[n++] = *from == 't' ? '\t' : *from == 'n' ? '\n' : *from == 'r' ? '\r' : '\\';
        }
    }
    return n;
}

static void read_tsv(char *row, struct line *out)
{
    char *cell[6], *save = NULL;
    for (size_t i = 0; i < 6; i++)
        assert_non_null(cell[i] = strtok_r(i ? NULL : row, "\t", &save));
    assert_null(strtok_r(NULL, "\t", &save));
    out->position = strtoull(cell[0], NULL, 10);
    out->id = strtol(cell[1], NULL, 10);
    out->size = unescape(cell[2], out->bytes);
    out->logprob = strtod(cell[3], NULL);
    out->rank = strtol(cell[4], NULL, 10);
    out->entropy = strtod(cell[5], NULL);
}

static void read_json(const char *row, struct line *out)
{
    json_t *root = json_loads(row, JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    const json_t *piece = json_object_get(root, "text"), *bytes = json_object_get(root, "bytes");
    out->position = (unsigned long long)json_integer_value(json_object_get(root, "position"));
    out->id = (long)json_integer_value(json_object_get(root, "id"));
    out->rank = (long)json_integer_value(json_object_get(root, "rank"));
    out->logprob = json_number_value(json_object_get(root, "logprob"));
    out->entropy = json_number_value(json_object_get(root, "entropy"));
    out->size = bytes ? json_array_size(bytes) : json_string_length(piece);
    assert_true(out->size < sizeof out->bytes);
    for (size_t i = 0; i < out->size; i++)
        out->bytes[i] =
            bytes ? (char)json_integer_value(json_array_get(bytes, i)) : json_string_value(piece)[i];
    assert_true(!bytes || strstr(json_string_value(piece), "\xef\xbf\xbd"));
    json_decref(root);
}

enum { MOST = 200 };

/* The lines of `printed`, whose texts together are `words`; returns their number. */
static size_t read_lines(bool json, struct line *lines)
{
    char whole[1024], *save = NULL;
    size_t n = 0, size = 0;
    char *row = strtok_r(printed, "\n", &save);
    if (!json) {
        assert_string_equal(row, "position\tid\ttext\tlogprob\trank\tentropy");
        row = strtok_r(NULL, "\n", &save);
    }
    for (; row; row = strtok_r(NULL, "\n", &save), n++) {
        assert_true(n < MOST);
        if (json)
            read_json(row, &lines[n]);
        else
            read_tsv(row, &lines[n]);
        assert_int_equal(lines[n].position, n);
        assert_true(size + lines[n].size < sizeof whole);
        memcpy(whole + size, lines[n].bytes, lines[n].size);
        size += lines[n].size;
    }
    assert_int_equal(size, strlen(words));
    assert_memory_equal(whole, words, size);
    return n;
}

static size_t score(bool json, const char *arguments, struct line *lines)
{
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "logprobs '%s' %s %s", folder, json ? "--json" : "", arguments), 0);
    return read_lines(json, lines);
}

/* ---- tests ---- */

static double number_after(const char *name)
{
    const char *at = strstr(printed, name);
    assert_non_null(at);
    return strtod(at + strlen(name), NULL);
}

/* Of a file and of standard input, as TSV and as JSON: the same values, and the sum is that of ddl eval. */
static void lines_agree(void **state)
{
    (void)state;
    static const char *const flags[] = { "--backend ref", "--backend ref --stride 5 --batch 2",
                                         "--backend cpu --threads 2 --seq 7",
                                         "--backend cpu --stride 3 --dtype int8" };
    static struct line tsv[MOST], json[MOST];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char arguments[4096];
        double sum = 0;
        snprintf(arguments, sizeof arguments, "'%s' %s", text, flags[i]);
        size_t n = score(false, arguments, tsv);
        snprintf(arguments, sizeof arguments, "%s %s <'%s'", i % 2 ? "-" : "", flags[i], text);
        assert_int_equal(score(true, arguments, json), n);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(tsv[k].id, json[k].id);
            assert_int_equal(tsv[k].rank, json[k].rank);
            assert_in_range(tsv[k].rank, 0, TINY_VOCAB - 1);
            assert_true(tsv[k].logprob == json[k].logprob && tsv[k].entropy == json[k].entropy);
            sum += tsv[k].logprob;
        }
        assert_int_equal(
            ddl_stream(STANDARD_OUTPUT, "eval '%s' --text '%s' --json %s", folder, text, flags[i]), 0);
        assert_true(number_after("\"tokens\":") == (double)n);
        assert_true(fabs(sum + number_after("\"loss\":") * (double)n) < 1e-6 * fabs(sum));
    }
}

static void escapes(void **state)
{
    (void)state;
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "logprobs '%s' '%s'", folder, text), 0);
    static const char *const cells[] = {
        "\t\\t\t", "\\\\\t", "\\n\t", "\\r", "\\xE2\t", "\\x82\t", "\\xAC\t"
    };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        assert_printed(cells[i]);
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "logprobs '%s' --json '%s'", folder, text), 0);
    assert_printed("\"bytes\":[226],");
    /* other control characters */
    write_file(scratch_path("control.txt"), "a\x1b[1mb\x7f", 7);
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "logprobs '%s' '%s'", folder, scratch_path("control.txt")),
                     0);
    assert_printed("\\x1B");
    assert_printed("\\x7F");
    assert_null(strchr(printed, 0x1b));
}

static void quiet(void **state)
{
    (void)state;
    assert_int_equal(ddl_stream(STANDARD_ERROR, "logprobs '%s' '%s' --quiet", folder, text), 0);
    assert_string_equal(printed, "");
}

static void refusals(void **state)
{
    (void)state;
    char lines[12][8000], bare[2048], small[2048];
    struct ddl_error err;
    ddl_backend *backend;
    write_file(scratch_path("binary"), "ab\0c", 4);
    write_file(scratch_path("empty"), "", 0);
    /* a model without a tokenizer, and one whose vocabulary is smaller than the tokenizer's */
    snprintf(bare, sizeof bare, "%s", scratch_path("bare"));
    snprintf(small, sizeof small, "%s", scratch_path("small"));
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    const char *const paths[] = { bare, small };
    for (size_t i = 0; i < 2; i++) {
        ddl_model *model = tiny_model("baseline", i ? 200 : TINY_VOCAB, 1, backend);
        assert_ok(ddl_file_make_dir(paths[i], &err), err);
        assert_ok(ddl_model_save(model, paths[i], &err), err);
        ddl_model_free(model);
    }
    ddl_backend_free(backend);
    snprintf(lines[0], sizeof lines[0], "logprobs '%s' '%s'", folder, scratch_path("binary"));
    snprintf(lines[1], sizeof lines[1], "logprobs '%s' <'%s'", folder, scratch_path("binary"));
    snprintf(lines[2], sizeof lines[2], "logprobs '%s' </dev/null", folder);
    snprintf(lines[3], sizeof lines[3], "logprobs '%s' '%s' --json", folder, scratch_path("empty"));
    snprintf(lines[4], sizeof lines[4], "logprobs '%s' '%s'", bare, text);
    snprintf(lines[5], sizeof lines[5], "logprobs '%s' '%s' --tokenizer '%s'", small, text, folder);
    snprintf(lines[6], sizeof lines[6], "logprobs '%s' '%s.none'", folder, text);
    snprintf(lines[7], sizeof lines[7], "logprobs '%s' '%s' '%s'", folder, text, text);
    snprintf(lines[8], sizeof lines[8], "logprobs '%s' '%s' --stride 17", folder, text);
    const struct refusal list[] = {
        { lines[0], 1, "binary: expected text, found a zero byte at 2" },
        { lines[1], 1, "standard input: expected text, found a zero byte at 2" },
        { lines[2], 1, "standard input: expected text, found nothing" },
        { lines[3], 1, "empty: expected text, found nothing" },
        { lines[4], 1, "bare" },
        { lines[5], 1, "tokens, " },
        { lines[6], 1, "text.txt.none: cannot open: " },
        { lines[7], 2, "too many arguments: expected at most 2, found 3" },
        { lines[8], 2, "stride: expected at most 16, the value of seq, found 17" },
        { "logprobs", 2, "logprobs: missing argument: expected a model folder (DIR)" },
        { "logprobs x --csv", 2, "unknown option '--csv'" },
    };
    assert_refused(list, sizeof list / sizeof *list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_agree),
        cmocka_unit_test(escapes),
        cmocka_unit_test(quiet),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, write_inputs, NULL);
}
