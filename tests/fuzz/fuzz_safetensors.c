/* Fuzzes one safetensors file. The mutator corrects the header length, because nothing is read otherwise. */
#include "fuzz.h"

#include "tensor/safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    ddl_safetensors *st;
    if (fuzz_ok(ddl_safetensors_open(&st, fuzz_file("model.safetensors", data, size), &err), &err))
        fuzz_use_tensors(st);
    return 0;
}

/* Returns the size of the JSON object that starts at text[0]. */
static size_t object_size(const uint8_t *text, size_t size)
{
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && text[i] == '{')
            depth++;
        else if (!quoted && text[i] == '}' && --depth == 0)
            return i + 1;
        if (depth == 0)
            break;
    }
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    size = fuzz_mutate_number(data, size, max_size, seed);
    if (seed % 8 && size > 8) {
        uint64_t length = object_size(data + 8, size - 8);
        memcpy(data, &length, sizeof length);
    }
    return size;
}
