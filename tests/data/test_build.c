/* Tests data/build.c with reader, pipeline and shard set: the shards contain the ids of the documents in
 * order, independently of compression, pieces and threads; a failure leaves no files. */
#define _POSIX_C_SOURCE 200809L
#include "data/pack.h"
#include "support/tokenizer.h"

#include "base/rng.h"
#include "ddl/data.h"

#include <unistd.h>

enum { END_OF_TEXT = 0 };

/* Returns a scratch path that stays valid until the next call, unlike the rotating buffers of
 * scratch_path. */
static const char *input_path(const char *relative)
{
    static char path[2048];
    snprintf(path, sizeof path, "%s", scratch_path(relative));
    return path;
}

static struct ddl_build_config config_for(const char *out)
{
    struct ddl_build_config c = ddl_build_defaults();
    snprintf(c.tokenizer, sizeof c.tokenizer, "%s", tokenizer_path);
    snprintf(c.out, sizeof c.out, "%s", scratch_path(out));
    return c;
}

/* Builds one input of the scratch folder into a new folder. */
static struct ddl_build_result build_with(const struct ddl_build_config *c, const char *input)
{
    const char *inputs[] = { input };
    struct ddl_error err;
    struct ddl_build_result result;
    assert_ok(ddl_data_build(c, inputs, 1, NULL, NULL, &result, &err), err);
    return result;
}

static struct ddl_build_result build(const char *input, const char *out)
{
    remove_scratch(out);
    struct ddl_build_config c = config_for(out);
    return build_with(&c, scratch_path(input));
}

static void expect_document(struct ddl_ids *ids, const char *text, size_t size)
{
    struct ddl_error err;
    size_t n = ids->n;
    assert_ok(ddl_tokenizer_encode(tokenizer, " ", 1, false, ids, &err), err); /* capacity for one id */
    ids->n = n + 1;
    ids->ids[n] = END_OF_TEXT;
    assert_ok(ddl_tokenizer_encode(tokenizer, text, size, false, ids, &err), err);
}

static void assert_tokens(const char *path, const struct ddl_ids *wanted)
{
    struct ddl_error err;
    ddl_shards *shards;
    assert_ok(ddl_shards_open(&shards, path, &err), err);
    assert_int_equal(ddl_shards_count(shards), wanted->n);
    int32_t *found = malloc(wanted->n * sizeof *found);
    assert_non_null(found);
    ddl_shards_read(shards, 0, wanted->n, found);
    assert_memory_equal(found, wanted->ids, wanted->n * sizeof *found);
    free(found);
    ddl_shards_close(shards);
}

