/* What the fuzz targets share. A target is one file, fuzz_<what>.c, with LLVMFuzzerTestOneInput: it hands the
 * bytes to the library the way a user's file reaches it, and checks laws on the way. `./dev fuzz` links it
 * with libFuzzer; the usual test builds link it with replay.c, which runs every kept input once. */
#ifndef DDL_TEST_FUZZ_H
#define DDL_TEST_FUZZ_H

#include "ddl/backend.h"
#include "ddl/status.h"
#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Where a target has one: libFuzzer's way to make a new input from an old one in place. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* A mutator for texts in which sizes stand: half of the time it puts another number in the place of one. */
size_t fuzz_mutate_number(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
#define FUZZ_MUTATE_NUMBERS                                                                                  \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)           \
    {                                                                                                        \
        return fuzz_mutate_number(data, size, max_size, seed);                                               \
    }

/* Ends the process with a message where the condition does not hold: a finding like a crash. */
#define FUZZ_LAW(condition) fuzz_law((condition), #condition, __FILE__, __LINE__)
void fuzz_law(bool kept, const char *condition, const char *file, int line);
/* The law of every call: a failure has its status in `err` and a sentence of one line. Returns true for
 * DDL_OK. */
bool fuzz_ok(ddl_status status, const struct ddl_error *err);

/* The process's own folder, and a path in it (one of a few rotating static buffers). */
const char *fuzz_folder(void);
const char *fuzz_path(const char *name);
/* Writes a file into the folder and returns its path. */
const char *fuzz_file(const char *name, const void *data, size_t size);

/* Empties the folder and fills it from an archive: lines "@@@ NAME", each followed by that file's bytes up to
 * the line break before the next. A name is letters, digits, '.', '-' and '_', perhaps behind FOLDER/. A
 * .safetensors file that begins with '{' is spelled out: the target puts the header's length before it, gives
 * places to tensors that have none, and appends their numbers; so that shapes can be varied freely. */
void fuzz_unpack(const uint8_t *data, size_t size);
/* True if the input is an archive. */
bool fuzz_is_archive(const uint8_t *data, size_t size);
/* Removes the file or folder of that name in the folder, if there is one. */
void fuzz_remove(const char *name);

/* Made once: the reference backend; a tokenizer of the 256 bytes, a few merges and <|endoftext|>. */
ddl_backend *fuzz_backend(void);
const ddl_tokenizer *fuzz_tokenizer(void);

/* Reads everything of a set of tensors, and closes it. */
struct ddl_safetensors;
void fuzz_use_tensors(struct ddl_safetensors *st);
/* Encodes and decodes; with no special tokens the text comes back, perhaps behind a space. */
enum { FUZZ_LONGEST_TEXT = 4096 };
void fuzz_round_trip(const ddl_tokenizer *tokenizer, const char *text, size_t size, bool special);
/* Encodes and decodes this and that with it, and frees it. */
void fuzz_use_tokenizer(ddl_tokenizer *tokenizer);
/* Unpacks the input (enum ddl_packing) in large and in small pieces: the same bytes, or both times a refusal.
 */
enum { FUZZ_MOST_UNPACKED = 1 << 17 };
void fuzz_use_packed(const void *data, size_t size, int packing);

#endif
