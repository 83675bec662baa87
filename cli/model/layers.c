#include "cli/model/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ddl_status select_layers(const char *text, size_t n_layers, bool *layer, struct ddl_error *err)
{
    char *end;
    unsigned long first = strtoul(text, &end, 10), last = first;
    bool digits = text[0] >= '0' && text[0] <= '9';
    if (digits && *end == '-' && end[1] >= '0' && end[1] <= '9')
        last = strtoul(end + 1, &end, 10);
    if (!digits || *end != '\0' || last < first)
        return ddl_error_set(err, DDL_E_USAGE, "layers: expected all, a layer or a range A-B, found '%.40s'",
                             text);
    if (last >= n_layers)
        return ddl_error_set(err, DDL_E_USAGE, "layers: expected layers 0 to %zu, found %lu", n_layers - 1,
                             last);
    for (unsigned long l = first; l <= last; l++)
        layer[l] = true;
    return DDL_OK;
}

ddl_status select_layer_list(const char *list, size_t n_layers, bool *layer, struct ddl_error *err)
{
    if (strcmp(list, "all") == 0) {
        memset(layer, true, n_layers * sizeof *layer);
        return DDL_OK;
    }
    ddl_status status = DDL_OK;
    for (const char *at = list; at && !status;) {
        char part[64];
        size_t length = strcspn(at, ",");
        snprintf(part, sizeof part, "%.*s", (int)(length < sizeof part ? length : sizeof part - 1), at);
        status = select_layers(part, n_layers, layer, err);
        at = at[length] ? at + length + 1 : NULL;
    }
    return status;
}

void describe_layers(const bool *layer, size_t n_layers, char *out, size_t size)
{
    size_t used = 0;
    *out = '\0';
    for (size_t l = 0; l < n_layers && used < size; l++) {
        size_t last = l;
        if (!layer[l])
            continue;
        while (last + 1 < n_layers && layer[last + 1])
            last++;
        used += (size_t)snprintf(out + used, size - used, last > l ? "%s%zu-%zu" : "%s%zu", used ? "," : "",
                                 l, last);
        l = last;
    }
}