/* Document boundaries in text files. */
static void separators(void **state)
{
    (void)state;
    static const struct {
        const char *separator, *text;
        const char *documents[4];
        uint64_t skipped;
    } cases[] = {
        { "<|endoftext|>", "one\n<|endoftext|>\ntwo\nlines\n", { "one\n", "two\nlines\n" }, 0 },
        { "<|endoftext|>", "one\n<|endoftext|>\ntwo\n<|endoftext|>", { "one\n", "two\n" }, 1 },
        { "<|endoftext|>",
          "<|endoftext|>\r\none<|endoftext|>\r\n<|endoftext|>\r\nx",
          { "one<|endoftext|>\r\n", "x" },
          1 },
        { "<|endoftext|>",
          "a\n<|endoftext|> \n <|endoftext|>\nb",
          { "a\n<|endoftext|> \n <|endoftext|>\nb" },
          0 },
        { "", "a\n\nb\n<|endoftext|>\n", { "a\n\nb\n<|endoftext|>\n" }, 0 },
        { "---", "a\n---\n---\nb", { "a\n", "b" }, 1 },
        { "---", "\n---\n \n", { "\n", " \n" }, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        remove_scratch("out");
        write_file(scratch_path("in.txt"), cases[i].text, strlen(cases[i].text));
        struct ddl_build_config c = config_for("out");
        strcpy(c.input.separator, cases[i].separator);
        struct ddl_build_result r = build_with(&c, scratch_path("in.txt"));
        struct ddl_ids wanted = { 0 };
        size_t n = 0, bytes = 0;
        for (; cases[i].documents[n]; n++) {
            expect_document(&wanted, cases[i].documents[n], strlen(cases[i].documents[n]));
            bytes += strlen(cases[i].documents[n]);
        }
        assert_tokens(scratch_path("out"), &wanted);
        assert_int_equal(r.documents[0], n);
        assert_int_equal(r.documents[1], 0);
        assert_int_equal(r.skipped, cases[i].skipped);
        assert_int_equal(r.bytes[0], bytes);
        assert_int_equal(r.tokens[0], wanted.n);
        assert_int_equal(r.shards[0], 1);
        assert_int_equal(r.shards[1], 0);
        assert_int_equal(r.bytes_per_token, 2);
        assert_false(ddl_file_exists(scratch_path("out/val_000000.bin")));
        ddl_ids_free(&wanted);
    }
}

static void json_lines(void **state)
{
    (void)state;
    static const char text[] =
        "{\"text\": \"one\\n\\u00e9\", \"id\": 1}\n\n{\"id\": [2], \"text\": \"\"}\r\n  \n"
        "{\"text\":\"nul \\u0000 in it\"}\n"
        "{\"id\":123456789012345678901234567890,\"x\":[1e999,-1E+999],\"text\":\"first\",\"text\":\"last\"}";
    write_file(scratch_path("in.jsonl"), text, sizeof text - 1);
    struct ddl_build_result r = build("in.jsonl", "out");
    struct ddl_ids wanted = { 0 };
    expect_document(&wanted, "one\n\xc3\xa9", 6);
    expect_document(&wanted, "nul \0 in it", 11);
    expect_document(&wanted, "last", 4);
    assert_tokens(scratch_path("out"), &wanted);
    assert_int_equal(r.documents[0], 3);
    assert_int_equal(r.skipped, 1);
    ddl_ids_free(&wanted);
}

/* Texts of a megabyte, one document each, cut into pieces: the ids must be those of the whole. */
static size_t prose(char *out, size_t size)
{
    size_t n;
    char *text = read_file(source_path("data/text/tinyshakespeare.txt"), &n);
    n = n < size ? n : size;
    memcpy(out, text, n);
    free(text);
    return n;
}

static size_t from_atoms(char *out, size_t size, const char *const *atoms, size_t n_atoms)
{
    size_t at = 0;
    for (uint64_t i = 0; at + 8 < size; i++) {
        const char *atom = atoms[ddl_rng_below(7, i, n_atoms)];
        memcpy(out + at, atom, strlen(atom));
        at += strlen(atom);
    }
    return at;
}

static size_t mixed(char *out, size_t size)
{
    static const char *const atoms[] = { " ",
                                         " ",
                                         "\n",
                                         "'s",
                                         "'",
                                         "word",
                                         "Z",
                                         "7",
                                         "!",
                                         "\t",
                                         "\xc3\xa9",
                                         "\xe3\x80\x80",
                                         "\xff",
                                         "\xe4\xb8\xad",
                                         "<|endoftext|>",
                                         "  " };
    return from_atoms(out, size, atoms, sizeof atoms / sizeof *atoms);
}

static size_t one_long_line(char *out, size_t size)
{
    static const char *const atoms[] = { "word", "Z", "!", "  ", "42", "\xe4\xb8\xad" };
    return from_atoms(out, size, atoms, sizeof atoms / sizeof *atoms);
}

static size_t chinese_lines(char *out, size_t size)
{
    static const char *const atoms[] = { "\xe4\xb8\xad", "\xe5\x9b\xbd", "\xe3\x80\x82\n", "\xe6\x96\x87" };
    return from_atoms(out, size, atoms, sizeof atoms / sizeof *atoms);
}

static size_t (*const long_texts[])(char *out, size_t size) = { prose, mixed, one_long_line, chinese_lines };
enum { N_LONG_TEXTS = sizeof long_texts / sizeof *long_texts, LONG_TEXT = 1 << 20 };

static void pieces_encode_like_the_whole(void **state)
{
    (void)state;
    char *text = malloc(LONG_TEXT);
    assert_non_null(text);
    for (size_t i = 0; i < N_LONG_TEXTS; i++) {
        size_t size = long_texts[i](text, LONG_TEXT);
        write_file(scratch_path("long.txt"), text, size);
        remove_scratch("out");
        struct ddl_build_config c = config_for("out");
        c.input.separator[0] = '\0';
        struct ddl_build_result r = build_with(&c, input_path("long.txt"));
        struct ddl_ids wanted = { 0 };
        expect_document(&wanted, text, size);
        assert_tokens(scratch_path("out"), &wanted);
        assert_int_equal(r.documents[0], 1);
        assert_int_equal(r.bytes[0], size);
        ddl_ids_free(&wanted);
    }
    free(text);
}

/* Lines that end at and around the end of the reader's buffer (2^18 bytes). */
static void line_ends_at_buffer_ends(void **state)
{
    (void)state;
    char *text = malloc(LONG_TEXT);
    assert_non_null(text);
    for (size_t extra = 0; extra < 3; extra++) {
        static const char separator[] = "<|endoftext|>\n";
        size_t first = (1 << 18) - 1 + extra, size = first;
        for (size_t i = 0; i < first; i++)
            text[i] = i % 6 ? 'a' : ' ';
        text[first - 1] = '\n';
        memcpy(text + size, separator, sizeof separator - 1);
        size += sizeof separator - 1;
        for (size_t i = 0; i < first - 1; i++)
            text[size + i] = i % 5 ? 'b' : ' ';
        write_file(scratch_path("lines.txt"), text, size + first - 1);
        build("lines.txt", "out");
        struct ddl_ids wanted = { 0 };
        expect_document(&wanted, text, first);
        expect_document(&wanted, text + size, first - 1);
        assert_tokens(scratch_path("out"), &wanted);
        ddl_ids_free(&wanted);
    }
    free(text);
}

/* A JSON line of exactly the buffer's size without a line break, and a longer one. */
static void long_json_lines(void **state)
{
    (void)state;
    static const char head[] = "{\"text\":\"", tail[] = "\"}";
    char *text = malloc(LONG_TEXT);
    assert_non_null(text);
    for (size_t extra = 0; extra < 3; extra++) {
        size_t size = (1 << 18) - 1 + extra, inside = size - sizeof head - sizeof tail + 2;
        memcpy(text, head, sizeof head - 1);
        for (size_t i = 0; i < inside; i++)
            text[sizeof head - 1 + i] = i % 6 ? 'a' : ' ';
        memcpy(text + size - sizeof tail + 1, tail, sizeof tail - 1);
        write_file(scratch_path("line.jsonl"), text, size);
        build("line.jsonl", "out");
        struct ddl_ids wanted = { 0 };
        expect_document(&wanted, text + sizeof head - 1, inside);
        assert_tokens(scratch_path("out"), &wanted);
        ddl_ids_free(&wanted);
    }
    free(text);
}

static void packed_and_piped(void **state)
{
    (void)state;
    size_t size, n;
    char *text = read_file(source_path("data/text/fineweb_edu_sample.txt"), &size);
    write_file(scratch_path("plain.txt"), text, size);
    unsigned char *packed = pack_gzip(text, size, &n);
    write_file(scratch_path("plain.txt.gz"), packed, n);
    free(packed);
    packed = pack_zstd(text, size, &n);
    write_file(scratch_path("plain.txt.zst"), packed, n);
    free(packed);
    free(text);
    build("plain.txt", "plain");
    build("plain.txt.gz", "gz");
    build("plain.txt.zst", "zst");
    assert_same_file(scratch_path("plain/train_000000.bin"), scratch_path("gz/train_000000.bin"));
    assert_same_file(scratch_path("plain/train_000000.bin"), scratch_path("zst/train_000000.bin"));

    remove_scratch("piped");
    assert_non_null(freopen(scratch_path("plain.txt"), "rb", stdin));
    struct ddl_build_config c = config_for("piped");
    build_with(&c, "-");
    assert_same_file(scratch_path("plain/train_000000.bin"), scratch_path("piped/train_000000.bin"));
}

/* 3000 documents of 0 to 400 words, and some of 400 kB, each starting with its index. */
static void write_documents(const char *path, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) {
        size_t words = i % 500 == 17 ? 80000 : (size_t)ddl_rng_below(11, i, 400);
        fprintf(f, "{\"text\": \"%zu:", i);
        for (size_t w = 0; w < words; w++)
            fprintf(f, " w%llu", (unsigned long long)ddl_rng_below(i, w, 1000));
        fputs("\"}\n", f);
    }
    assert_int_equal(fclose(f), 0);
}

