/* Option rows of the commands that evaluate a model on windows of tokens. */
#ifndef DDL_CLI_WINDOWS_H
#define DDL_CLI_WINDOWS_H

#include "ddl/eval.h"
#include "ddl/option.h"

#define SEQ_ROW_OF(type, field)                                                                              \
    {                                                                                                        \
        "seq", DDL_OPTION_SIZE, offsetof(type, field), 0, 0, 2147483647, NULL, "N",                          \
            "tokens per window (0: the context of the model)", DDL_SEQ_ALIASES                               \
    }
#define BATCH_ROW_OF(type, field)                                                                            \
    {                                                                                                        \
        "batch", DDL_OPTION_SIZE, offsetof(type, field), 0, 0, 4096, NULL, "N", "windows per pass (0: 8)",   \
            DDL_BATCH_ALIASES                                                                                \
    }
#define STRIDE_ROW_OF(type, field)                                                                           \
    {                                                                                                        \
        "stride", DDL_OPTION_SIZE, offsetof(type, field), 0, 0, 2147483647, NULL, "N",                       \
            "distance between windows in tokens (0: seq)"                                                    \
    }
/* The rows of the member `windows`, a struct ddl_eval_config, of `type`. */
#define WINDOW_ROWS(type)                                                                                    \
    SEQ_ROW_OF(type, windows.seq), BATCH_ROW_OF(type, windows.batch), STRIDE_ROW_OF(type, windows.stride)

#endif
