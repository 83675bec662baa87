/* Fuzzes .gz input. The mutator corrects the checksums of the members, so that data after the first member is
 * reached. */
#include "fuzz.h"

#include "data/source.h"

#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_use_packed(data, size, DDL_PACKING_GZIP);
    return 0;
}

/* Decompresses the member that starts at data[0] without verification and writes its trailer; returns its
 * size, or 0 if it is corrupted or incomplete. */
static size_t mend_member(uint8_t *data, size_t size)
{
    static unsigned char out[1 << 16];
    z_stream z = { .next_in = data, .avail_in = (uInt)size };
    uLong crc = crc32(0, NULL, 0);
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return 0;
    inflateValidate(&z, 0);
    int result = Z_OK;
    while (result == Z_OK && z.total_out < FUZZ_MOST_UNPACKED) {
        z.next_out = out;
        z.avail_out = sizeof out;
        result = inflate(&z, Z_NO_FLUSH);
        crc = crc32(crc, out, (uInt)(sizeof out - z.avail_out));
    }
    size_t used = size - z.avail_in;
    uint32_t trailer[2] = { (uint32_t)crc, (uint32_t)z.total_out };
    inflateEnd(&z);
    if (result != Z_STREAM_END || used < 18)
        return 0;
    memcpy(data + used - 8, trailer, sizeof trailer);
    return used;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    size = LLVMFuzzerMutate(data, size, max_size);
    size_t member = 1;
    for (size_t at = 0; seed % 4 && at < size && member; at += member)
        member = mend_member(data + at, size - at);
    return size;
}