static void any_number_of_threads(void **state)
{
    (void)state;
    static const size_t threads[] = { 1, 2, 5 };
    static const char *const files[] = { "train_000000.bin", "train_000001.bin", "train_000003.bin",
                                         "val_000000.bin" };
    struct ddl_build_result first = { 0 };
    write_documents(scratch_path("docs.jsonl"), 3000);
    for (size_t i = 0; i < 3; i++) {
        char out[32], path[64];
        snprintf(out, sizeof out, "threads%zu", threads[i]);
        remove_scratch(out);
        struct ddl_build_config c = config_for(out);
        c.threads = threads[i];
        c.val_fraction = 0.1;
        c.seed = 9;
        c.shard_tokens = 300001;
        struct ddl_build_result r = build_with(&c, scratch_path("docs.jsonl"));
        if (i == 0)
            first = r;
        assert_true(r.shards[0] > 3 && r.shards[1] > 0);
        assert_int_equal(r.documents[0] + r.documents[1], 3000);
        assert_memory_equal(r.tokens, first.tokens, sizeof r.tokens);
        assert_memory_equal(r.documents, first.documents, sizeof r.documents);
        /* expected 300, standard deviation 16 */
        assert_true(r.documents[1] > 220 && r.documents[1] < 380);
        for (size_t f = 0; f < sizeof files / sizeof *files && i > 0; f++) {
            snprintf(path, sizeof path, "threads1/%s", files[f]);
            const char *one = scratch_path(path);
            snprintf(path, sizeof path, "%s/%s", out, files[f]);
            assert_same_file(one, scratch_path(path));
        }
    }
}

