#define _POSIX_C_SOURCE 200809L
#include "data/source.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { PACKED_CAPACITY = 1 << 17, POLL_MS = 50 };

static const char *display_name(const struct ddl_source *s)
{
    return strcmp(s->path, "-") == 0 ? "standard input" : s->path;
}

static ddl_status out_of_memory(const struct ddl_source *s, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_MEMORY, "%s: out of memory to unpack it", display_name(s));
}

static ddl_status start_decoder(struct ddl_source *s, struct ddl_error *err)
{
    bool ok = true;
    if (s->packing == DDL_PACKING_GZIP) {
        z_stream *z = calloc(1, sizeof *z);
        s->decoder = z;
        ok = z && inflateInit2(z, 15 + 16) == Z_OK; /* 16: accept a gzip header only */
        if (z && !ok) {
            free(z);
            s->decoder = NULL;
        }
    } else if (s->packing == DDL_PACKING_ZSTD) {
        /* also what zstd --long=31 has written */
        const int window = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound;
        s->decoder = ZSTD_createDStream();
        ok = s->decoder && !ZSTD_isError(ZSTD_DCtx_setParameter(s->decoder, ZSTD_d_windowLogMax, window));
    }
    if (ok && s->packing != DDL_PACKING_NONE)
        ok = (s->packed = malloc(PACKED_CAPACITY)) != NULL;
    s->inside = s->packing != DDL_PACKING_NONE;
    return ok ? DDL_OK : out_of_memory(s, err);
}

ddl_status ddl_source_open(struct ddl_source *s, const char *path, enum ddl_packing packing,
                           const atomic_bool *stop, struct ddl_error *err)
{
    *s = (struct ddl_source){ .path = path, .packing = packing, .stop = stop, .fd = -1 };
    s->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0)
        return ddl_file_error(err, path, "open");
    ddl_status status = start_decoder(s, err);
    if (status)
        ddl_source_close(s);
    return status;
}

ddl_status ddl_source_seek(struct ddl_source *s, uint64_t byte, struct ddl_error *err)
{
    if (lseek(s->fd, (off_t)byte, SEEK_SET) < 0)
        return ddl_file_error(err, s->path, "seek");
    s->consumed = byte;
    return DDL_OK;
}

void ddl_source_close(struct ddl_source *s)
{
    if (!s->path)
        return;
    if (s->decoder && s->packing == DDL_PACKING_GZIP) {
        inflateEnd(s->decoder);
        free(s->decoder);
    } else if (s->decoder) {
        ZSTD_freeDStream(s->decoder);
    }
    free(s->packed);
    if (s->fd > STDIN_FILENO)
        close(s->fd);
    *s = (struct ddl_source){ .fd = -1 };
}

/* Reads from the file. Polls, so that a stop request is seen while a pipe has no data. */
static ddl_status read_file(struct ddl_source *s, void *out, size_t capacity, size_t *n,
                            struct ddl_error *err)
{
    *n = 0;
    while (!s->eof) {
        struct pollfd waiting = { .fd = s->fd, .events = POLLIN };
        int ready = poll(&waiting, 1, POLL_MS);
        if (s->stop && atomic_load(s->stop))
            return ddl_error_set(err, DDL_E_INTERRUPTED, "%s: interrupted", display_name(s));
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        ssize_t got = read(s->fd, out, capacity);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ddl_error_set(err, DDL_E_IO, "%s: cannot read at byte %llu: %s", display_name(s),
                                 (unsigned long long)s->consumed, strerror(errno));
        s->eof = got == 0;
        s->consumed += (uint64_t)got;
        *n = (size_t)got;
        break;
    }
    return DDL_OK;
}

static ddl_status refill(struct ddl_source *s, struct ddl_error *err)
{
    if (s->packed_at < s->packed_size || s->eof)
        return DDL_OK;
    s->packed_at = 0;
    return read_file(s, s->packed, PACKED_CAPACITY, &s->packed_size, err);
}

static ddl_status corrupted(const struct ddl_source *s, const char *kind, const char *why,
                            struct ddl_error *err)
{
    uint64_t at = s->consumed - (s->packed_size - s->packed_at);
    return ddl_error_set(err, DDL_E_FORMAT, "%s: corrupted %s data near byte %llu: %s", display_name(s), kind,
                         (unsigned long long)at, why);
}

static ddl_status truncated(const struct ddl_source *s, const char *kind, struct ddl_error *err)
{
    return ddl_error_set(err, DDL_E_FORMAT, "%s: ends at byte %llu inside the %s data: truncated",
                         display_name(s), (unsigned long long)s->consumed, kind);
}

