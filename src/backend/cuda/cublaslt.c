#include "backend/cuda/cublaslt.h"

#include "backend/cuda/library.h"

ddl_status cuda_cublaslt_load(const struct cuda_cublaslt **out, struct ddl_error *err)
{
    static struct cuda_cublaslt cublaslt;
    static bool is_loaded;
    static const struct cuda_symbol functions[] = {
#define CUDA_CUBLASLT_ROW(name, symbol, type, parameters) { symbol, offsetof(struct cuda_cublaslt, name) },
        CUDA_CUBLASLT(CUDA_CUBLASLT_ROW)
#undef CUDA_CUBLASLT_ROW
    };
    const struct cuda_library library = { "libcublasLt.so.13", "cuBLASLt",
                                          "the libraries of CUDA 13, or the Python package nvidia-cublas",
                                          functions, sizeof functions / sizeof *functions };
    *out = &cublaslt;
    if (is_loaded)
        return DDL_OK;
    ddl_status status = cuda_library_load(&cublaslt, &library, err);
    is_loaded = !status;
    return status;
}