/* Reads the indices of the documents in a folder's train or val shards, from their first word. */
static size_t document_numbers(const char *pattern, size_t *numbers, size_t capacity)
{
    struct ddl_error err;
    ddl_shards *shards;
    assert_ok(ddl_shards_open(&shards, scratch_path(pattern), &err), err);
    uint64_t count = ddl_shards_count(shards);
    size_t n = 0;
    for (uint64_t at = 0; at < count; at++) {
        int32_t ids[9];
        ddl_shards_read(shards, at, 9, ids);
        if (ids[0] != END_OF_TEXT)
            continue;
        char text[256];
        size_t used = 0;
        for (int i = 1; i < 9 && used < 100; i++) {
            size_t size;
            const char *bytes = ddl_tokenizer_bytes(tokenizer, ids[i], &size);
            memcpy(text + used, bytes, size);
            used += size;
        }
        text[used] = '\0';
        assert_true(n < capacity);
        numbers[n++] = strtoul(text, NULL, 10);
    }
    ddl_shards_close(shards);
    return n;
}

/* The split of a document is a function of seed and index: later documents and threads must not affect it. */
static void split_is_stable(void **state)
{
    (void)state;
    enum { N = 600 };
    static const struct {
        const char *out;
        size_t documents, threads;
        uint64_t seed;
    } runs[] = { { "split_a", N, 2, 4 }, { "split_b", N / 2, 1, 4 }, { "split_c", N, 2, 5 } };
    size_t held[3][N], n[3];
    for (int i = 0; i < 3; i++) {
        char pattern[64];
        write_documents(scratch_path("some.jsonl"), runs[i].documents);
        remove_scratch(runs[i].out);
        struct ddl_build_config c = config_for(runs[i].out);
        c.threads = runs[i].threads;
        c.seed = runs[i].seed;
        c.val_fraction = 0.25;
        build_with(&c, scratch_path("some.jsonl"));
        size_t kept[N];
        snprintf(pattern, sizeof pattern, "%s/val_*.bin", runs[i].out);
        n[i] = document_numbers(pattern, held[i], N);
        snprintf(pattern, sizeof pattern, "%s/train_*.bin", runs[i].out);
        size_t rest = document_numbers(pattern, kept, N), k = 0, v = 0;
        assert_int_equal(n[i] + rest, runs[i].documents);
        for (size_t d = 0; d < runs[i].documents; d++) { /* in order, each in one split */
            if (v < n[i] && held[i][v] == d)
                v++;
            else
                assert_int_equal(kept[k++], d);
        }
    }
    assert_true(n[1] < n[0]);
    assert_memory_equal(held[1], held[0], n[1] * sizeof(size_t));
    assert_true(n[0] == n[1] || held[0][n[1]] >= N / 2);
    assert_true(n[2] != n[0] || memcmp(held[2], held[0], n[0] * sizeof(size_t)) != 0);
}

static void everything_held_out(void **state)
{
    (void)state;
    write_file(scratch_path("in.txt"), "some text", 9);
    remove_scratch("out");
    struct ddl_build_config c = config_for("out");
    c.val_fraction = 1;
    struct ddl_build_result r = build_with(&c, scratch_path("in.txt"));
    assert_int_equal(r.documents[1], 1);
    assert_int_equal(r.shards[0], 0);
    assert_false(ddl_file_exists(scratch_path("out/train_000000.bin")));
}

/* ---- prompts and responses ---- */

static struct ddl_build_config config_of_prompts(const char *out)
{
    struct ddl_build_config c = config_for(out);
    snprintf(c.input.prompt_key, sizeof c.input.prompt_key, "q");
    snprintf(c.input.response_key, sizeof c.input.response_key, "a");
    return c;
}

/* Adds the ids of a text, counted or not. */
static void add_text(struct ddl_ids *ids, unsigned char *groups, const char *text, int group)
{
    struct ddl_error err;
    size_t n = ids->n;
    assert_ok(ddl_tokenizer_encode(tokenizer, text, strlen(text), false, ids, &err), err);
    memset(groups + n, group, ids->n - n);
}

