/* GPT-2's byte alphabet: represents every byte as one printable character, so that tokens can be stored in
 * text files. A byte that is printable in Latin-1 maps to itself; the other 68, in order, map to U+0100 and
 * up. */
#ifndef DDL_TEXT_ALPHABET_H
#define DDL_TEXT_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddl_alphabet {
    uint16_t code[256];       /* byte to character */
    int16_t byte[256 + 68];   /* character to byte, or -1 */
    unsigned char order[256]; /* the bytes in the order of their characters */
};
struct ddl_alphabet ddl_alphabet_make(void);

/* Decodes a token written in the alphabet to its bytes. out[] must hold at least `size` bytes. Returns false
 * if a character is not in the alphabet or the text is not valid UTF-8. */
bool ddl_alphabet_decode(const struct ddl_alphabet *alphabet, const char *text, size_t size, char *out,
                         size_t *n_out);
/* Encodes bytes in the alphabet. out[] must hold 2 * size bytes. Returns the length. */
size_t ddl_alphabet_encode(const struct ddl_alphabet *alphabet, const char *bytes, size_t size, char *out);

#endif
