/* Device code for the simulated driver, which has the kernels itself. */
#include "backend/cuda/kernels/kernels.h"

#define CUDA_IMAGE(file)                                                                                     \
    extern const unsigned char cuda_image_##file[];                                                          \
    const unsigned char cuda_image_##file[] = { 0 };
CUDA_FILES(CUDA_IMAGE)
