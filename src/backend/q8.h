/* 8-bit matrices of the host backends. */
#ifndef DDL_BACKEND_Q8_H
#define DDL_BACKEND_Q8_H

#include <stddef.h>
#include <stdint.h>

/* A tile is one group of 16 rows: number k of its row r is scale[r] q[k / 4][r][k % 4], four numbers of a row
 * next to each other as VNNI instructions read them. A matrix (N, K) is (N / 16, K / 32) tiles, both rounded
 * up; numbers past K are 0, rows past N are unspecified. */
enum { DDL_GROUP = 32, DDL_Q8_ROWS = 16 };
struct ddl_q8 {
    float scale[DDL_Q8_ROWS];
    int8_t q[DDL_GROUP / 4][DDL_Q8_ROWS][4];
};

/* Tiles from one row of tiles to the next, for rows of `width` numbers. */
static inline size_t ddl_q8_groups(size_t width)
{
    return width / DDL_GROUP + (width % DDL_GROUP != 0);
}

/* Tiles of a matrix. */
static inline size_t ddl_q8_tiles(size_t rows, size_t width)
{
    return (rows / DDL_Q8_ROWS + (rows % DDL_Q8_ROWS != 0)) * ddl_q8_groups(width);
}

#endif
