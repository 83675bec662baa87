#define _POSIX_C_SOURCE 200809L
#include "base/locale.h"

#include <assert.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

struct ddl_c_locale ddl_c_locale_enter(void)
{
    struct ddl_c_locale scope;
    /* glibc and musl return a static object for "C", so this does not run out of memory. */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    scope.c = c;
    scope.previous = c ? uselocale(c) : (locale_t)0;
    return scope;
}

void ddl_c_locale_leave(struct ddl_c_locale *scope)
{
    if (!scope->c)
        return;
    uselocale((locale_t)scope->previous);
    freelocale((locale_t)scope->c);
}

void ddl_format_double(char *out, size_t size, int digits, char conversion, double value)
{
    struct ddl_c_locale scope = ddl_c_locale_enter();
    assert(conversion == 'g' || conversion == 'f' || conversion == 'e');
    if (conversion == 'g')
        snprintf(out, size, "%.*g", digits, value);
    else if (conversion == 'f')
        snprintf(out, size, "%.*f", digits, value);
    else
        snprintf(out, size, "%.*e", digits, value);
    ddl_c_locale_leave(&scope);
}

double ddl_parse_double(const char *text, char **end)
{
    struct ddl_c_locale scope = ddl_c_locale_enter();
    double value = strtod(text, end);
    ddl_c_locale_leave(&scope);
    return value;
}

float ddl_parse_float(const char *text, char **end)
{
    struct ddl_c_locale scope = ddl_c_locale_enter();
    float value = strtof(text, end);
    ddl_c_locale_leave(&scope);
    return value;
}
