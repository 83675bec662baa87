/* Tests data/source.c: decompression gives the original bytes; corruption is reported with its offset. */
#include "data/pack.h"

#include "base/rng.h"
#include "data/source.h"

#include <sys/resource.h>

static const struct {
    enum ddl_packing packing;
    pack_fn *pack;
    const char *name;
} packings[] = { { DDL_PACKING_GZIP, pack_gzip, "gzip" }, { DDL_PACKING_ZSTD, pack_zstd, "zstd" } };

enum { N_PACKINGS = sizeof packings / sizeof *packings };

/* Reads everything in blocks of at most `step` bytes. */
static ddl_status read_all(const char *path, enum ddl_packing packing, size_t step, unsigned char *out,
                           size_t capacity, size_t *size, struct ddl_error *err)
{
    struct ddl_source source;
    ddl_status status = ddl_source_open(&source, path, packing, NULL, err);
    *size = 0;
    for (size_t n = 1; !status && n > 0; *size += n) {
        assert_true(*size + step <= capacity);
        status = ddl_source_read(&source, out + *size, step, &n, err);
        if (status)
            break;
    }
    ddl_source_close(&source);
    ddl_source_close(&source);
    return status;
}

/* Half random, half repetitive. */
static unsigned char *sample(size_t size)
{
    unsigned char *data = malloc(size + 1);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = i / 1000 % 2 ? (unsigned char)ddl_rng_u64(1, i) : (unsigned char)('a' + i % 7);
    return data;
}

static void round_trip(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 4096, 1000003 }, steps[] = { 1 << 20, 4096, 7 };
    unsigned char *out = malloc(4 << 20);
    assert_non_null(out);
    for (size_t s = 0; s < 4; s++) {
        unsigned char *data = sample(sizes[s]);
        for (size_t k = 0; k < 3; k++) {
            for (size_t p = 0; p < N_PACKINGS; p++) {
                /* Two consecutive members are one text. */
                size_t n, size;
                unsigned char *packed = packings[p].pack(data, sizes[s], &n);
                unsigned char *twice = malloc(2 * n);
                assert_non_null(twice);
                memcpy(twice, packed, n);
                memcpy(twice + n, packed, n);
                write_file(scratch_path("packed"), twice, 2 * n);
                struct ddl_error err;
                assert_ok(read_all(scratch_path("packed"), packings[p].packing, steps[k], out, 4 << 20, &size,
                                   &err),
                          err);
                assert_int_equal(size, 2 * sizes[s]);
                assert_memory_equal(out, data, sizes[s]);
                assert_memory_equal(out + sizes[s], data, sizes[s]);
                free(packed);
                free(twice);
            }
        }
        free(data);
    }
    free(out);
}

static void corruption_is_reported(void **state)
{
    (void)state;
    enum { SIZE = 300000 };
    unsigned char *data = sample(SIZE), *out = malloc(4 << 20);
    assert_non_null(out);
    for (size_t p = 0; p < N_PACKINGS; p++) {
        size_t n, size;
        unsigned char *packed = packings[p].pack(data, SIZE, &n);
        struct ddl_error err;
        char gist[128];
        const size_t lengths[] = { 0, 3, 20, n / 2, n - 1 };
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            write_file(scratch_path("short"), packed, lengths[i]);
            assert_int_equal(
                read_all(scratch_path("short"), packings[p].packing, 4096, out, 4 << 20, &size, &err),
                DDL_E_FORMAT);
            snprintf(gist, sizeof gist, "short: ends at byte %zu inside the %s data: truncated", lengths[i],
                     packings[p].name);
            assert_says(&err, gist);
        }
        /* Data after the last member must be a member. */
        packed[0] ^= 0x55;
        write_file(scratch_path("wrong"), packed, n);
        assert_int_equal(
            read_all(scratch_path("wrong"), packings[p].packing, 4096, out, 4 << 20, &size, &err),
            DDL_E_FORMAT);
        snprintf(gist, sizeof gist, "wrong: corrupted %s data near byte ", packings[p].name);
        assert_says(&err, gist);
        packed[0] ^= 0x55;
        /* Flip bits in the middle: an error or (zstd without a checksum) other bytes, but never a crash. */
        for (size_t at = 10; at < n; at += n / 97) {
            packed[at] ^= 0x41;
            write_file(scratch_path("flipped"), packed, n);
            ddl_status status =
                read_all(scratch_path("flipped"), packings[p].packing, 4096, out, 4 << 20, &size, &err);
            if (packings[p].packing == DDL_PACKING_GZIP)
                assert_int_equal(status, DDL_E_FORMAT); /* gzip has a checksum */
            if (status)
                assert_says(&err, "flipped: ");
            packed[at] ^= 0x41;
        }
        free(packed);
    }
    free(data);
    free(out);
}

static void bytes_after_the_last_member(void **state)
{
    (void)state;
    unsigned char out[8192];
    for (size_t p = 0; p < N_PACKINGS; p++) {
        size_t n, size;
        unsigned char *packed = packings[p].pack("hello", 5, &n), more[256];
        assert_true(n + 20 < sizeof more);
        memcpy(more, packed, n);
        memset(more + n, 'x', 20);
        write_file(scratch_path("more"), more, n + 20);
        struct ddl_error err;
        assert_int_equal(
            read_all(scratch_path("more"), packings[p].packing, 4096, out, sizeof out, &size, &err),
            DDL_E_FORMAT);
        assert_says(&err, "more: corrupted");
        free(packed);
    }
}