/* Questions with 0 to 6 words; every seventh answer is empty. */
static void masks_of_responses(void **state)
{
    (void)state;
    enum { DOCUMENTS = 60, MOST = 4000 };
    char lines[DOCUMENTS * 100], *at = lines;
    for (int i = 0; i < DOCUMENTS; i++) {
        const char *answer = i % 7 == 3 ? "" : "it is\\nso";
        at += i % 2 ? sprintf(at, "{\"a\":\"%s %d\",\"q\":\"%.*s\"}\n", answer, i, 2 * (i % 6), "x y z u v ")
                    : sprintf(at, "{\"q\":\"%.*s\",\"a\":\"%s\"}\n", 2 * (i % 6), "x y z u v ", answer);
    }
    write_file(scratch_path("in.jsonl"), lines, (size_t)(at - lines));
    for (int build = 0; build < 3; build++) {
        struct ddl_build_config c = config_of_prompts("masked");
        struct ddl_error err;
        c.val_fraction = 0.3;
        c.shard_tokens = build ? 37 : 100000;
        c.part_bytes = build == 2 ? 200 : 100000;
        remove_scratch("masked");
        struct ddl_build_result r = build_with(&c, scratch_path("in.jsonl"));
        assert_int_equal(r.skipped, 4); /* 10, 24, 38, 52: the odd ones have a number */
        uint64_t key = ddl_rng_key(c.seed, "held-out split");
        for (int split = 0; split < 2; split++) {
            struct ddl_ids ids = { 0 };
            unsigned char expected[MOST], groups[MOST];
            int32_t tokens[MOST];
            ddl_shards *shards;
            for (int i = 0; i < DOCUMENTS; i++) {
                char question[32], answer[64];
                snprintf(question, sizeof question, "%.*s", 2 * (i % 6), "x y z u v ");
                snprintf(answer, sizeof answer, i % 2 ? "%s %d" : "%s", i % 7 == 3 ? "" : "it is\nso", i);
                if ((ddl_rng_uniform(key, (uint64_t)i) < 0.3) != (split == 1) || !*answer)
                    continue;
                add_text(&ids, expected, "<", ids.n > 0); /* <|endoftext|>, which ends the answer before it */
                ids.ids[ids.n - 1] = END_OF_TEXT;
                add_text(&ids, expected, question, 0);
                add_text(&ids, expected, answer, 1);
            }
            const struct ddl_shards_options options = { .split = split ? DDL_SHARDS_VAL : DDL_SHARDS_TRAIN };
            assert_ok(ddl_shards_open_with(&shards, scratch_path("masked"), &options, &err), err);
            assert_int_equal(ddl_shards_count(shards), ids.n);
            assert_int_equal(ddl_shards_n_masks(shards), ddl_shards_n_files(shards));
            assert_true(!build || ddl_shards_n_files(shards) > 3);
            ddl_shards_read(shards, 0, ids.n, tokens);
            ddl_shards_read_groups(shards, 0, ids.n, groups);
            assert_memory_equal(tokens, ids.ids, ids.n * sizeof *tokens);
            assert_memory_equal(groups, expected, ids.n);
            ddl_shards_close(shards);
            ddl_ids_free(&ids);
        }
    }
}

/* A mask that the record lists must be there; a build without prompts leaves none. */
static void masks_are_part_of_the_build(void **state)
{
    (void)state;
    struct ddl_build_config c = config_of_prompts("masked"), plain = config_for("masked");
    struct ddl_tokenizer_identity identity;
    struct ddl_error err;
    ddl_shards *shards;
    const char line[] = "{\"q\":\"a\",\"a\":\"b\",\"text\":\"c\"}\n";
    write_file(scratch_path("in.jsonl"), line, sizeof line - 1);
    remove_scratch("masked");
    build_with(&c, scratch_path("in.jsonl"));
    assert_int_equal(unlink(scratch_path("masked/train_000000.mask")), 0);
    assert_ok(ddl_shards_open(&shards, scratch_path("masked"), &err), err);
    assert_int_equal(ddl_shards_identity(shards, &identity, &err), DDL_E_FORMAT);
    assert_says(&err, "train_000000.mask: there is no such mask, but ");
    ddl_shards_close(shards);
    c.overwrite = plain.overwrite = true;
    build_with(&c, scratch_path("in.jsonl"));
    assert_true(ddl_file_exists(scratch_path("masked/train_000000.mask")));
    build_with(&plain, scratch_path("in.jsonl"));
    assert_false(ddl_file_exists(scratch_path("masked/train_000000.mask")));
}

/* A shard that the record lists must be there, unless others are named. */
static void shards_are_complete(void **state)
{
    (void)state;
    struct ddl_build_config c = config_for("complete");
    struct ddl_error err;
    ddl_shards *shards;
    remove_scratch("complete");
    c.shard_tokens = 100;
    build_with(&c, source_path("tests/golden/tokenizer-train/shakespeare.txt"));
    assert_int_equal(unlink(scratch_path("complete/train_000001.bin")), 0);
    assert_int_equal(ddl_shards_open(&shards, scratch_path("complete"), &err), DDL_E_FORMAT);
    assert_says(&err, "complete/train_000001.bin: there is no such shard, but ");
    assert_ok(ddl_shards_open(&shards, scratch_path("complete/train_*.bin"), &err), err);
    ddl_shards_close(shards);
}

