#include "ddl/status.h"
#include "ddl/version.h"

#include "base/locale.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One line without terminal control codes: messages quote text from files. U+0080 to U+009F,
 * two bytes each, are controls as well. */
static void one_line(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c == '\n' || *c == '\r' || *c == '\t')
            *c = ' ';
        else if (*c < 0x20 || *c == 0x7f)
            *c = '?';
        else if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
            c[0] = c[1] = '?';
    }
}

ddl_status ddl_error_set(struct ddl_error *err, ddl_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        struct ddl_c_locale scope = ddl_c_locale_enter();
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        ddl_c_locale_leave(&scope);
        one_line(err->text);
        err->status = status;
    }
    return status;
}

ddl_status ddl_error_prefix(struct ddl_error *err, ddl_status status, const char *prefix)
{
    if (err) {
        char old[sizeof err->text];
        memcpy(old, err->text, sizeof old);
        ddl_error_set(err, status, "%s: %.900s", prefix, old);
    }
    return status;
}

const char *ddl_status_name(ddl_status status)
{
    static const char *const names[] = {
        [DDL_OK] = "ok",
        [DDL_E_USAGE] = "usage",
        [DDL_E_IO] = "io",
        [DDL_E_FORMAT] = "format",
        [DDL_E_MEMORY] = "memory",
        [DDL_E_UNSUPPORTED] = "unsupported",
        [DDL_E_INTERRUPTED] = "interrupted",
        [DDL_E_NUMERIC] = "numeric",
    };
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

const char *ddl_version(void)
{
    return DDL_VERSION;
}
