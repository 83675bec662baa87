/* A finished part of a build: the tokens and documents of its inputs, without a selection of documents for
 * training and validation, which needs the number of documents before the part. Three files in the folder of
 * the build:
 *
 *   part-000000.ids    the tokens, as in a shard
 *   part-000000.docs   for each document, also an empty one: its tokens and bytes of text, and if the build
 *                      makes masks the tokens of its prompt, uint64
 *   part-000000.json   the manifest, written last: counts, checksums, and the inputs as they were read */
#ifndef DDL_DATA_PART_FILE_H
#define DDL_DATA_PART_FILE_H

#include "base/file.h"
#include "data/build_folder.h"
#include "data/text_batch.h"

#include <jansson.h>

struct ddl_part_document {
    uint64_t tokens, bytes; /* tokens with <|endoftext|>; both 0 if the document is empty */
    uint64_t prompt;        /* tokens of the prompt, after <|endoftext|> */
};
struct ddl_part_layout {
    int width;    /* bytes per token */
    bool prompts; /* documents have prompts */
};

struct ddl_part_writer {
    const struct ddl_build_folder *folder; /* borrowed */
    size_t index;
    struct ddl_part_layout layout;
    struct ddl_part_file {
        struct ddl_file_writer writer;
        bool open;
        uint32_t crc;
    } ids, docs;
    uint64_t tokens, documents; /* so far; documents: complete ones */
    struct ddl_part_document document;
    bool in_document;
};

/* After a successful begin, call exactly one of commit and discard. commit adds its keys to `manifest`
 * (borrowed; NULL without memory) and writes it. */
ddl_status ddl_part_writer_begin(struct ddl_part_writer *w, const struct ddl_build_folder *folder,
                                 size_t index, struct ddl_part_layout layout, struct ddl_error *err);
ddl_status ddl_part_writer_append(struct ddl_part_writer *w, const struct ddl_text_batch *batch,
                                  struct ddl_error *err);
ddl_status ddl_part_writer_commit(struct ddl_part_writer *w, json_t *manifest, struct ddl_error *err);
void ddl_part_writer_discard(struct ddl_part_writer *w);

/* Path of a file of the part; ending: "ids", "docs" or "json". */
void ddl_part_path(const struct ddl_build_folder *folder, size_t index, const char *ending,
                   char path[DDL_BUILD_PATH]);
bool ddl_part_finished(const struct ddl_build_folder *folder, size_t index);
/* Reads the manifest; *out is NULL after an error. */
ddl_status ddl_part_manifest(json_t **out, const struct ddl_build_folder *folder, size_t index,
                             struct ddl_error *err);

/* Reads a finished part from its beginning. */
struct ddl_part_reader {
    struct ddl_part_stream {
        FILE *stream;
        char path[DDL_BUILD_PATH];
        uint32_t crc, expected_crc;
    } ids, docs;
    char manifest[DDL_BUILD_PATH];
    struct ddl_part_layout layout;
    uint64_t tokens, documents; /* not read yet */
};

/* DDL_E_FORMAT if the files do not have the sizes in the manifest. Close it also after an error. */
ddl_status ddl_part_reader_open(struct ddl_part_reader *r, const struct ddl_build_folder *folder,
                                size_t index, struct ddl_part_layout layout, struct ddl_error *err);
/* The next document; there must be one. */
ddl_status ddl_part_reader_document(struct ddl_part_reader *r, struct ddl_part_document *document,
                                    struct ddl_error *err);
/* The next n tokens, packed; DDL_E_FORMAT if there are fewer. */
ddl_status ddl_part_reader_tokens(struct ddl_part_reader *r, unsigned char *bytes, size_t n,
                                  struct ddl_error *err);
/* After the last document: DDL_E_FORMAT if tokens are left or a checksum differs. */
ddl_status ddl_part_reader_end(const struct ddl_part_reader *r, struct ddl_error *err);
void ddl_part_reader_close(struct ddl_part_reader *r);

#endif
