/* A growable text. */
#ifndef DDL_CLI_OUTPUT_BUFFER_H
#define DDL_CLI_OUTPUT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

/* Zero-initialize; free with buffer_free. */
struct buffer {
    char *bytes; /* (n), then a NUL; NULL while it is empty */
    size_t n, capacity;
};
/* Appends `size` bytes; false without memory, and nothing is appended. */
bool buffer_add(struct buffer *b, const char *bytes, size_t size);
void buffer_free(struct buffer *b);

#endif