static void wrong_prompts(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        double val_fraction;
        const char *gist;
    } cases[] = {
        { "p.txt", "text", 0, "p.txt: expected JSON lines with the keys \"q\" and \"a\", found text" },
        { "p.jsonl", "{\"q\":\"x\"}\n", 0, "p.jsonl:1: the object has no key \"a\"" },
        { "p.jsonl", "{\"q\":1,\"a\":\"x\"}\n", 0, "p.jsonl:1: \"q\": expected a string, found a number" },
        { "p.jsonl", "{\"q\":\"x\",\"a\":\"\"}\n", 0, "no text: 1 file, 1 empty document" },
        { "p.jsonl", "{\"q\":\"x\",\"a\":\"y\"}\n", 0.01,
          "val_fraction: 0.01 selects none of 1 documents for validation, and a prompt and its response are "
          "not "
          "divided: expected another fraction or more documents" },
    };
    struct ddl_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_build_config c = config_of_prompts("new/out");
        const char *inputs[] = { scratch_path(cases[i].name) };
        write_file(inputs[0], cases[i].text, strlen(cases[i].text));
        c.val_fraction = cases[i].val_fraction;
        remove_scratch("new");
        assert_int_equal(ddl_data_build(&c, inputs, 1, NULL, NULL, NULL, &err), DDL_E_FORMAT);
        assert_says(&err, cases[i].gist);
        assert_false(ddl_file_exists(scratch_path("new")));
    }
    struct ddl_build_config half = config_of_prompts("new/out");
    const char *inputs[] = { scratch_path("p.jsonl") };
    snprintf(half.input.prompt_key, sizeof half.input.prompt_key, "%s", half.input.response_key);
    assert_int_equal(ddl_data_build(&half, inputs, 1, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "--response_key: expected another key than --prompt_key's 'a'");
    half = config_of_prompts("new/out");
    snprintf(half.input.text_key, sizeof half.input.text_key, "t");
    assert_int_equal(ddl_data_build(&half, inputs, 1, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "--text_key: expected without --prompt_key, found 't'");
    half.input.prompt_key[0] = '\0';
    assert_int_equal(ddl_data_build(&half, inputs, 1, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "--response_key: expected with --prompt_key");
}

static void shards_concatenate(void **state)
{
    (void)state;
    struct ddl_ids wanted = { 0 };
    write_file(scratch_path("in.txt"), "one two three four five six seven", 33);
    expect_document(&wanted, "one two three four five six seven", 33);
    for (size_t size = 1; size < 10; size++) {
        remove_scratch("out");
        struct ddl_build_config c = config_for("out");
        c.shard_tokens = size;
        struct ddl_build_result r = build_with(&c, scratch_path("in.txt"));
        assert_int_equal(r.shards[0], (8 + size - 1) / size);
        assert_tokens(scratch_path("out"), &wanted);
    }
    ddl_ids_free(&wanted);
}

/* Ids above 65535 require version 2. */
static void wide_vocabulary(void **state)
{
    (void)state;
    size_t n;
    char *json = read_file(source_path("data/tokenizer/encoder.json"), &n);
    const char *entry = strstr(json, "\": 50256");
    assert_non_null(entry);
    memcpy(json + (entry - json), "\": 70000", 8);
    remove_scratch("wide");
    struct ddl_error err;
    assert_ok(ddl_file_make_dir(scratch_path("wide"), &err), err);
    write_file(scratch_path("wide/encoder.json"), json, n);
    free(json);
    json = read_file(source_path("data/tokenizer/vocab.bpe"), &n);
    write_file(scratch_path("wide/vocab.bpe"), json, n);
    free(json);
    write_file(scratch_path("in.txt"), "some text", 9);
    remove_scratch("out");
    struct ddl_build_config c = config_for("out");
    snprintf(c.tokenizer, sizeof c.tokenizer, "%s", scratch_path("wide"));
    struct ddl_build_result r = build_with(&c, scratch_path("in.txt"));
    assert_int_equal(r.bytes_per_token, 4);
    ddl_shards *shards;
    int32_t ids[3];
    int width;
    assert_ok(ddl_shards_open(&shards, scratch_path("out"), &err), err);
    assert_int_equal(ddl_shards_count(shards), 3);
    ddl_shards_file(shards, 0, NULL, &width);
    assert_int_equal(width, 4);
    ddl_shards_read(shards, 0, 3, ids);
    assert_int_equal(ids[0], 70000);
    ddl_shards_close(shards);
}

static int count_calls(void *user, const struct ddl_build_progress *p)
{
    int *calls = user;
    assert_int_equal(p->bytes_total, p->merging ? 6 : 9);
    assert_true(p->seconds >= 0);
    return ++*calls > 1000;
}

static int stop_at_once(void *user, const struct ddl_build_progress *p)
{
    (void)user;
    (void)p;
    return 1;
}

static void progress_and_interruption(void **state)
{
    (void)state;
    write_file(scratch_path("in.txt"), "some text", 9);
    remove_scratch("out");
    const char *inputs[] = { input_path("in.txt") };
    struct ddl_build_config c = config_for("out");
    struct ddl_error err;
    int calls = 0;
    assert_ok(ddl_data_build(&c, inputs, 1, count_calls, &calls, NULL, &err), err);
    assert_true(calls >= 1);
    remove_scratch("out");
    assert_int_equal(ddl_data_build(&c, inputs, 1, stop_at_once, NULL, NULL, &err), DDL_E_INTERRUPTED);
    assert_says(&err, "interrupted; nothing was written to ");
    assert_false(ddl_file_exists(scratch_path("out")));
}

/* Errors with their messages; the output folder and the parents created for it must be removed. */
static void failures_leave_no_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        size_t size; /* 0: strlen */
        ddl_status status;
        const char *gist;
    } cases[] = {
        { "bad.txt", "", 0, DDL_E_FORMAT, "no text: 1 file, 1 empty document" },
        { "bad.txt", "<|endoftext|>\n<|endoftext|>\n", 0, DDL_E_FORMAT,
          "no text: 1 file, 3 empty documents" },
        { "bad.txt", "ab\ncd\0e", 7, DDL_E_FORMAT,
          "bad.txt: NUL byte at byte 5: expected text, found binary data" },
        { "bad.jsonl", "\n\n", 0, DDL_E_FORMAT, "no text: 1 file, 0 empty documents" },
        { "bad.jsonl", "{\"text\":\"a\"}\n\n{\"text\":", 0, DDL_E_FORMAT,
          "bad.jsonl:3: invalid JSON at column 9: premature end of input" },
        { "bad.jsonl", "{\"text\":\"a\"} x\n", 0, DDL_E_FORMAT, "bad.jsonl:1: invalid JSON" },
        { "bad.jsonl", "{\"text\":\"\xff\"}\n", 0, DDL_E_FORMAT, "bad.jsonl:1: invalid JSON" },
        { "bad.jsonl", "{\"tekst\":\"a\"}\n", 0, DDL_E_FORMAT,
          "bad.jsonl:1: the object has no key \"text\"" },
        { "bad.jsonl", "{\"text\":7}\n", 0, DDL_E_FORMAT,
          "bad.jsonl:1: \"text\": expected a string, found a number" },
        { "bad.jsonl", "[\"text\"]\n", 0, DDL_E_FORMAT,
          "bad.jsonl:1: expected an object with the key \"text\", found an array" },
        { "bad.jsonl", "null\n", 0, DDL_E_FORMAT,
          "bad.jsonl:1: expected an object with the key \"text\", found null" },
        { "bad.txt.gz", "not gzip", 0, DDL_E_FORMAT, "bad.txt.gz: corrupted gzip data near byte " },
        { "bad.jsonl.zst", "not zstd", 0, DDL_E_FORMAT, "bad.jsonl.zst: corrupted zstd data near byte " },
        { "bad.txt.zst", "\x28\xb5\x2f\xfd", 0, DDL_E_FORMAT,
          "bad.txt.zst: ends at byte 4 inside the zstd data" },
        { "bad.pdf", "x", 0, DDL_E_USAGE, "bad.pdf: unknown file type: expected .txt" },
    };
    write_file(scratch_path("good.txt"), "some text before", 16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size = cases[i].size ? cases[i].size : strlen(cases[i].text);
        bool alone = strncmp(cases[i].gist, "no text", 7) == 0;
        write_file(scratch_path(cases[i].name), cases[i].text, size);
        remove_scratch("new");
        struct ddl_build_config c = config_for("new/out");
        const char *inputs[] = { scratch_path("good.txt"), scratch_path(cases[i].name) };
        struct ddl_error err;
        assert_int_equal(ddl_data_build(&c, inputs + alone, alone ? 1 : 2, NULL, NULL, NULL, &err),
                         cases[i].status);
        assert_says(&err, cases[i].gist);
        assert_false(ddl_file_exists(scratch_path("new")));
    }
}

