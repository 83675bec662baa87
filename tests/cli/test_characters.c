/* Tokenizers of characters, from a text to a sample; existing tokenizers are not replaced without
 * --overwrite; bits per byte need a record of the shards' tokenizer. */
#define _POSIX_C_SOURCE 200809L
#include "support/files.h"
#include "support/program.h"

#include "ddl/tokenizer.h"

#include <jansson.h>
#include <string.h>

static char text[2048], tok[2048], shards[2048], run[2048], plain[2048];

static void set_paths(void)
{
    static const char *const made[] = { "tok", "shards", "run", "words", "bad", "special" };
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        remove_scratch(made[i]);
    snprintf(text, sizeof text, "%s", scratch_path("text.txt"));
    snprintf(tok, sizeof tok, "%s", scratch_path("tok"));
    snprintf(shards, sizeof shards, "%s", scratch_path("shards"));
    snprintf(run, sizeof run, "%s", scratch_path("run"));
    snprintf(plain, sizeof plain, "%s", scratch_path("val.bin"));
}

static void from_text_to_sample(void **state)
{
    (void)state;
    size_t size;
    char *bytes = read_file(source_path("data/text/tinyshakespeare.txt"), &size);
    write_file(text, bytes, 20000);
    free(bytes);
    assert_int_equal(ddl("tokenizer train '%s' --characters --out '%s'", text, tok), 0);
    assert_printed("merges 0");
    assert_int_equal(ddl("tokenizer info '%s'", tok), 0);
    assert_printed("kind            characters\n");
    /* Its vocabulary has no byte alphabet. */
    assert_int_equal(ddl("tokenizer train '%s' --characters --vocab-size 300 --out '%s'", text, tok), 2);
    assert_printed("--vocab-size: expected with --no-characters");
    assert_int_equal(ddl("tokenizer train '%s' --characters --special-tokens '<|endoftext|>,\xC4\xA0x' "
                         "--out '%s'",
                         text, scratch_path("special")),
                     0);
    assert_int_equal(ddl("data build '%s' --tokenizer '%s' --val-fraction 0.1 --out '%s'", text, tok, shards),
                     0);
    assert_printed("1.000 bytes a token");
    assert_int_equal(
        ddl("train --size micro --hidden-size 16 --seq 16 --batch 2 --steps 3 --warmup 0 "
            "--val-tokens 64 --train-data '%s' --tokenizer '%s' --sample-every 2 --sample-tokens 4 "
            "--out '%s'",
            shards, tok, run),
        0);
    assert_int_equal(ddl("generate '%s' --prompt ROMEO: --max-tokens 8", run), 0);
    assert_int_equal(ddl("generate '%s' --max-tokens 8", run), 0);
    assert_int_equal(ddl("eval '%s' --text '%s' --val-tokens 64", run, text), 0);
    assert_printed("bits per byte");
    assert_int_equal(ddl("logprobs '%s' '%s'", run, text), 0);
}

/* Ids in the order of code points, special tokens last; no character is merged or changed. */
static void every_character_is_a_token(void **state)
{
    (void)state;
    static const char words[] = "zebra\n\t \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 zebra";
    static const char *const inputs[] = { words, "zz", " ", "\xf0\x9f\x98\x80" };
    struct ddl_error err;
    ddl_tokenizer *t;
    write_file(scratch_path("words.txt"), words, sizeof words - 1);
    assert_int_equal(
        ddl("tokenizer train '%s' --characters --out '%s'", scratch_path("words.txt"), scratch_path("words")),
        0);
    assert_ok(ddl_tokenizer_load(&t, scratch_path("words"), &err), err);
    assert_true(ddl_tokenizer_is_characters(t));
    size_t n = ddl_tokenizer_vocab_size(t);
    assert_int_equal(n, 12);
    assert_int_equal(ddl_tokenizer_end_of_text(t), n - 1);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        struct ddl_ids ids = { 0 };
        char back[64] = "";
        assert_ok(ddl_tokenizer_encode(t, inputs[i], strlen(inputs[i]), false, &ids, &err), err);
        for (size_t k = 0; k < ids.n; k++) {
            size_t size;
            const char *bytes = ddl_tokenizer_bytes(t, ids.ids[k], &size);
            assert_int_equal(ddl_utf8_length(bytes, size), size);
            strncat(back, bytes, size);
        }
        assert_string_equal(back, inputs[i]);
        ddl_ids_free(&ids);
    }
    struct ddl_ids ids = { 0 };
    assert_ok(ddl_tokenizer_encode(t, "z<|endoftext|>\t", 15, true, &ids, &err), err);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.ids[1], n - 1);
    assert_int_equal(ids.ids[2], 0); /* the tab is the lowest code point */
    assert_int_equal(ddl_tokenizer_encode(t, "z\nq", 3, false, &ids, &err), DDL_E_FORMAT);
    assert_int_equal(ids.n, 3);
    assert_says(&err, "byte 2 (line 2): expected a character of the tokenizer");
    assert_says(&err, "found 'q' (U+0071)");
    assert_int_equal(ddl_tokenizer_encode(t, "z\xff", 2, false, &ids, &err), DDL_E_FORMAT);
    assert_says(&err, "found the byte 0xff");
    ddl_ids_free(&ids);
    ddl_tokenizer_free(t);
}

