/* Operations on parsed inputs that several targets share. */
#include "fuzz.h"

#include "data/source.h"
#include "tensor/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- tensors ---- */

static void read_tensor(const struct ddl_tensor *t)
{
    struct ddl_error err = { 0 };
    char shape[64];
    ddl_tensor_shape_text(t, shape, sizeof shape);
    FUZZ_CHECK(shape[0] == '(' && memchr(shape, '\0', sizeof shape));
    FUZZ_CHECK(t->ndim <= DDL_MAX_DIMS && t->bytes == t->count * ddl_dtype_size(t->dtype));
    void *numbers = malloc(t->count ? t->count * sizeof(double) : 1);
    FUZZ_CHECK(numbers != NULL);
    fuzz_ok(ddl_tensor_read_f32(t, 0, t->count, numbers, &err), &err);
    fuzz_ok(ddl_tensor_read_f64(t, numbers, &err), &err);
    fuzz_ok(ddl_tensor_read_i64(t, numbers, &err), &err);
    FUZZ_CHECK(ddl_tensor_read_f32(t, t->count, 1, numbers, &err) != DDL_OK);
    free(numbers);
}

void fuzz_use_tensors(struct ddl_safetensors *st)
{
    for (size_t i = 0; i < ddl_safetensors_count(st); i++) {
        const struct ddl_tensor *t = ddl_safetensors_at(st, i);
        FUZZ_CHECK(ddl_safetensors_find(st, t->name) == t);
        FUZZ_CHECK(*ddl_safetensors_path(st, t));
        read_tensor(t);
    }
    FUZZ_CHECK(ddl_safetensors_find(st, "no such name \001") == NULL);
    ddl_safetensors_close(st);
}

/* ---- tokenizers ---- */

void fuzz_round_trip(const ddl_tokenizer *tokenizer, const char *text, size_t size, bool special)
{
    enum { MOST = FUZZ_LONGEST_TEXT + 16 };
    struct ddl_error err = { 0 };
    struct ddl_ids ids = { 0 };
    struct ddl_decode_stream stream = { 0 };
    char out[MOST];
    size_t used = 0;
    ddl_status status = ddl_tokenizer_encode(tokenizer, text, size, special, &ids, &err);
    if (status) { /* a tokenizer of characters rejects those that it does not have */
        FUZZ_CHECK(ddl_tokenizer_is_characters(tokenizer) && status == DDL_E_FORMAT && *err.text);
        ddl_ids_free(&ids);
        return;
    }
    for (size_t i = 0; i < ids.n && used < MOST; i++) {
        FUZZ_CHECK(ids.ids[i] >= 0 && (size_t)ids.ids[i] < ddl_tokenizer_vocab_size(tokenizer));
        used += ddl_decode_push(&stream, tokenizer, ids.ids[i], out + used, MOST - used);
    }
    if (used < MOST)
        used += ddl_decode_flush(&stream, out + used, MOST - used);
    size_t added = used > size && out[0] == ' ';
    FUZZ_CHECK(special || (used == size + added && memcmp(out + added, text, size) == 0));
    ddl_ids_free(&ids);
}

void fuzz_use_tokenizer(ddl_tokenizer *tokenizer)
{
    static const char text[] =
        "It's 1995, \"the\" cat\tand\r\n\n  the d\xc3\xb6g \xf0\x9f\x90\xb6\xff<|endoftext|> ";
    fuzz_round_trip(tokenizer, text, sizeof text - 1, false);
    fuzz_round_trip(tokenizer, text, sizeof text - 1, true);
    fuzz_round_trip(tokenizer, "", 0, true);
    char word[700];
    for (size_t i = 0; i < sizeof word; i++)
        word[i] = "there"[i % 5];
    fuzz_round_trip(tokenizer, word, sizeof word, false);
    (void)ddl_tokenizer_end_of_text(tokenizer);
    ddl_tokenizer_free(tokenizer);
}

/* ---- compressed inputs ---- */

struct unpacked {
    uint64_t bytes;
    uLong crc;
    ddl_status status;
};

static struct unpacked unpack(const char *path, enum ddl_packing packing, size_t capacity)
{
    static unsigned char out[1 << 16];
    struct ddl_error err = { 0 };
    struct ddl_source source;
    struct unpacked u = { 0 };
    FUZZ_CHECK(ddl_source_open(&source, path, packing, NULL, &err) == DDL_OK);
    for (size_t n = 1; !u.status && n && u.bytes < FUZZ_MOST_UNPACKED;) {
        size_t left = FUZZ_MOST_UNPACKED - (size_t)u.bytes;
        u.status = ddl_source_read(&source, out, capacity < left ? capacity : left, &n, &err);
        if (!fuzz_ok(u.status, &err))
            break;
        FUZZ_CHECK(n <= capacity);
        u.crc = crc32(u.crc, out, (uInt)n);
        u.bytes += n;
    }
    ddl_source_close(&source);
    return u;
}

void fuzz_use_packed(const void *data, size_t size, int packing)
{
    const char *path = fuzz_file("packed", data, size);
    struct unpacked large = unpack(path, (enum ddl_packing)packing, 1 << 16);
    struct unpacked small = unpack(path, (enum ddl_packing)packing, 61);
    if (large.bytes >= FUZZ_MOST_UNPACKED || small.bytes >= FUZZ_MOST_UNPACKED)
        return; /* neither reached the end */
    FUZZ_CHECK(large.status == small.status);
    FUZZ_CHECK(large.status || (large.bytes == small.bytes && large.crc == small.crc));
}
