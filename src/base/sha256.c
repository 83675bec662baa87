#include "base/sha256.h"

#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2). */
static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_big_endian(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static void compress(uint32_t h[8], const unsigned char block[64])
{
    uint32_t w[64], v[8];
    for (size_t t = 0; t < 16; t++)
        w[t] = load_big_endian(block + 4 * t);
    for (size_t t = 16; t < 64; t++) {
        uint32_t s0 = rotate_right(w[t - 15], 7) ^ rotate_right(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate_right(w[t - 2], 17) ^ rotate_right(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    memcpy(v, h, sizeof v);
    for (size_t t = 0; t < 64; t++) {
        uint32_t a = v[0], e = v[4];
        uint32_t s1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
        uint32_t choice = (e & v[5]) ^ (~e & v[6]);
        uint32_t t1 = v[7] + s1 + choice + round_constant[t] + w[t];
        uint32_t s0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
        uint32_t majority = (a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + s0 + majority;
    }
    for (size_t i = 0; i < 8; i++)
        h[i] += v[i];
}

void ddl_sha256_begin(struct ddl_sha256 *s)
{
    *s = (struct ddl_sha256){ .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                     0x1f83d9ab, 0x5be0cd19 } };
}

void ddl_sha256_add(struct ddl_sha256 *s, const void *data, size_t size)
{
    const unsigned char *p = data;
    while (size) {
        size_t used = (size_t)(s->bytes % 64), take = 64 - used < size ? 64 - used : size;
        memcpy(s->block + used, p, take);
        s->bytes += take;
        p += take;
        size -= take;
        if (used + take == 64)
            compress(s->h, s->block);
    }
}

static void finish(struct ddl_sha256 *s, unsigned char digest[32])
{
    uint64_t bits = s->bytes * 8;
    static const unsigned char padding[64] = { 0x80 };
    ddl_sha256_add(s, padding, 1 + (119 - s->bytes % 64) % 64);
    unsigned char length[8];
    for (size_t i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    ddl_sha256_add(s, length, sizeof length);
    for (size_t i = 0; i < 32; i++)
        digest[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void ddl_sha256_end_hex(struct ddl_sha256 *s, char hex[65])
{
    unsigned char digest[32];
    finish(s, digest);
    for (size_t i = 0; i < 32; i++) {
        hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    hex[64] = '\0';
}
