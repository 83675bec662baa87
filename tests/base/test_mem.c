/* base/mem.h: the arena measures what it places; sizes do not overflow; no more is promised than there
 * is. */
#include "support/files.h"

#include "base/mem.h"

static void *take_all(struct ddl_arena *arena, void *out[3])
{
    out[0] = ddl_arena_take(arena, 3, 1);
    out[1] = ddl_arena_take(arena, 100, sizeof(float));
    out[2] = ddl_arena_take(arena, 0, sizeof(float));
    return out[0];
}

static void measures_what_it_places(void **state)
{
    (void)state;
    void *measured[3], *placed[3];
    struct ddl_arena arena = { 0 };
    assert_null(take_all(&arena, measured));
    assert_int_equal(arena.used, 64 + 448);
    struct ddl_arena real = { .base = ddl_mem_alloc(arena.used) };
    take_all(&real, placed);
    assert_int_equal(real.used, arena.used);
    for (int i = 0; i < 3; i++)
        assert_int_equal((uintptr_t)placed[i] % DDL_ALIGN, 0);
    assert_true((unsigned char *)placed[1] == (unsigned char *)placed[0] + 64);
    ddl_mem_free(real.base);
}

static void overflow_is_reported(void **state)
{
    (void)state;
    struct ddl_arena arena = { 0 };
    size_t out = 7;
    assert_false(ddl_size_mul(SIZE_MAX / 2, 3, &out));
    assert_false(ddl_size_add(SIZE_MAX, 1, &out));
    assert_int_equal(out, 7);
    assert_true(ddl_size_mul(SIZE_MAX, 0, &out) && out == 0);
    assert_null(ddl_arena_take(&arena, SIZE_MAX / 4, 8));
    assert_true(arena.overflow);
    assert_null(ddl_mem_alloc(SIZE_MAX - 3));
}

/* Blocks that ask for huge pages, around the size where they begin to. */
static void large_blocks_hold_what_they_are_given(void **state)
{
    (void)state;
    for (size_t bytes = ((size_t)8 << 20) - 64; bytes <= ((size_t)8 << 20) + 65; bytes += 43) {
        unsigned char *block = ddl_mem_zalloc(bytes);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % DDL_ALIGN, 0);
        assert_int_equal(block[0] | block[bytes / 2] | block[bytes - 1], 0);
        block[bytes - 1] = 1;
        ddl_mem_free(block);
    }
}

static void refuses_more_than_there_is(void **state)
{
    (void)state;
    size_t machine = ddl_mem_machine();
    assert_true(machine > (size_t)1 << 20);
    if (machine < SIZE_MAX - 1)
        assert_null(ddl_mem_alloc(machine + 1));
}

/* The lowest limit on the path from the group to the root counts. */
static void groups_limit_memory(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text;
    } files[] = {
        { "groups/memory.max", "max\n" },
        { "groups/jobs/memory.max", "5000000\n" },
        { "groups/jobs/step/memory.max", "8000000\n" },
        { "groups/other/memory.max", "7\n" },
    };
    static const struct {
        const char *group;
        size_t limit;
    } rows[] = {
        { "/", SIZE_MAX },         { "/jobs", 5000000 },  { "/jobs/step", 5000000 },
        { "/jobs/none", 5000000 }, { "/none", SIZE_MAX }, { "/other", 7 },
    };
    char root[4096];
    struct ddl_error err;
    remove_scratch("groups");
    assert_ok(ddl_file_make_dir(scratch_path("groups/jobs/step"), &err), err);
    assert_ok(ddl_file_make_dir(scratch_path("groups/other"), &err), err);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        write_file(scratch_path(files[i].file), files[i].text, strlen(files[i].text));
    snprintf(root, sizeof root, "%s", scratch_path("groups"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(ddl_mem_group_limit(root, rows[i].group), rows[i].limit);
    assert_int_equal(ddl_mem_group_limit(scratch_path("no-groups"), "/"), SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_what_it_places),
        cmocka_unit_test(overflow_is_reported),
        cmocka_unit_test(large_blocks_hold_what_they_are_given),
        cmocka_unit_test(refuses_more_than_there_is),
        cmocka_unit_test(groups_limit_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