static void configuration_is_checked(void **state)
{
    (void)state;
    write_file(scratch_path("in.txt"), "some text", 9);
    const char *inputs[] = { input_path("in.txt") };
    struct ddl_error err;
    remove_scratch("out");
    struct ddl_build_config c[6];
    static const char *const gists[6] = {
        "missing argument: expected --out DIR",       "--text_key is empty",
        "--val_fraction: expected 0 to 1, found 1.5", "--shard_tokens: expected 1 to 2147483647, found 0",
        "--separator: contains a line break",         "none"
    };
    for (size_t i = 0; i < 6; i++)
        c[i] = config_for("out");
    c[0].out[0] = '\0';
    c[1].input.text_key[0] = '\0';
    c[2].val_fraction = 1.5;
    c[3].shard_tokens = 0;
    strcpy(c[4].input.separator, "a\n");
    strcpy(c[5].tokenizer, scratch_path("none"));
    for (size_t i = 0; i < 6; i++) {
        assert_int_not_equal(ddl_data_build(&c[i], inputs, 1, NULL, NULL, NULL, &err), DDL_OK);
        assert_says(&err, gists[i]);
        assert_false(ddl_file_exists(scratch_path("out")));
    }
    write_file(scratch_path("out"), "a file", 6);
    c[0] = config_for("out");
    assert_int_equal(ddl_data_build(&c[0], inputs, 1, NULL, NULL, NULL, &err), DDL_E_IO);
    assert_says(&err, "out: ");
}

