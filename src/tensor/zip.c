#include "tensor/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Sizes of the fixed parts of the records, and their signatures. */
enum { LOCAL = 30, CENTRAL = 46, END = 22, END64 = 56, LOCATOR64 = 20, MAX_COMMENT = 65535 };
static const uint32_t local_mark = 0x04034b50, central_mark = 0x02014b50, end_mark = 0x06054b50,
                      end64_mark = 0x06064b50, locator64_mark = 0x07064b50;

struct file {
    const unsigned char *data;
    size_t size;
    const char *path;
};

/* The central directory: n records in bytes [at, end). */
struct directory {
    size_t at, end;
    uint64_t n;
};

static uint64_t number(const unsigned char *from, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = bytes; i-- > 0;)
        value = value << 8 | from[i];
    return value;
}

static bool has_mark(const struct file *f, size_t at, uint32_t mark)
{
    return f->size >= 4 && at <= f->size - 4 && number(f->data + at, 4) == mark;
}

bool ddl_zip_begins(const unsigned char *data, size_t size)
{
    return size >= 4 && number(data, 4) == local_mark;
}

uint32_t ddl_zip_crc(uint32_t crc, const unsigned char *data, size_t size)
{
    while (size) {
        uInt n = size < 1u << 30 ? (uInt)size : 1u << 30;
        crc = (uint32_t)crc32(crc, data, n);
        data += n;
        size -= n;
    }
    return crc;
}

static ddl_status broken(const struct file *f, const char *what, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_FORMAT, "%s: the zip file is corrupted: %s", f->path, what);
}

/* ---- where the central directory is ---- */

/* Sizes that do not fit 32 bits are in a second record, whose place is recorded just before the first. */
static ddl_status read_end64(const struct file *f, size_t end, struct directory *d, struct ddl_error *err)
{
    if (end < LOCATOR64 || !has_mark(f, end - LOCATOR64, locator64_mark))
        return broken(f, "no zip64 record", err);
    uint64_t at = number(f->data + end - LOCATOR64 + 8, 8);
    if (at > end - LOCATOR64 || end - LOCATOR64 - at < END64 || !has_mark(f, (size_t)at, end64_mark))
        return broken(f, "no zip64 record at the place that its locator gives", err);
    const unsigned char *record = f->data + at;
    uint64_t size = number(record + 40, 8), start = number(record + 48, 8);
    d->n = number(record + 32, 8);
    if (start > at || size > at - start)
        return broken(f, "the zip64 central directory is outside of the file", err);
    d->at = (size_t)start;
    d->end = (size_t)(start + size);
    return DDL_OK;
}

/* Whether the last record is at this place: its comment reaches to the end of the file. */
static bool is_end(const struct file *f, size_t at)
{
    return f->size >= END && at <= f->size - END && has_mark(f, at, end_mark) &&
           number(f->data + at + 20, 2) == f->size - at - END;
}

static ddl_status find_directory(const struct file *f, struct directory *d, struct ddl_error *err)
{
    size_t least = f->size > END + MAX_COMMENT ? f->size - END - MAX_COMMENT : 0;
    size_t at = f->size < END ? 0 : f->size - END;
    bool found = false;
    for (; !(found = is_end(f, at)) && at > least; at--) {
    }
    if (!found)
        return ddl_error_set(err, DDL_E_FORMAT,
                             "%s: truncated: expected a zip file's central directory at the end of its %zu "
                             "bytes, found none",
                             f->path, f->size);
    const unsigned char *record = f->data + at;
    uint64_t n = number(record + 10, 2), size = number(record + 12, 4), start = number(record + 16, 4);
    if (n == 0xffff || size == 0xffffffff || start == 0xffffffff)
        return read_end64(f, at, d, err);
    *d = (struct directory){ (size_t)start, (size_t)(start + size), n };
    return d->end > at ? broken(f, "the central directory is outside of the file", err) : DDL_OK;
}

/* ---- entries ---- */

/* Values of a record that do not fit 32 bits are in an extra field with the number 1, in this order. */
static bool read_extra64(const unsigned char *extra, size_t size, uint64_t **fields, size_t n)
{
    while (size >= 4) {
        size_t length = (size_t)number(extra + 2, 2);
        if (length > size - 4)
            return false;
        if (number(extra, 2) == 1) {
            for (size_t i = 0; i < n; i++) {
                if (length < 8 * (i + 1))
                    return false;
                *fields[i] = number(extra + 4 + 8 * i, 8);
            }
            return true;
        }
        extra += 4 + length;
        size -= 4 + length;
    }
    return false;
}

static ddl_status bad_entry(const struct file *f, const struct ddl_zip_entry *e, const char *what,
                            struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_FORMAT, "%s: entry '%.*s' of the zip file: %s", f->path,
                         (int)(e->name_size < 200 ? e->name_size : 200), e->name, what);
}

