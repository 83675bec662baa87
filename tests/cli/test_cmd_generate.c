/* ddl generate: where the prompt comes from, what is printed of it, and the loop at a terminal. */
#include "support/program.h"
#include "support/pty.h"
#include "support/runs.h"

#include "ddl/text.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static char folder[2048];

/* A model whose context is long enough to be interrupted in it. */
static int write_model(void **state)
{
    (void)state;
    struct ddl_config config = tiny_config("baseline", TINY_VOCAB);
    struct ddl_error err;
    ddl_model *model;
    config.block_size = 30000;
    remove_scratch("model");
    snprintf(folder, sizeof folder, "%s", scratch_path("model"));
    assert_ok(ddl_file_make_dir(folder, &err), err);
    ddl_backend *backend = open_test_backend(1);
    assert_ok(ddl_model_create(&model, &config, backend, &err), err);
    assert_ok(ddl_model_init(model, 1, &err), err);
    assert_ok(ddl_model_save(model, folder, &err), err);
    ddl_tokenizer *tokenizer = tiny_tokenizer();
    assert_ok(ddl_tokenizer_save(tokenizer, folder, &err), err);
    ddl_tokenizer_free(tokenizer);
    ddl_model_free(model);
    ddl_backend_free(backend);
    return 0;
}

/* `ddl generate folder --max-tokens 3 --temperature 0` with more arguments; returns a copy of its output. */
static char *generated(char out[512], const char *arguments)
{
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "generate %s --max-tokens 3 --temperature 0 %s", folder, arguments), 0);
    snprintf(out, 512, "%.511s", printed);
    return out;
}

static void empty_prompt_is_end_of_text(void **state)
{
    (void)state;
    char from_input[512], from_option[512];
    static const char *const spellings[] = { "--prompt '' <<EOF\nfree\nEOF", "--prompt= <<EOF\nfree\nEOF",
                                             "--prompt free --prompt '' </dev/null" };
    generated(from_input, "</dev/null");
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        assert_string_equal(generated(from_option, spellings[i]), from_input);
    generated(from_option, "--prompt '' --json <<EOF\nfree\nEOF");
    assert_non_null(strstr(from_option, "\"prompt_tokens\":1,"));
    assert_string_equal(generated(from_option, "--prompt '' --echo"), from_input);
}

static void prompt_is_printed_on_request(void **state)
{
    (void)state;
    char plain[512], echoed[512], wanted[1100], json[512];
    generated(plain, "--prompt free");
    assert_string_equal(generated(echoed, "--prompt free --echo false"), plain);
    assert_string_equal(generated(echoed, "--prompt free --no-echo"), plain);
    snprintf(wanted, sizeof wanted, "free%s", plain);
    assert_string_equal(generated(echoed, "--prompt free --echo"), wanted);
    assert_string_equal(generated(echoed, "--echo true <<EOF | cat\nfree\nEOF"),
                        generated(wanted, "--echo <<EOF\nfree\nEOF"));
    snprintf(wanted, sizeof wanted, "--- 1\nfree%s--- 2\nfree%s", plain, plain);
    assert_string_equal(generated(echoed, "--prompt free --echo --n 2"), wanted);
    generated(json, "--prompt free --json");
    assert_string_equal(generated(echoed, "--prompt free --json --echo"), json);
}

/* On a terminal that TERM and NO_COLOR describe. */
static void on_terminal(const char *term, const char *no_color, const char *echo, const char *printed_first)
{
    const char *const argv[] = { ddl_program(),  "generate", folder, "--prompt", "free",
                                 "--max-tokens", "3",        echo,   NULL },
                      *const environment[] = { term, no_color, NULL };
    pty_start(argv, environment);
    assert_int_equal(pty_finish(), 0);
    if (strncmp(pty_output(), printed_first, strlen(printed_first)) != 0)
        fail_msg("%s %s: '%s', expected '%s' at the start", term, no_color, pty_output(), printed_first);
    assert_int_equal(strstr(pty_output(), "free") != NULL, *printed_first != '\0');
}

static void prompt_is_set_apart_on_a_terminal(void **state)
{
    (void)state;
    on_terminal("TERM=xterm", "NO_COLOR=", NULL, "\x1b[1mfree\x1b[0m");
    on_terminal("TERM=xterm", "NO_COLOR=1", NULL, "[free]");
    on_terminal("TERM=dumb", "NO_COLOR=", NULL, "[free]");
    on_terminal("TERM=xterm", "NO_COLOR=", "--no-echo", "");
}

static void start_loop(const char *max_tokens)
{
    const char *const argv[] = { ddl_program(), "generate",  folder, "--max-tokens",
                                 max_tokens,    "--backend", "cpu",  "--threads",
                                 "1",           NULL },
                      *const environment[] = { "TERM=dumb", "LC_ALL=C.UTF-8", NULL };
    pty_start(argv, environment);
    pty_expect("> ");
}

