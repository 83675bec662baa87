#include "ddl/status.h"
#include "ddl/version.h"

#include "base/locale.h"
#include "base/utf8.h"
#include "ddl/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line without terminal control codes: messages quote text from files. Of a message that does not fit,
 * such as one with a path of 4,000 bytes, the middle is left out: the reason is at the end. */
static void take_message(struct ddl_error *err, char *text)
{
    enum { HEAD = 300 };
    static const char gap[] = " ... ";
    for (char *c = text; *c; c++) {
        if (*c == '\n' || *c == '\r' || *c == '\t')
            *c = ' ';
    }
    size_t n = strlen(text), total = ddl_text_escape(err->text, sizeof err->text, text, n);
    if (total < sizeof err->text)
        return;
    ddl_text_escape(err->text, HEAD, text, n);
    strcat(err->text, gap);
    size_t used = strlen(err->text), left = sizeof err->text - used, from = 0;
    while (total >= left) { /* total: what the text from `from` on takes */
        uint32_t code;
        size_t length = ddl_utf8_decode((const unsigned char *)text + from, n - from, &code);
        length += length == 0;
        total -= ddl_text_escape(NULL, 0, text + from, length);
        from += length;
    }
    ddl_text_escape(err->text + used, left, text + from, n - from);
}

ddl_status ddl_error_set(struct ddl_error *err, ddl_status status, const char *format, ...)
{
    if (err) {
        char usual[sizeof err->text], *text = NULL;
        va_list args;
        struct ddl_c_locale scope = ddl_c_locale_enter();
        va_start(args, format);
        int n = vsnprintf(usual, sizeof usual, format, args);
        va_end(args);
        if (n >= (int)sizeof usual && (text = malloc((size_t)n + 1))) {
            va_start(args, format);
            vsnprintf(text, (size_t)n + 1, format, args);
            va_end(args);
        }
        ddl_c_locale_leave(&scope);
        take_message(err, text ? text : usual);
        free(text);
        err->status = status;
        err->has_no_hint = false;
    }
    return status;
}

ddl_status ddl_error_prefix(struct ddl_error *err, ddl_status status, const char *prefix)
{
    if (err) {
        char old[sizeof err->text];
        memcpy(old, err->text, sizeof old);
        ddl_error_set(err, status, "%s: %s", prefix, old);
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
        [DDL_E_DEVICE] = "device",
    };
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

const char *ddl_version(void)
{
    return DDL_VERSION;
}
