/* Shared by the fuzz targets. A target is one file, fuzz_<what>.c, that defines LLVMFuzzerTestOneInput: it
 * passes the bytes to the library in the same way as a user's file, and checks invariants. `./dev fuzz` links
 * it with libFuzzer; regular test builds link it with replay.c, which runs every stored input once. */
#ifndef DDL_TEST_FUZZ_H
#define DDL_TEST_FUZZ_H

#include "ddl/backend.h"
#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Optional: mutates an input in place for libFuzzer. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* Mutator for texts that contain sizes: in half of the calls, replaces one number by another. */
size_t fuzz_mutate_number(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
#define FUZZ_MUTATE_NUMBERS                                                                                  \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)           \
    {                                                                                                        \
        return fuzz_mutate_number(data, size, max_size, seed);                                               \
    }

/* Aborts with a message if the condition is false: a finding, like a crash. */
#define FUZZ_CHECK(condition) fuzz_check((condition), #condition, __FILE__, __LINE__)
void fuzz_check(bool kept, const char *condition, const char *file, int line);
/* Invariant of every call: a failure sets its status and a message of one line in `err`. Returns true for
 * DDL_OK. */
bool fuzz_ok(ddl_status status, const struct ddl_error *err);

/* Returns the process's own folder, or a path in it (one of several rotating static buffers). */
const char *fuzz_folder(void);
const char *fuzz_path(const char *name);
/* Writes a file into the folder and returns its path. */
const char *fuzz_file(const char *name, const void *data, size_t size);

/* Empties the folder and fills it from an archive: lines "@@@ NAME", each followed by the file's bytes up to
 * the line break before the next mark. A name consists of letters, digits, '.', '-' and '_', optionally
 * preceded by FOLDER/. A .safetensors file that starts with '{' has a textual header: its length is
 * prepended, tensors without offsets get them, and their values are appended, so that shapes can be varied
 * freely. */
void fuzz_unpack(const uint8_t *data, size_t size);
/* True if the input is an archive. */
bool fuzz_is_archive(const uint8_t *data, size_t size);
/* Removes the file or folder of that name in the folder, if it exists. */
void fuzz_remove(const char *name);

/* Created once: the reference backend; a tokenizer with the 256 bytes, a few merges and <|endoftext|>. */
ddl_backend *fuzz_backend(void);
const ddl_tokenizer *fuzz_tokenizer(void);

/* Reads everything in a set of tensors, then closes it. */
struct ddl_safetensors;
void fuzz_use_tensors(struct ddl_safetensors *st);
/* Encodes and decodes a text: without special tokens the text must come back, possibly after a space. */
enum { FUZZ_LONGEST_TEXT = 4096 };
void fuzz_round_trip(const ddl_tokenizer *tokenizer, const char *text, size_t size, bool special);
/* Encodes and decodes several texts with the tokenizer, then frees it. */
void fuzz_use_tokenizer(ddl_tokenizer *tokenizer);
/* Decompresses the input (enum ddl_packing) in large and in small blocks: both must give the same bytes or
 * both fail. */
enum { FUZZ_MOST_UNPACKED = 1 << 17 };
void fuzz_use_packed(const void *data, size_t size, int packing);

#endif
