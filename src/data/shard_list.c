#include "data/shard_list.h"

#include "base/file.h"
#include "base/json.h"
#include "data/shard_format.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *name, const void *at)
{
    return strcmp(name, *(char *const *)at);
}

ddl_status ddl_shards_check_listed(const char *folder, const struct ddl_file_names *names,
                                   struct ddl_error *err)
{
    char path[2048];
    const char *name;
    json_t *root, *size;
    if (!ddl_path_join(path, sizeof path, folder, DDL_SHARD_RECORD) || !ddl_file_exists(path))
        return DDL_OK;
    ddl_status status = ddl_json_read(&root, path, DDL_SHARD_RECORD_MAX, err);
    if (status)
        return status;
    json_object_foreach(json_object_get(root, "files"), name, size)
    {
        if (!status && ddl_shard_name_fits(name) &&
            !bsearch(name, names->names, names->n, sizeof *names->names, compare_names))
            status = ddl_error_set(err, DDL_E_FORMAT,
                                   "%s/%s: there is no such shard, but %s lists it: the build made one",
                                   folder, name, path);
    }
    json_decref(root);
    return status;
}