/* Reads one record of the central directory, and the entry's own header. *at moves behind the record. */
static ddl_status read_entry(const struct file *f, const struct directory *d, size_t *at,
                             struct ddl_zip_entry *e, struct ddl_error *err)
{
    const unsigned char *record = f->data + *at;
    if (d->end - *at < CENTRAL || !has_mark(f, *at, central_mark))
        return broken(f, "the central directory has fewer entries than it declares", err);
    size_t name = (size_t)number(record + 28, 2), extra = (size_t)number(record + 30, 2),
           comment = (size_t)number(record + 32, 2);
    if (name + extra + comment > d->end - *at - CENTRAL)
        return broken(f, "an entry of the central directory ends outside of it", err);
    *at += CENTRAL + name + extra + comment;
    *e = (struct ddl_zip_entry){ .name = (const char *)record + CENTRAL,
                                 .name_size = name,
                                 .crc = (uint32_t)number(record + 16, 4) };
    uint64_t packed = number(record + 20, 4), size = number(record + 24, 4), start = number(record + 42, 4);
    uint64_t *fields[3];
    size_t n = 0;
    if (size == 0xffffffff)
        fields[n++] = &size;
    if (packed == 0xffffffff)
        fields[n++] = &packed;
    if (start == 0xffffffff)
        fields[n++] = &start;
    if (n && !read_extra64(record + CENTRAL + name, extra, fields, n))
        return bad_entry(f, e, "no zip64 sizes in its record", err);
    if (number(record + 8, 2) & 1)
        return bad_entry(f, e, "encrypted; expected a file as torch.save writes it", err);
    if (number(record + 10, 2) != 0 || packed != size)
        return bad_entry(
            f, e, "compressed; expected a file as torch.save writes it, stored without compression", err);
    if (start > d->at || d->at - start < LOCAL || !has_mark(f, (size_t)start, local_mark))
        return bad_entry(f, e, "no header at the place that the central directory gives", err);
    e->header = f->data + start;
    uint64_t skip = LOCAL + number(e->header + 26, 2) + number(e->header + 28, 2);
    if (skip > d->at - start || size > d->at - start - skip)
        return bad_entry(f, e, "its bytes are outside of the file", err);
    e->data = e->header + skip;
    e->size = (size_t)size;
    return DDL_OK;
}

static int compare_names(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static int by_name(const void *a, const void *b)
{
    const struct ddl_zip_entry *x = a, *y = b;
    return compare_names(x->name, x->name_size, y->name, y->name_size);
}

static int by_place(const void *a, const void *b)
{
    const struct ddl_zip_entry *x = a, *y = b;
    return (x->header > y->header) - (x->header < y->header);
}

static ddl_status check_entries(const struct file *f, struct ddl_zip *zip, struct ddl_error *err)
{
    struct ddl_zip_entry *e = zip->entries;
    qsort(e, zip->n, sizeof *e, by_place);
    for (size_t i = 1; i < zip->n; i++) {
        if (e[i].header < e[i - 1].data + e[i - 1].size)
            return bad_entry(f, &e[i], "overlaps another entry", err);
    }
    qsort(e, zip->n, sizeof *e, by_name);
    for (size_t i = 1; i < zip->n; i++) {
        if (by_name(&e[i - 1], &e[i]) == 0)
            return bad_entry(f, &e[i], "duplicate name", err);
    }
    return DDL_OK;
}

ddl_status ddl_zip_open(struct ddl_zip *out, const unsigned char *data, size_t size, const char *path,
                        struct ddl_error *err)
{
    const struct file f = { data, size, path };
    struct directory d = { 0 };
    *out = (struct ddl_zip){ 0 };
    ddl_status status = find_directory(&f, &d, err);
    if (status)
        return status;
    if (d.n > (d.end - d.at) / CENTRAL)
        return broken(&f, "the central directory has fewer entries than it declares", err);
    struct ddl_zip zip = { malloc(((size_t)d.n + 1) * sizeof *zip.entries), 0 };
    if (!zip.entries)
        return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory for its central directory", path);
    for (size_t at = d.at; zip.n < d.n && !status; zip.n += !status)
        status = read_entry(&f, &d, &at, &zip.entries[zip.n], err);
    if (!status)
        status = check_entries(&f, &zip, err);
    if (status)
        ddl_zip_close(&zip);
    else
        *out = zip;
    return status;
}

void ddl_zip_close(struct ddl_zip *zip)
{
    free(zip->entries);
    *zip = (struct ddl_zip){ 0 };
}

const struct ddl_zip_entry *ddl_zip_find(const struct ddl_zip *zip, const char *name, size_t name_size)
{
    const struct ddl_zip_entry key = { .name = name, .name_size = name_size };
    return zip->n ? bsearch(&key, zip->entries, zip->n, sizeof key, by_name) : NULL;
}
