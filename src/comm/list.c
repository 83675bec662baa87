/* Lists of settings that the ranks compare. */
#define _POSIX_C_SOURCE 200809L
#include "ddl/comm.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ddl_comm_list {
    FILE *stream;
    char *text; /* of the stream */
    size_t size;
};

ddl_comm_list *ddl_comm_list_create(void)
{
    ddl_comm_list *list = ddl_mem_alloc(sizeof *list);
    if (!list)
        return NULL;
    *list = (ddl_comm_list){ 0 };
    list->stream = open_memstream(&list->text, &list->size);
    return list;
}

void ddl_comm_list_add(ddl_comm_list *list, const char *format, ...)
{
    va_list args;
    if (!list || !list->stream)
        return;
    va_start(args, format);
    vfprintf(list->stream, format, args);
    va_end(args);
    fputc('\n', list->stream);
}

void ddl_comm_list_add_options(ddl_comm_list *list, const struct ddl_option *row, const void *object)
{
    for (; row->name; row++) {
        char value[8192];
        ddl_option_format(row, object, value, sizeof value);
        if (strcmp(row->name, "threads") != 0)
            ddl_comm_list_add(list, "%s: %s", row->name, value);
    }
}

ddl_status ddl_comm_list_compare(ddl_comm *comm, ddl_comm_list *list, struct ddl_error *err)
{
    bool whole = list && list->stream && !ferror(list->stream);
    if (list && list->stream)
        whole = fclose(list->stream) == 0 && whole;
    ddl_status status = ddl_comm_compare(comm, whole ? list->text : NULL, err);
    if (list)
        free(list->text);
    ddl_mem_free(list);
    return status;
}
