#include "cli/output/buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool buffer_add(struct buffer *b, const char *bytes, size_t size)
{
    if (size >= SIZE_MAX / 4 - b->n)
        return false;
    if (b->n + size + 1 > b->capacity) {
        size_t capacity = 2 * (b->n + size) + 64;
        char *larger = realloc(b->bytes, capacity);
        if (!larger)
            return false;
        b->bytes = larger;
        b->capacity = capacity;
    }
    if (size)
        memcpy(b->bytes + b->n, bytes, size);
    b->n += size;
    b->bytes[b->n] = '\0';
    return true;
}

void buffer_free(struct buffer *b)
{
    free(b->bytes);
    *b = (struct buffer){ 0 };
}
