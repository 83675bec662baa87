#define _POSIX_C_SOURCE 200809L
#include "support/locale.h"

#include "support/files.h"

#include <locale.h>

/* The file LC_NUMERIC of a compiled locale (glibc, locale/localeinfo.h): a magic number, the number of
 * fields, the offset of each field, then the fields: decimal point, thousands separator, grouping, both
 * characters as wide characters, and the encoding. */
enum { MAGIC = 0x20031115, FIELDS = 6 };

static size_t locale_file(unsigned char *out, const char *point)
{
    uint32_t head[2 + FIELDS] = { MAGIC ^ LC_NUMERIC, FIELDS };
    size_t at = sizeof head;
    const struct {
        const void *data;
        size_t size;
    } fields[FIELDS] = {
        { point, strlen(point) + 1 }, { "", 1 }, { "", 1 }, { ",\0\0", 4 }, { "\0\0\0", 4 }, { "UTF-8", 6 }
    };
    for (size_t i = 0; i < FIELDS; i++) {
        at = (at + 3) / 4 * 4;
        head[2 + i] = (uint32_t)at;
        memcpy(out + at, fields[i].data, fields[i].size);
        at += fields[i].size;
    }
    memcpy(out, head, sizeof head);
    return at;
}

bool set_decimal_point(const char *point)
{
    struct ddl_error err;
    unsigned char file[256] = { 0 };
    static int made;
    char name[32], path[64], expected[16], found[16];
    snprintf(name, sizeof name, "point%d", made++); /* the C library keeps what it has loaded under a name */
    snprintf(path, sizeof path, "locale/%s", name);
    assert_ok(ddl_file_make_dir(scratch_path(path), &err), err);
    snprintf(path, sizeof path, "locale/%s/LC_NUMERIC", name);
    write_file(scratch_path(path), file, locale_file(file, point));
    setenv("LOCPATH", scratch_path("locale"), 1);
    snprintf(expected, sizeof expected, "0%s5", point);
    if (setlocale(LC_NUMERIC, name) && snprintf(found, sizeof found, "%.1f", 0.5) > 0 &&
        strcmp(found, expected) == 0)
        return true;
    print_message("skipped: this C library does not read the locale that the test has made\n");
    reset_locale();
    return false;
}

void reset_locale(void)
{
    setlocale(LC_ALL, "C");
}
