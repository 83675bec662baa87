/* Fuzzes .zst input. */
#include "fuzz.h"

#include "data/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_use_packed(data, size, DDL_PACKING_ZSTD);
    return 0;
}
