/* ddl info --backends: every backend that --backend takes, by device, and why the others can't be used. */
#include "cli/commands/info_backends.h"

#include "cli/output/escape.h"
#include "ddl/backend.h"
#include "ddl/json.h"

#include <stdio.h>
#include <string.h>

/* Describes the backend `name`, which may have an index, as text or, with `json`, in JSON. */
static void print_backend(struct ddl_json *json, const char *name)
{
    struct ddl_error err = { 0 };
    ddl_backend *backend;
    ddl_status status = ddl_backend_create(&backend, name, 0, &err);
    const char *description = status ? err.text : ddl_backend_description(backend);
    if (json) {
        ddl_json_open(json, NULL, '{');
        ddl_json_string(json, "name", name);
        ddl_json_bool(json, "usable", !status);
        ddl_json_string(json, status ? "error" : "description", description);
        ddl_json_close(json, '}');
    } else {
        printf("  %-10s %s%s\n", name, status ? "not usable: " : "", printable(description));
    }
    ddl_backend_free(backend);
}

/* By device if there are several. */
static void print_devices(struct ddl_json *json, const char *name)
{
    size_t n = 0;
    if (ddl_backend_devices(&n, name, NULL) || n < 2)
        print_backend(json, name);
    for (size_t i = 0; n > 1 && i < n; i++) {
        char device[DDL_BACKEND_NAME_SIZE + 24];
        snprintf(device, sizeof device, "%s:%zu", name, i);
        print_backend(json, device);
    }
}

void print_backends(bool as_json)
{
    struct ddl_json out = { stdout, false }, *json = as_json ? &out : NULL;
    char name[DDL_BACKEND_NAME_SIZE];
    bool cuda = false;
    if (json) {
        ddl_json_open(json, NULL, '{');
        ddl_json_open(json, "backends", '[');
    } else {
        printf("backends\n");
    }
    for (size_t i = 0; ddl_backend_list(i, name); i++) {
        print_devices(json, name);
        cuda = cuda || strcmp(name, "cuda") == 0;
    }
    if (!cuda)
        print_backend(json, "cuda");
    if (json) {
        ddl_json_close(json, ']');
        ddl_json_close(json, '}');
        putchar('\n');
    }
}
