/* Fuzzes an archive of model.safetensors.index.json and the files it lists. */
#include "fuzz.h"

#include "tensor/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    ddl_safetensors *st;
    fuzz_unpack(data, size);
    if (fuzz_ok(ddl_safetensors_open_folder(&st, fuzz_folder(), &err), &err))
        fuzz_use_tensors(st);
    return 0;
}

FUZZ_MUTATE_NUMBERS
