/* The kernels as the build compiled them: FILE.fatbin of each file, in the folder CUDA_IMAGE_FOLDER. */
#include "backend/cuda/kernels/kernels.h"

#define CUDA_IMAGE(file)                                                                                     \
    __asm__(".pushsection .rodata\n"                                                                         \
            ".balign 64\n"                                                                                   \
            ".globl cuda_image_" #file "\n"                                                                  \
            ".hidden cuda_image_" #file "\n"                                                                 \
            "cuda_image_" #file ":\n"                                                                        \
            ".incbin \"" CUDA_IMAGE_FOLDER "/" #file ".fatbin\"\n"                                           \
            ".popsection\n");
CUDA_FILES(CUDA_IMAGE)