static void unknown_characters(void **state)
{
    (void)state;
    write_file(scratch_path("bad.txt"), "We\xe2\x82\xac", 5);
    assert_int_equal(
        ddl("data build '%s' --tokenizer '%s' --out '%s'", scratch_path("bad.txt"), tok, scratch_path("bad")),
        1);
    assert_printed(
        "bad.txt: byte 2 (line 1): expected a character of the tokenizer, which has characters only, "
        "found '\xe2\x82\xac' (U+20AC)");
    assert_int_equal(ddl("generate '%s' --prompt 'a\xe2\x82\xac' --max-tokens 2", run), 1);
    assert_printed("prompt: byte 1 (line 1): expected a character");
    static const char two[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"bc\": 1}, \"merges\": []}}";
    write_file(scratch_path("two.json"), two, sizeof two - 1);
    assert_int_equal(ddl("tokenizer info '%s'", scratch_path("two.json")), 1);
    assert_printed("token 1 is 'bc': expected one character, as there are no merges");
}

static void existing_tokenizers_stay(void **state)
{
    (void)state;
    char file[2100];
    snprintf(file, sizeof file, "%s/tokenizer.json", tok);
    size_t size, size_after;
    char *before = read_file(file, &size);
    const char *const outs[] = { tok, file };
    for (size_t i = 0; i < 2; i++) {
        /* before the inputs are read */
        assert_int_equal(
            ddl("tokenizer train '%s' --vocab-size 300 --out '%s'", scratch_path("absent"), outs[i]), 2);
        assert_printed("tok/tokenizer.json: exists already: choose another path or use --overwrite");
    }
    char *after = read_file(file, &size_after);
    assert_true(size == size_after && memcmp(before, after, size) == 0);
    free(before);
    free(after);
    assert_int_equal(ddl("tokenizer train '%s' --characters --overwrite --out '%s'", text, tok), 0);
}

static void bits_per_byte_need_a_record(void **state)
{
    (void)state;
    char command[5000];
    assert_int_equal(ddl("eval '%s' --val-data '%s'", run, shards), 0);
    assert_printed("bits per byte");
    snprintf(command, sizeof command, "tail -c +1025 '%s/val_000000.bin' >'%s'", shards, plain);
    char said[16];
    assert_int_equal(run_command(command, said, sizeof said), 0);
    assert_int_equal(ddl("eval '%s' --val-data '%s'", run, plain), 0);
    assert_printed("val.bin: no record of the tokenizer (shards.json): the model's is not known to fit");
    assert_null(strstr(printed, "bits per byte  "));
    json_t *root = ddl_json("eval '%s' --val-data '%s' --json --quiet", run, plain);
    assert_null(json_object_get(json_array_get(json_object_get(root, "models"), 0), "bits_per_byte"));
    json_decref(root);
}

int main(void)
{
    set_paths();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_text_to_sample),         cmocka_unit_test(every_character_is_a_token),
        cmocka_unit_test(unknown_characters),          cmocka_unit_test(existing_tokenizers_stay),
        cmocka_unit_test(bits_per_byte_need_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
