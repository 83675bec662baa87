/* What a plugin with a backend exports: the constant DDL_BACKEND_PLUGIN_SYMBOL, in libddl_NAME.so, where NAME
 * is that of its op table. Private: a plugin fits the library of its own version only. */
#ifndef DDL_BACKEND_PLUGIN_H
#define DDL_BACKEND_PLUGIN_H

#include "ops/operands.h"

struct ddl_backend_plugin {
    unsigned abi; /* DDL_BACKEND_ABI */
    const struct ddl_ops *ops;
};
#define DDL_BACKEND_PLUGIN_SYMBOL "ddl_backend_plugin"

/* The number of the interface: DDL_BACKEND_VERSION is raised where the meaning of a member changes; the rest
 * is a weighted sum of the sizes of the argument structs, which changes with them. */
#define DDL_BACKEND_VERSION 3
#define DDL_ARGS_SIZE(name, args) +(DDL_OP_##name + 1) * sizeof(struct args)
#define DDL_BACKEND_ABI                                                                                      \
    ((unsigned)(1000000 * DDL_BACKEND_VERSION + (sizeof(struct ddl_ops) DDL_OPS(DDL_ARGS_SIZE)) % 1000000))

#endif
