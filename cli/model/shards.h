/* Shards as an argument of commands. */
#ifndef DDL_CLI_SHARDS_H
#define DDL_CLI_SHARDS_H

#include "ddl/data.h"

/* The option row of `field` of `type`. */
#define FORMAT_ROW_OF(type, field)                                                                           \
    {                                                                                                        \
        "format", DDL_OPTION_CHOICE, offsetof(type, field), 0, 0, 0, ddl_shards_format_names, "NAME",        \
            "format of the shards (auto: by their header; without one, train.bin and val.bin are read as "   \
            "nanogpt)"                                                                                       \
    }
/* The option row of the member `format`. */
#define FORMAT_ROW(type) FORMAT_ROW_OF(type, format)

/* Prints a message on standard error if files were recognized without a header. */
void report_assumed(const ddl_shards *shards);

#endif
