/* The arguments of the kernels of kernels.cu. */
#ifndef DDL_TESTS_CUDA_KERNELS_H
#define DDL_TESTS_CUDA_KERNELS_H

#include <stdint.h>

struct rows {
    const float *x; /* (grid, columns) */
    float *y;
    unsigned columns;
};

struct product_arguments {
    const uint16_t *a, *b; /* (16, 16) each, in bfloat16; of b the first 8 columns are used */
    float *c;              /* (16, 8) */
};

#endif
