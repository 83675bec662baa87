#include "model/files/tensor_names.h"

#include <string.h>

static void cut(char *at, size_t n)
{
    memmove(at, at + n, strlen(at + n) + 1);
}

/* Removes what torch.compile and the parallel wrappers of PyTorch put before the names of a module. */
static void remove_wrappers(char *name)
{
    static const char compiled[] = "_orig_mod.", wrapped[] = "module.";
    for (char *at = name; at; at = strchr(at, '.'), at = at ? at + 1 : NULL) {
        while (strncmp(at, compiled, sizeof compiled - 1) == 0 ||
               (at == name && strncmp(at, wrapped, sizeof wrapped - 1) == 0))
            cut(at, *at == '_' ? sizeof compiled - 1 : sizeof wrapped - 1);
    }
}

/* True if the name ends in ".compress" or "readout" followed by `ending`; *at is the place of the ending. */
static bool is_kernel(char *name, const char *ending, char **at)
{
    static const char *const owners[] = { ".compress", "readout" };
    size_t length = strlen(name), n = strlen(ending);
    if (length < n || strcmp(name + length - n, ending) != 0)
        return false;
    *at = name + length - n;
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
        size_t owner = strlen(owners[i]);
        if (length - n >= owner && memcmp(*at - owner, owners[i], owner) == 0)
            return true;
    }
    return false;
}

/* Kernels of the compressors were those of PyTorch's Conv1d: (channels, 1, K), with its name. */
static void rename_kernel(struct ddl_tensor *t, char *name)
{
    static const char token[] = ".shortconv.conv.weight", channel[] = ".shortconv.weight";
    char *at;
    if (t->ndim != 3 || t->shape[1] != 1)
        return;
    if (is_kernel(name, token, &at))
        cut(at + strlen(".shortconv"), strlen(".conv"));
    else if (is_kernel(name, channel, &at))
        cut(at, strlen(".shortconv"));
    else
        return;
    t->shape[1] = t->shape[2];
    t->ndim = 2;
}

static void rename_tensor(struct ddl_tensor *tensor, char *name)
{
    remove_wrappers(name);
    rename_kernel(tensor, name);
}

ddl_status ddl_model_tensors_open(ddl_safetensors **out, const char *folder, struct ddl_error *err)
{
    ddl_status status = ddl_safetensors_open_folder(out, folder, err);
    if (!status)
        status = ddl_safetensors_rename(*out, rename_tensor, err);
    if (status) {
        ddl_safetensors_close(*out);
        *out = NULL;
    }
    return status;
}