/* Calls the decoder once; *n is the number of bytes written. */
static ddl_status step_gzip(struct ddl_source *s, unsigned char *out, size_t capacity, size_t *n,
                            struct ddl_error *err)
{
    z_stream *z = s->decoder;
    *n = 0;
    while (!s->inside && s->after && s->packed_at < s->packed_size && s->packed[s->packed_at] == 0)
        s->packed_at++; /* tapes and block devices pad members with zeros, which gzip ignores too */
    if (!s->inside && s->packed_at == s->packed_size && s->after)
        return DDL_OK;
    if (!s->inside) { /* start of the next member */
        inflateReset(z);
        s->inside = true;
    }
    z->next_in = s->packed + s->packed_at;
    z->avail_in = (uInt)(s->packed_size - s->packed_at);
    z->next_out = out;
    z->avail_out = (uInt)capacity;
    int result = inflate(z, Z_NO_FLUSH);
    s->packed_at = s->packed_size - z->avail_in;
    *n = capacity - z->avail_out;
    if (result == Z_STREAM_END) {
        s->inside = false;
        s->after = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR)
        return corrupted(s, "gzip", z->msg ? z->msg : "needs a dictionary", err);
    return DDL_OK;
}

/* Reads the size in the frame's header. A frame that ends before that size is corrupted, but libzstd reports
 * this only if the output buffer holds the entire frame; end_frame checks it in all cases. */
static ddl_status begin_frame(struct ddl_source *s, struct ddl_error *err)
{
    enum { LONGEST_HEADER = 18 };
    ddl_status status = DDL_OK;
    size_t left = s->packed_size - s->packed_at, got;
    memmove(s->packed, s->packed + s->packed_at, left);
    for (s->packed_at = 0; left < LONGEST_HEADER && !s->eof && !status; left += got)
        status = read_file(s, s->packed + left, PACKED_CAPACITY - left, &got, err);
    s->packed_size = left;
    s->frame.started = true;
    s->frame.produced = 0;
    s->frame.expected = ZSTD_getFrameContentSize(s->packed, left);
    if (s->frame.expected == ZSTD_CONTENTSIZE_ERROR) /* reported by the decoder */
        s->frame.expected = ZSTD_CONTENTSIZE_UNKNOWN;
    return status;
}

static ddl_status end_frame(struct ddl_source *s, struct ddl_error *err)
{
    s->frame.started = false;
    if (s->frame.expected == ZSTD_CONTENTSIZE_UNKNOWN || s->frame.expected == s->frame.produced)
        return DDL_OK;
    char why[96];
    snprintf(why, sizeof why, "frame of %llu bytes, but %llu in its header",
             (unsigned long long)s->frame.produced, (unsigned long long)s->frame.expected);
    return corrupted(s, "zstd", why, err);
}

static ddl_status step_zstd(struct ddl_source *s, unsigned char *out, size_t capacity, size_t *n,
                            struct ddl_error *err)
{
    ddl_status status = s->frame.started ? DDL_OK : begin_frame(s, err);
    if (status)
        return status;
    ZSTD_inBuffer in = { s->packed, s->packed_size, s->packed_at };
    ZSTD_outBuffer to = { out, capacity, 0 };
    size_t result = ZSTD_decompressStream(s->decoder, &to, &in);
    bool moved = to.pos > 0 || in.pos > s->packed_at;
    s->packed_at = in.pos;
    *n = to.pos;
    if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
        return out_of_memory(s, err); /* for the window of the frame */
    if (ZSTD_isError(result))
        return corrupted(s, "zstd", ZSTD_getErrorName(result), err);
    s->frame.produced += to.pos;
    if (moved)
        s->inside = result != 0;
    return moved && !s->inside ? end_frame(s, err) : DDL_OK;
}

ddl_status ddl_source_read(struct ddl_source *s, void *out, size_t capacity, size_t *n, struct ddl_error *err)
{
    if (capacity > (1u << 30))
        capacity = 1u << 30; /* zlib counts in 32 bits */
    if (s->packing == DDL_PACKING_NONE)
        return read_file(s, out, capacity, n, err);
    bool gzip = s->packing == DDL_PACKING_GZIP;
    for (;;) {
        *n = 0;
        if (s->stop && atomic_load(s->stop))
            return ddl_error_set(err, DDL_E_INTERRUPTED, "%s: interrupted", display_name(s));
        ddl_status status = refill(s, err);
        if (status)
            return status;
        bool spent = s->eof && s->packed_at == s->packed_size;
        if (spent && !s->inside)
            return DDL_OK;
        status = (gzip ? step_gzip : step_zstd)(s, out, capacity, n, err);
        if (status || *n > 0)
            return status;
        if (spent && s->inside)
            return truncated(s, gzip ? "gzip" : "zstd", err);
    }
}
