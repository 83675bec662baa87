/* Kernels: their modules, and launches. */
#include "backend/cuda/cuda.h"

#include <string.h>

/* The kernels of each file, compiled for every supported architecture (image.S). */
#define CUDA_IMAGE(file) extern const unsigned char cuda_image_##file[];
CUDA_FILES(CUDA_IMAGE)
#undef CUDA_IMAGE
static const unsigned char *const images[] = {
#define CUDA_IMAGE_ROW(file) cuda_image_##file,
    CUDA_FILES(CUDA_IMAGE_ROW)
#undef CUDA_IMAGE_ROW
};

static const struct {
    enum cuda_file file;
    const char *name;
    unsigned threads;
} kernels[] = {
#define CUDA_KERNEL_ROW(file, name, threads) { CUDA_FILE_##file, #name, threads },
    CUDA_KERNELS(CUDA_KERNEL_ROW)
#undef CUDA_KERNEL_ROW
};

/* ---- modules ---- */

const char *cuda_kernels_load(struct cuda_device *d, CUresult *result)
{
    const struct cuda_driver *driver = d->driver;
    for (size_t f = 0; f < CUDA_FILE_COUNT; f++) {
        if ((*result = driver->module_load(&d->modules[f], images[f])))
            return "cuModuleLoadData";
    }
    for (size_t k = 0; k < CUDA_KERNEL_COUNT; k++) {
        size_t offset;
        if ((*result =
                 driver->module_function(&d->functions[k], d->modules[kernels[k].file], kernels[k].name)) ||
            (*result = driver->function_parameter(d->functions[k], 0, &offset, &d->argument_bytes[k])))
            return kernels[k].name;
    }
    return NULL;
}

void cuda_kernels_unload(struct cuda_device *d)
{
    for (size_t f = 0; f < CUDA_FILE_COUNT && d->modules[f]; f++)
        d->driver->module_unload(d->modules[f]);
}

/* ---- launches ---- */

/* The arguments follow. */
struct launch {
    uint32_t kernel, blocks, threads, shared;
};

static void launch(struct cuda_device *d, const struct launch *l, const void *arguments)
{
    void *parameters[] = { (void *)(uintptr_t)arguments }; /* read during the call alone */
    /* By default a kernel may have CUDA_SHARED_BYTES less its static shared memory. */
    if (l->shared > d->shared[l->kernel]) {
        cuda_note(d,
                  cuda_enter(d)->function_set(d->functions[l->kernel],
                                              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                              (int)l->shared),
                  "cuFuncSetAttribute");
        d->shared[l->kernel] = l->shared;
    }
    cuda_note(d,
              cuda_enter(d)->launch(d->functions[l->kernel], l->blocks, 1, 1, l->threads, 1, 1, l->shared,
                                    d->stream, parameters, NULL),
              kernels[l->kernel].name);
}

static void launch_recorded(struct cuda_device *d, const void *command)
{
    const struct launch *l = command;
    launch(d, l, l + 1);
}

const void *cuda_launched(const struct cuda_command *command, enum cuda_kernel kernel)
{
    const struct launch *l = (const void *)(command + 1);
    return command->execute == launch_recorded && l->kernel == kernel ? l + 1 : NULL;
}

size_t cuda_launched_blocks(const struct cuda_command *command)
{
    return ((const struct launch *)(const void *)(command + 1))->blocks;
}

void cuda_launch_threads(struct cuda_device *d, enum cuda_kernel kernel, size_t blocks, size_t threads,
                         size_t shared, const void *arguments)
{
    const struct launch now = { kernel, (uint32_t)blocks, (uint32_t)threads, (uint32_t)shared };
    if (blocks == 0)
        return;
    struct launch *later = cuda_record_command(d, launch_recorded, sizeof now + d->argument_bytes[kernel]);
    if (!later) {
        launch(d, &now, arguments);
        return;
    }
    *later = now;
    memcpy(later + 1, arguments, d->argument_bytes[kernel]);
}

void cuda_launch(struct cuda_device *d, enum cuda_kernel kernel, size_t blocks, size_t shared,
                 const void *arguments)
{
    cuda_launch_threads(d, kernel, blocks, kernels[kernel].threads, shared, arguments);
}

/* ---- blocks ---- */

size_t cuda_blocks(const struct cuda_device *device, size_t n, size_t each)
{
    size_t blocks = cuda_parts(n, each), most = 16 * (size_t)device->multiprocessors;
    return blocks < most ? blocks : most;
}

size_t cuda_blocks_of_sums(const struct cuda_device *device, size_t n)
{
    size_t most = 4 * (size_t)device->multiprocessors;
    return n < most ? n : most;
}

size_t cuda_row_blocks(const struct cuda_device *device, size_t n, size_t across, size_t width)
{
    size_t most = cuda_blocks_of_sums(device, SIZE_MAX), fit = most * device->summed / width;
    size_t blocks = most > across ? most / across : 1;
    blocks = blocks < fit ? blocks : fit;
    return n < blocks ? n : blocks;
}
