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
