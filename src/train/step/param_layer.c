#include "train/step/param_layer.h"

#include <stdlib.h>
#include <string.h>

long ddl_param_layer(const char *name)
{
    static const char prefix[] = "transformer.h.", sums[] = "transformer.dwa.";
    if (strncmp(name, sums, sizeof sums - 1) == 0) /* numbered by the blocks so far */
        return strtol(name + sizeof sums - 1, NULL, 10) - 1;
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? strtol(name + sizeof prefix - 1, NULL, 10) : -1;
}