/* With many threads, the error reported must still be the first in input order. */
static void first_error_is_reported(void **state)
{
    (void)state;
    FILE *f = fopen(scratch_path("two.jsonl"), "wb");
    assert_non_null(f);
    for (int i = 1; i <= 20000; i++)
        fputs(i == 15000 || i == 19000 ? "{\"text\": 1}\n" : "{\"text\": \"words and words and words\"}\n",
              f);
    fputs("{", f);
    assert_int_equal(fclose(f), 0);
    for (size_t threads = 1; threads < 8; threads += 3) {
        remove_scratch("out");
        struct ddl_build_config c = config_for("out");
        const char *inputs[] = { input_path("two.jsonl") };
        struct ddl_error err;
        c.threads = threads;
        assert_int_equal(ddl_data_build(&c, inputs, 1, NULL, NULL, NULL, &err), DDL_E_FORMAT);
        assert_says(&err, "two.jsonl:15000: ");
    }
}

static void not_text_at_all(void **state)
{
    (void)state;
    enum { SIZE = 40 << 20 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    write_file(scratch_path("a.txt"), text, SIZE);
    free(text);
    remove_scratch("out");
    struct ddl_build_config c = config_for("out");
    const char *inputs[] = { input_path("a.txt") };
    struct ddl_error err;
    assert_int_equal(ddl_data_build(&c, inputs, 1, NULL, NULL, NULL, &err), DDL_E_FORMAT);
    assert_says(&err, "a.txt: 16 MiB before byte ");
    unlink(scratch_path("a.txt"));
}

static void existing_shards(void **state)
{
    (void)state;
    struct ddl_error err;
    const char *inputs[] = { input_path("in.txt") };
    write_file(scratch_path("in.txt"), "one two three four five six seven", 33);
    remove_scratch("out");
    struct ddl_build_config c = config_for("out");
    c.shard_tokens = 3;
    build_with(&c, inputs[0]);
    assert_true(ddl_file_exists(scratch_path("out/train_000002.bin")));
    assert_int_equal(ddl_data_build(&c, inputs, 1, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "out: already has shards (train_00000");
    /* A failure with overwrite keeps the old shards; success replaces them. */
    c.overwrite = true;
    c.shard_tokens = 5;
    assert_int_equal(ddl_data_build(&c, inputs, 1, stop_at_once, NULL, NULL, &err), DDL_E_INTERRUPTED);
    assert_true(ddl_file_exists(scratch_path("out/train_000002.bin")));
    build_with(&c, inputs[0]);
    assert_true(ddl_file_exists(scratch_path("out/train_000001.bin")));
    assert_false(ddl_file_exists(scratch_path("out/train_000002.bin")));
    char out[4096], command[4096];
    snprintf(command, sizeof command, "ls -A '%s'", scratch_path("out"));
    assert_int_equal(run_command(command, out, sizeof out), 0);
    assert_string_equal(out, "shards.json\ntrain_000000.bin\ntrain_000001.bin\n");
    /* Shards that no build wrote are neither mixed in nor removed. */
    write_shard(scratch_path("out/mine.bin"), 2, 0, 1);
    assert_int_equal(ddl_data_build(&c, inputs, 1, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "out: contains mine.bin, which is not from a build");
    assert_true(ddl_file_exists(scratch_path("out/mine.bin")));
    assert_true(ddl_file_exists(scratch_path("out/train_000001.bin")));
}

/* Every document of the bundled text goes through the entire pipeline. */
static void shipped_text(void **state)
{
    (void)state;
    remove_scratch("out");
    struct ddl_build_config c = config_for("out");
    struct ddl_build_result r = build_with(&c, source_path("data/text/openstax_textbooks.jsonl.zst"));
    assert_int_equal(r.documents[0], 1925);
    assert_int_equal(r.bytes[0], 23997033);
    assert_int_equal(r.skipped, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(separators),
        cmocka_unit_test(json_lines),
        cmocka_unit_test(pieces_encode_like_the_whole),
        cmocka_unit_test(line_ends_at_buffer_ends),
        cmocka_unit_test(long_json_lines),
        cmocka_unit_test(packed_and_piped),
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(split_is_stable),
        cmocka_unit_test(everything_held_out),
        cmocka_unit_test(masks_of_responses),
        cmocka_unit_test(masks_are_part_of_the_build),
        cmocka_unit_test(shards_are_complete),
        cmocka_unit_test(wrong_prompts),
        cmocka_unit_test(shards_concatenate),
        cmocka_unit_test(wide_vocabulary),
        cmocka_unit_test(progress_and_interruption),
        cmocka_unit_test(failures_leave_no_files),
        cmocka_unit_test(configuration_is_checked),
        cmocka_unit_test(first_error_is_reported),
        cmocka_unit_test(not_text_at_all),
        cmocka_unit_test(existing_shards),
        cmocka_unit_test(shipped_text),
    };
    return cmocka_run_group_tests(tests, learn_tokenizer, unload_tokenizer);
}
