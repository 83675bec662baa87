#include "support/program.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

char printed[1 << 17];

static int run(const char *redirection, const char *format, va_list args)
{
    char arguments[8192], command[16384];
    vsnprintf(arguments, sizeof arguments, format, args);
    snprintf(command, sizeof command, "cd '%s' && '%s' %s %s", source_path("."), ddl_program(), arguments,
             redirection);
    return run_command(command, printed, sizeof printed);
}

int ddl(const char *arguments, ...)
{
    va_list args;
    va_start(args, arguments);
    int status = run("2>&1", arguments, args);
    va_end(args);
    return status;
}

int ddl_stream(enum stream stream, const char *arguments, ...)
{
    va_list args;
    va_start(args, arguments);
    int status = run(stream == STANDARD_OUTPUT ? "2>/dev/null" : "2>&1 >/dev/null", arguments, args);
    va_end(args);
    return status;
}

json_t *printed_json(void)
{
    json_error_t why;
    json_t *root = json_loads(printed, 0, &why);
    if (!root)
        fail_msg("%s in: %s", why.text, printed);
    return root;
}

json_t *ddl_json(const char *arguments, ...)
{
    va_list args;
    va_start(args, arguments);
    int status = run("2>/dev/null", arguments, args);
    va_end(args);
    if (status)
        fail_msg("ddl %s: status %d, '%s'", arguments, status, printed);
    return printed_json();
}

double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("%s is not a number", key);
    return json_number_value(value);
}

void assert_printed(const char *gist)
{
    if (!strstr(printed, gist))
        fail_msg("'%s' is not in: %s", gist, printed);
}

static bool begins_with(const char *line, const char *command)
{
    size_t n = strlen(command);
    return strncmp(line, command, n) == 0 && (line[n] == ' ' || line[n] == '\0');
}

struct command_lists {
    const char *const *lines, *const *without;
    size_t n;
};

static void assert_listed(const struct command_lists *lists, const char *command)
{
    for (size_t i = 0; i < lists->n; i++) {
        if (begins_with(lists->lines[i], command))
            return;
    }
    for (size_t i = 0; lists->without[i]; i++) {
        if (strcmp(lists->without[i], command) == 0)
            return;
    }
    fail_msg("the test has no line for ddl %s", command);
}

/* False if the command has no actions. */
static bool assert_actions_listed(const struct command_lists *lists, const char *command)
{
    char begin[64], end[64], word[32], action[64];
    assert_int_equal(ddl("help %s", command), 0);
    snprintf(begin, sizeof begin, "\n  ddl %s ", command);
    snprintf(end, sizeof end, "'ddl help %s ACTION'", command);
    if (!strstr(printed, end))
        return false;
    *strstr(printed, end) = '\0';
    for (const char *line = printed; (line = strstr(line, begin)) != NULL;) {
        line += strlen(begin);
        assert_int_equal(sscanf(line, "%31s", word), 1);
        snprintf(action, sizeof action, "%s %s", command, word);
        assert_listed(lists, action);
    }
    return true;
}

void assert_commands_listed(const char *const *lines, size_t n, const char *const *without)
{
    static char overview[sizeof printed];
    const struct command_lists lists = { lines, without, n };
    size_t commands = 0;
    assert_int_equal(ddl("help"), 0);
    strcpy(overview, printed);
    char command[32], *line = strstr(overview, "commands:\n");
    assert_non_null(line);
    for (line = strchr(line, '\n') + 1; strncmp(line, "  ", 2) == 0; line = strchr(line, '\n') + 1) {
        assert_int_equal(sscanf(line, "%31s", command), 1);
        commands++;
        if (!assert_actions_listed(&lists, command))
            assert_listed(&lists, command);
    }
    assert_true(commands > 10);
}

const char *const commands_without_model[] = {
    "bench comm",
    "bench decode",
    "bench op",
    "bench step",
    "bench tokenizer",
    "compare",
    "completion",
    "data build",
    "data info",
    "data synthetic",
    "help",
    "report",
    "sweep",
    "verify",
    "tokenizer decode",
    "tokenizer encode",
    "tokenizer info",
    "tokenizer train",
    NULL,
};

void assert_refused(const struct refusal *list, size_t n)
{
    for (const struct refusal *r = list; r < list + n; r++) {
        int status = ddl("%s", r->arguments);
        bool one_line =
            strncmp(printed, "ddl: ", 5) == 0 && strchr(printed, '\n') == printed + strlen(printed) - 1;
        if (status != r->status || !one_line || !strstr(printed, r->says))
            fail_msg("ddl %s: status %d, '%s', expected %d and one line with '%s'", r->arguments, status,
                     printed, r->status, r->says);
    }
}
