/* Replacement for libFuzzer's main: runs the target on all files in the given folders, each as a named
 * test. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"
#include "support/files.h"

#include <dirent.h>

struct input {
    char name[512];
};

static void replay(void **state)
{
    const struct input *input = *state;
    size_t size;
    char *text = read_file(input->name, &size);
    /* A separate heap block of the exact size, so that a read past the end is detected. */
    uint8_t *data = malloc(size ? size : 1);
    assert_non_null(data);
    memcpy(data, text, size);
    free(text);
    assert_int_equal(LLVMFuzzerTestOneInput(data, size), 0);
    free(data);
}

/* Never called here; required to link targets with a custom mutator. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
    (void)data;
    return size < max_size ? size : max_size;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static size_t list(const char *folder, struct input *inputs, size_t n, size_t max)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && n < max && (entry = readdir(dir));) {
        if (entry->d_name[0] != '.' &&
            ddl_path_join(inputs[n].name, sizeof inputs[n].name, folder, entry->d_name))
            n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    enum { MAX = 1024 };
    static struct input inputs[MAX];
    static struct CMUnitTest tests[MAX];
    size_t n = 0;
    for (int i = 1; i < argc; i++)
        n = list(argv[i], inputs, n, MAX);
    if (n == 0 || n == MAX) {
        fprintf(stderr, "%s: %zu inputs: name folders with 1 to %d\n", argv[0], n, MAX - 1);
        return 2;
    }
    qsort(inputs, n, sizeof *inputs, by_name);
    for (size_t i = 0; i < n; i++) {
        const char *parent = strstr(inputs[i].name, "/fuzz/");
        tests[i] = (struct CMUnitTest){ .name = parent ? parent + 6 : inputs[i].name,
                                        .test_func = replay,
                                        .initial_state = &inputs[i] };
    }
    return _cmocka_run_group_tests("replay", tests, n, NULL, NULL);
}