/* An empty last block after a header that states 136 bytes; a complete frame before it. */
static void frame_content_size(void **state)
{
    (void)state;
    static const unsigned char empty[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x88, 1, 0, 0 };
    static const size_t steps[] = { 1, 61, 8192 };
    unsigned char out[3 * 8192], both[256];
    struct ddl_error err;
    size_t n, size;
    unsigned char *packed = pack_zstd("hello", 5, &n);
    assert_true(n + sizeof empty < sizeof both);
    memcpy(both, packed, n);
    memcpy(both + n, empty, sizeof empty);
    write_file(scratch_path("promise"), both, n + sizeof empty);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(
            read_all(scratch_path("promise"), DDL_PACKING_ZSTD, steps[i], out, sizeof out, &size, &err),
            DDL_E_FORMAT);
        assert_int_equal(size, 5);
        assert_says(&err, "promise: corrupted zstd data near byte ");
    }
    assert_int_equal(read_all(scratch_path("promise"), DDL_PACKING_ZSTD, 1, out, sizeof out, &size, &err),
                     DDL_E_FORMAT);
    assert_says(&err, "frame of 0 bytes, but 136 in its header");
    free(packed);
}

/* A frame with the window of zstd --long=31, and the message where there is no memory for it. */
static void long_window(void **state)
{
    (void)state;
    static const unsigned char frame[] = { 0x28, 0xb5, 0x2f, 0xfd, 0,   0xa8, 0x29,
                                           0,    0,    'h',  'e',  'l', 'l',  'o' };
    const char *path = scratch_path("long");
    unsigned char out[64];
    struct ddl_error err;
    size_t size;
    write_file(path, frame, sizeof frame);
    assert_ok(read_all(path, DDL_PACKING_ZSTD, 16, out, sizeof out, &size, &err), err);
    assert_int_equal(size, 5);
    assert_memory_equal(out, "hello", 5);
#ifndef DDL_SANITIZED /* a sanitizer reserves more than any limit */
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    small = before;
    small.rlim_cur = 1u << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
    ddl_status status = read_all(path, DDL_PACKING_ZSTD, 16, out, sizeof out, &size, &err);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, DDL_E_MEMORY);
    assert_says(&err, "long: out of memory to unpack it");
#endif
}

static void missing_and_stopped(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_source source;
    assert_int_equal(ddl_source_open(&source, scratch_path("none"), DDL_PACKING_NONE, NULL, &err), DDL_E_IO);
    assert_says(&err, "none: cannot open: ");
    atomic_bool stop = false;
    unsigned char byte;
    size_t n;
    write_file(scratch_path("some"), "some", 4);
    assert_ok(ddl_source_open(&source, scratch_path("some"), DDL_PACKING_NONE, &stop, &err), err);
    atomic_store(&stop, true);
    assert_int_equal(ddl_source_read(&source, &byte, 1, &n, &err), DDL_E_INTERRUPTED);
    ddl_source_close(&source);
}

/* Zeros after a gzip member, as on tapes, also before another member; but nothing else. */
static void padding(void **state)
{
    (void)state;
    enum { SIZE = 1000, PADDING = 300000 };
    unsigned char *data = sample(SIZE), *out = malloc(4 << 20), *padded = calloc(2, PADDING);
    size_t n, size;
    unsigned char *packed = pack_gzip(data, SIZE, &n);
    struct ddl_error err;
    assert_true(out && padded);
    static const size_t zeros[] = { 1, 511, PADDING };
    for (size_t i = 0; i < 3; i++) {
        for (size_t step = 7; step < 5000; step *= 100) {
            memcpy(padded, packed, n);
            memset(padded + n, 0, zeros[i]);
            write_file(scratch_path("padded"), padded, n + zeros[i]);
            assert_ok(read_all(scratch_path("padded"), DDL_PACKING_GZIP, step, out, 4 << 20, &size, &err),
                      err);
            assert_int_equal(size, SIZE);
            memcpy(padded + n + zeros[i], packed, n);
            write_file(scratch_path("padded"), padded, 2 * n + zeros[i]);
            assert_ok(read_all(scratch_path("padded"), DDL_PACKING_GZIP, step, out, 4 << 20, &size, &err),
                      err);
            assert_int_equal(size, 2 * SIZE);
            padded[n + zeros[i]] = 'x';
            write_file(scratch_path("padded"), padded, n + zeros[i] + 1);
            assert_true(read_all(scratch_path("padded"), DDL_PACKING_GZIP, step, out, 4 << 20, &size, &err) !=
                        DDL_OK);
        }
    }
    memset(padded, 0, 100); /* no member at all */
    write_file(scratch_path("padded"), padded, 100);
    assert_int_equal(read_all(scratch_path("padded"), DDL_PACKING_GZIP, 4096, out, 4 << 20, &size, &err),
                     DDL_E_FORMAT);
    free(packed);
    free(padded);
    free(data);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(corruption_is_reported),
        cmocka_unit_test(bytes_after_the_last_member),
        cmocka_unit_test(padding),
        cmocka_unit_test(frame_content_size),
        cmocka_unit_test(long_window),
        cmocka_unit_test(missing_and_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
