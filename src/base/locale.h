/* The C locale for the calling thread: a host program may have called setlocale(), and then printf() and
 * strtod() use its decimal point. Files, keys and error messages always use '.'. */
#ifndef DDL_BASE_LOCALE_H
#define DDL_BASE_LOCALE_H

#include <stddef.h>

/* Between enter and leave this thread formats and parses numbers in the C locale; other threads are not
 * affected. Calls nest. */
struct ddl_c_locale {
    void *c, *previous; /* locale_t, which needs a feature macro */
};
struct ddl_c_locale ddl_c_locale_enter(void);
void ddl_c_locale_leave(struct ddl_c_locale *scope);

/* snprintf(out, size, "%.<digits><conversion>", value) in the C locale; conversion is 'g', 'f' or 'e'. */
void ddl_format_double(char *out, size_t size, int digits, char conversion, double value);

/* strtod() and strtof() in the C locale. */
double ddl_parse_double(const char *text, char **end);
float ddl_parse_float(const char *text, char **end);

#endif
