/* A locale whose decimal point is not '.', made by the test itself: a bare system has none. */
#ifndef DDL_TEST_LOCALE_H
#define DDL_TEST_LOCALE_H

#include <stdbool.h>

/* Writes a locale with this decimal point ("," or a multi-byte character) to the scratch folder and makes it
 * the process's LC_NUMERIC. Prints a message and returns false where the C library does not read glibc's
 * locale files. */
bool set_decimal_point(const char *point);
/* Back to the C locale. */
void reset_locale(void);

#endif
