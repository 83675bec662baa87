/* Fuzzes pytorch_model.bin. An input that begins as a zip file is the file; any other is the pickle in it,
 * beside storages of up to 64 bytes without checksums. */
#include "fuzz.h"

#include "support/torch_writer.h"
#include "tensor/safetensors.h"
#include "tensor/zip.h"

static void write_around(const uint8_t *pickle, size_t size)
{
    static unsigned char numbers[64];
    struct zip_writer z = { .no_crc = true };
    for (size_t i = 0; i < sizeof numbers; i++)
        numbers[i] = (unsigned char)(i * 37);
    zip_add(&z, "a/data.pkl", pickle, size);
    zip_add(&z, "a/data/0", numbers, 64);
    zip_add(&z, "a/data/1", numbers, 8);
    zip_add(&z, "a/data/2", numbers, 0);
    zip_finish(&z);
    fuzz_file("pytorch_model.bin", z.file.data, z.file.n);
    zip_free(&z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ddl_error err = { 0 };
    ddl_safetensors *st;
    if (ddl_zip_begins(data, size))
        fuzz_file("pytorch_model.bin", data, size);
    else
        write_around(data, size);
    if (fuzz_ok(ddl_safetensors_open_folder(&st, fuzz_folder(), &err), &err)) {
        fuzz_ok(ddl_safetensors_verify(st, &err), &err);
        fuzz_use_tensors(st);
    }
    return 0;
}
