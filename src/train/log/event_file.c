#define _POSIX_C_SOURCE 200809L
#include "train/log/event_file.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/held.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* TensorBoard recognizes a file by "tfevents" in its name, and reads the files in the order of their names:
 * the time of creation comes first in it, in seconds. */
static const char prefix[] = "events.out.tfevents.";

static bool is_event_file(void *user, const char *name)
{
    (void)user;
    return strncmp(name, prefix, sizeof prefix - 1) == 0;
}

/* The time of the next file: now, but after that of each file that the folder has. */
static ddl_status next_time(const char *folder, unsigned long long *out, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_list(&list, folder, is_event_file, NULL, err);
    *out = (unsigned long long)time(NULL);
    for (size_t i = 0; i < list.n; i++) {
        unsigned long long seconds = strtoull(list.names[i] + sizeof prefix - 1, NULL, 10);
        if (seconds >= *out)
            *out = seconds + 1;
    }
    ddl_file_names_free(&list);
    return status;
}

ddl_status ddl_event_file_create(struct ddl_event_file *f, const char *folder, struct ddl_error *err)
{
    unsigned long long seconds = 0;
    char name[64];
    *f = (struct ddl_event_file){ 0 };
    ddl_status status = ddl_file_check_no_link(folder, err);
    if (!status)
        status = ddl_file_make_dir(folder, err);
    if (!status)
        status = next_time(folder, &seconds, err);
    if (status)
        return status;
    snprintf(name, sizeof name, "%s%010llu.ddl", prefix, seconds);
    if (!ddl_path_join(f->path, sizeof f->path, folder, name))
        return ddl_error_set(err, DDL_E_USAGE, "%.200s: the path is too long", folder);
    int fd = ddl_held_open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
    f->stream = fd < 0 ? NULL : fdopen(fd, "wb");
    if (f->stream)
        return DDL_OK;
    status = ddl_file_error(err, f->path, "create");
    if (fd >= 0)
        close(fd);
    return status;
}

static void put_bytes(unsigned char *out, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

static uint32_t masked_crc(const void *data, size_t size)
{
    uint32_t crc = ddl_crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static ddl_status write_failed(struct ddl_event_file *f, int why, struct ddl_error *err)
{
    f->failed = errno = why;
    return ddl_file_error(err, f->path, "write");
}

ddl_status ddl_event_file_add(struct ddl_event_file *f, const void *data, size_t size, struct ddl_error *err)
{
    unsigned char head[12], tail[4];
    if (f->failed)
        return write_failed(f, f->failed, err);
    put_bytes(head, size, 8);
    put_bytes(head + 8, masked_crc(head, 8), 4);
    put_bytes(tail, masked_crc(data, size), 4);
    if (fwrite(head, sizeof head, 1, f->stream) == 1 && fwrite(data, 1, size, f->stream) == size &&
        fwrite(tail, sizeof tail, 1, f->stream) == 1)
        return DDL_OK;
    return write_failed(f, errno, err);
}

ddl_status ddl_event_file_flush(struct ddl_event_file *f, struct ddl_error *err)
{
    return fflush(f->stream) == 0 ? DDL_OK : write_failed(f, errno, err);
}

ddl_status ddl_event_file_sync(struct ddl_event_file *f, struct ddl_error *err)
{
    ddl_status status = ddl_event_file_flush(f, err);
    if (!status && fsync(fileno(f->stream)) != 0)
        status = ddl_file_error(err, f->path, "sync");
    return status;
}

void ddl_event_file_close(struct ddl_event_file *f)
{
    if (f->stream)
        fclose(f->stream);
    f->stream = NULL;
}

ddl_status ddl_event_file_remove_all(const char *folder, struct ddl_error *err)
{
    struct ddl_file_names list;
    ddl_status status = ddl_file_check_no_link(folder, err);
    if (status)
        return status;
    status = ddl_file_list(&list, folder, is_event_file, NULL, err);
    if (list.missing)
        return DDL_OK;
    for (size_t i = 0; !status && i < list.n; i++) {
        char path[1400];
        if (ddl_path_join(path, sizeof path, folder, list.names[i]) && ddl_held_unlink(path) != 0)
            status = ddl_file_error(err, path, "remove");
    }
    ddl_file_names_free(&list);
    (void)ddl_held_rmdir(folder); /* fails where it has other files */
    return status;
}
