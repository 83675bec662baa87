/* `ddl data build` under mpirun or srun: rank r of R encodes the parts of process r/R (--shard). */
#ifndef DDL_CLI_BUILD_RANKS_H
#define DDL_CLI_BUILD_RANKS_H

#include "ddl/comm.h"
#include "ddl/data.h"

/* As ddl_data_build, by all ranks of comm (NULL: by this process). All ranks get the same status and error,
 * and the result of the job: parts_encoded and parts_kept of all ranks, the time of the slowest. An error on
 * one rank before any has encoded a part stops the others; a later one leaves them their work. Fails if
 * config->shard is set. Waits for the other ranks without a time limit. */
ddl_status build_by_ranks(ddl_comm *comm, const struct ddl_build_config *config, const char *const *inputs,
                          size_t n_inputs, ddl_build_progress_fn *progress, void *user,
                          struct ddl_build_result *result, struct ddl_error *err);

#endif
