/* GPT-2's byte alphabet: every byte as one printable character, so that tokens can stand in text files. A
 * byte that is printable in Latin-1 is itself; the other 68, in order, are U+0100 and on. */
#ifndef DDL_TEXT_ALPHABET_H
#define DDL_TEXT_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddl_alphabet {
    uint16_t code[256];       /* byte to character                                  */
    int16_t byte[256 + 68];   /* character to byte, or -1                           */
    unsigned char order[256]; /* the bytes in the order of their characters         */
};
struct ddl_alphabet ddl_alphabet_make(void);

/* The bytes of a token written in the alphabet: out[] holds `size` bytes at least. False if a character is
 * none of the alphabet's, or the text is not UTF-8. */
bool ddl_alphabet_decode(const struct ddl_alphabet *alphabet, const char *text, size_t size, char *out,
                         size_t *n_out);
/* The reverse; out[] holds 2 size bytes. Returns the length. */
size_t ddl_alphabet_encode(const struct ddl_alphabet *alphabet, const char *bytes, size_t size, char *out);

#endif