/* A line typed, and the text that follows until the next prompt. */
static void type(char text[512], const char *line)
{
    pty_send(line);
    pty_expect("\r\n");
    snprintf(text, 512, "%.511s", pty_expect("\r\n> "));
}

static void lines_are_prompts(void **state)
{
    (void)state;
    char first[512], second[512], plain[512];
    start_loop("3");
    type(first, "free\n");
    type(second, "free\n");
    assert_true(*first != '\0' && *second != '\0');
    type(second, "\n"); /* <|endoftext|> */
    assert_true(*second != '\0');
    pty_send("\x04");
    assert_int_equal(pty_finish(), 0);
    /* The first line has the seed of --seed. */
    assert_int_equal(
        ddl_stream(STANDARD_OUTPUT, "generate %s --max-tokens 3 --prompt free --threads 1", folder), 0);
    snprintf(plain, sizeof plain, "%.511s", printed);
    plain[strcspn(plain, "\n")] = '\0';
    char escaped[512]; /* what a model of random weights writes is escaped on a terminal */
    ddl_text_escape(escaped, sizeof escaped, plain, strlen(plain));
    assert_string_equal(first, escaped);
}

static void a_prompt_that_fails_does_not_end_the_loop(void **state)
{
    (void)state;
    const char *const argv[] = { ddl_program(), "generate", tiny_folder("tiny", "baseline"), NULL },
                      *const environment[] = { "TERM=dumb", NULL };
    pty_start(argv, environment);
    pty_expect("> ");
    pty_send("this is much too long for it, is it not\n");
    pty_expect("the model's context 16");
    pty_expect("> ");
    pty_send("\x04");
    assert_int_equal(pty_finish(), 0);
}

static void ctrl_c_stops_a_text(void **state)
{
    (void)state;
    start_loop("30000");
    for (int i = 0; i < 2; i++) {
        pty_send("free\n");
        pty_expect("\r\n"); /* the line's own */
        pty_expect_bytes(64);
        pty_send("\x03");
        pty_expect("> ");
        pty_send("\x03"); /* at the prompt: nothing happens */
        pty_expect("> ");
    }
    pty_send("\x04");
    assert_int_equal(pty_finish(), 0);
    assert_null(strstr(pty_output(), "context of 30000 tokens is full"));
}

static void sigterm_ends_the_loop(void **state)
{
    (void)state;
    start_loop("30000");
    pty_signal(SIGTERM);
    assert_int_equal(pty_finish(), 3);
}

/* --stop-id and --logit-bias may be repeated, with '-' or '_' in their names. */
static void tokens_are_biased_and_stop(void **state)
{
    (void)state;
    char out[512];
    generated(out, "--prompt free --logit-bias 5=100 --json");
    assert_non_null(strstr(out, "\"finish\":\"length\""));
    generated(out, "--prompt free --logit-bias 5=100 --stop-id 9 --stop_id=5 --json");
    assert_non_null(strstr(out, "\"tokens\":0,\"finish\":\"stop\""));
    generated(out, "--prompt free --logit_bias=5=100 --logit-bias 5=-inf --stop-id 5 --json");
    assert_non_null(strstr(out, "\"tokens\":3,\"finish\":\"length\""));
    assert_int_equal(ddl_stream(STANDARD_ERROR, "generate %s --prompt a --logit-bias 5", folder), 2);
    assert_non_null(strstr(printed, "--logit-bias: expected ID=X, found '5'"));
    assert_int_equal(ddl_stream(STANDARD_ERROR, "generate %s --prompt a --logit-bias 5=x", folder), 2);
    assert_int_equal(ddl_stream(STANDARD_ERROR, "generate %s --prompt a --stop-id 999999", folder), 2);
    assert_non_null(strstr(printed, "stop_id 0: expected a token from 0 to "));
}

static void refusals(void **state)
{
    (void)state;
    static const struct refusal list[] = {
        { "generate /nowhere --prompt", 2, "--prompt: missing argument: expected TEXT" },
        { "generate /nowhere --prompt --echo", 2, "--prompt: missing argument: expected TEXT" },
        { "generate /nowhere --stop --json", 2, "--stop: missing argument: expected TEXT" },
        { "generate /nowhere --promp a", 2, "unknown option '--promp'" },
    };
    assert_refused(list, sizeof list / sizeof *list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_prompt_is_end_of_text),
        cmocka_unit_test(prompt_is_printed_on_request),
        cmocka_unit_test(prompt_is_set_apart_on_a_terminal),
        cmocka_unit_test(lines_are_prompts),
        cmocka_unit_test(a_prompt_that_fails_does_not_end_the_loop),
        cmocka_unit_test(ctrl_c_stops_a_text),
        cmocka_unit_test(sigterm_ends_the_loop),
        cmocka_unit_test(tokens_are_biased_and_stop),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, write_model, NULL);
}
