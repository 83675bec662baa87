/* ddl data synthetic: shards of a synthetic task. */
#ifndef DDL_CLI_SYNTHETIC_H
#define DDL_CLI_SYNTHETIC_H

#include "cli/cli.h"

extern const struct command data_synthetic_command;

#endif
