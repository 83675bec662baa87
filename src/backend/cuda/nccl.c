#define _POSIX_C_SOURCE 200809L /* setenv */
#include "backend/cuda/nccl.h"

#include "backend/cuda/library.h"

#include <stdlib.h>

ddl_status cuda_nccl_load(const struct cuda_nccl **out, struct ddl_error *err)
{
    static struct cuda_nccl nccl;
    static bool is_loaded;
    static const struct cuda_symbol functions[] = {
#define CUDA_NCCL_ROW(name, symbol, type, parameters) { symbol, offsetof(struct cuda_nccl, name) },
        CUDA_NCCL(CUDA_NCCL_ROW)
#undef CUDA_NCCL_ROW
    };
    const struct cuda_library library = { "libnccl.so.2", "NCCL",
                                          "libnccl2 for CUDA 13, or the Python package nvidia-nccl-cu13",
                                          functions, sizeof functions / sizeof *functions };
    *out = &nccl;
    if (is_loaded)
        return DDL_OK;
    /* Ranks are connected by ncclCommInitRank. By default the first collective does that, and blocks its
     * caller. */
    (void)setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    ddl_status status = cuda_library_load(&nccl, &library, err);
    is_loaded = !status;
    return status;
}
