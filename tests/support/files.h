/* Small files for tests. */
#ifndef DDL_TEST_FILES_H
#define DDL_TEST_FILES_H

#include "support/support.h"

#include "base/file.h"
#include "tensor/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void write_file(const char *path, const void *data, size_t size);
/* The whole file, NUL-terminated; free with free. `size` may be NULL. */
char *read_file(const char *path, size_t *size);
void assert_same_file(const char *a, const char *b);
/* The tensors of a model folder; close with ddl_safetensors_close. */
ddl_safetensors *open_tensors(const char *folder);
/* Removes a file or folder of the scratch folder, if it is there. */
void remove_scratch(const char *relative);
/* Copies a folder of the scratch folder to another path in it; what is at that path is removed first. */
void copy_scratch(const char *from, const char *to);
/* Corrupts a file: flips a bit in the middle (0), truncates it to half (1), or removes it (2). */
void corrupt_file(const char *path, size_t how);
/* The error is one line that contains the gist. */
void assert_says(const struct ddl_error *err, const char *gist);
/* A shard of the n tokens first, first + 1, ..., `width` bytes each. */
void write_shard(const char *path, int width, uint32_t first, uint32_t n);

#endif
