#include "text/bytes_table.h"

#include "base/mem.h"

#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static uint64_t load(const char *bytes, size_t size)
{
    uint64_t word = 0;
    memcpy(&word, bytes, size);
    return word;
}

/* The slot's word: the bytes, or their hash. */
static uint64_t word_of(const char *bytes, size_t size, size_t readable)
{
    if (size <= 8 && readable >= 8) {
        /* One load and a mask is faster than a copy of variable length. The mask is built from bytes, which
         * makes it independent of endianness. */
        static const unsigned char ones[16] = { 255, 255, 255, 255, 255, 255, 255, 255 };
        uint64_t word, mask;
        memcpy(&word, bytes, 8);
        memcpy(&mask, ones + 8 - size, 8);
        return word & mask;
    }
    if (size <= 8)
        return load(bytes, size);
    uint64_t hash = size;
    size_t at = 0;
    for (; at + 8 < size; at += 8)
        hash = mix(hash ^ load(bytes + at, 8));
    return mix(hash ^ load(bytes + size - 8, 8));
}

static size_t home(const struct ddl_bytes_table *table, uint64_t word, size_t size)
{
    return (size_t)((mix(word + size) * 0xd6e8feb86659fd93u) >> (64 - table->bits));
}

static bool allocate(struct ddl_bytes_table *table, unsigned bits)
{
    size_t bytes;
    if (!ddl_size_mul((size_t)1 << bits, sizeof *table->slots, &bytes))
        return false;
    struct ddl_bytes_slot *slots = ddl_mem_zalloc(bytes);
    if (!slots)
        return false;
    table->slots = slots;
    table->bits = bits;
    return true;
}

bool ddl_bytes_table_init(struct ddl_bytes_table *table, size_t n)
{
    unsigned bits = 6;
    while (bits < 40 && ((size_t)1 << bits) / 2 < n)
        bits++;
    table->n = 0;
    return allocate(table, bits);
}

void ddl_bytes_table_free(struct ddl_bytes_table *table)
{
    ddl_mem_free(table->slots);
    table->slots = NULL;
}

int32_t ddl_bytes_table_find(const struct ddl_bytes_table *table, const char *bytes, size_t size,
                             size_t readable)
{
    uint64_t word = word_of(bytes, size, readable);
    size_t mask = ((size_t)1 << table->bits) - 1;
    for (size_t i = home(table, word, size);; i = (i + 1) & mask) {
        const struct ddl_bytes_slot *slot = &table->slots[i];
        if (slot->size == 0)
            return -1;
        if (slot->word == word && slot->size == size &&
            (size <= 8 || memcmp(table->key(table->user, slot->value), bytes, size) == 0))
            return slot->value;
    }
}

static void place(struct ddl_bytes_table *table, struct ddl_bytes_slot entry)
{
    size_t mask = ((size_t)1 << table->bits) - 1, i = home(table, entry.word, entry.size);
    while (table->slots[i].size)
        i = (i + 1) & mask;
    table->slots[i] = entry;
}

bool ddl_bytes_table_add(struct ddl_bytes_table *table, const char *bytes, size_t size, int32_t value)
{
    if ((table->n + 1) * 2 > (size_t)1 << table->bits) {
        struct ddl_bytes_slot *old = table->slots;
        size_t n_old = (size_t)1 << table->bits;
        if (!allocate(table, table->bits + 1))
            return false;
        for (size_t i = 0; i < n_old; i++) {
            if (old[i].size)
                place(table, old[i]);
        }
        ddl_mem_free(old);
    }
    place(table, (struct ddl_bytes_slot){ word_of(bytes, size, size), (uint32_t)size, value });
    table->n++;
    return true;
}
