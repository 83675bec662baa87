/* ddl export and --ignore-extra, as a user meets them. */
#include "support/program.h"
#include "support/runs.h"

#include "tensor/safetensors.h"

static void sentences(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        { "export", 2, "export: missing argument: expected a model folder (DIR)" },
        { "export a b --out c", 2, "export: too many arguments: expected at most 1, found 2: 'b'" },
        { "export a", 2, "export: missing argument: expected --out DIR" },
        { "export a --out b --dtype f8", 2, "--dtype: 'f8' is none of f32, bf16, f16" },
        { "export a --out b --max-shard-size much", 2,
          "--max-shard-size: 'much' is not a size such as 500MB, 2GB or 1GiB" },
        { "export a --out b --max-shard-size -1GB", 2, "is not a size" },
        { "export a --out b --max-shard-size 2 GB", 2, "found 2" },
        { "export /nowhere --out b", 1, "/nowhere/config.json: cannot open" },
    };
    assert_refused(cases, sizeof cases / sizeof *cases);
    assert_int_equal(ddl("export %s --out /", tiny_folder("named", "ddl-1")), 2);
    assert_printed("/: exists already; name a new folder");
}

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *size;
        int files;
    } cases[] = { { "9000", 4 }, { "9KB", 4 }, { "0.009MB", 4 }, { "8.7890625KiB", 4 },
                  { "1GB", 1 },  { "2TB", 1 }, { "1TiB", 1 } };
    char from[4096], command[8192], counted[64], wanted[32];
    snprintf(from, sizeof from, "%s", tiny_folder("from", "ddl-1"));
    int first = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        remove_scratch("to");
        assert_int_equal(
            ddl("export %s --out %s --max-shard-size %s", from, scratch_path("to"), cases[i].size), 0);
        snprintf(command, sizeof command, "ls %s | grep -c 'safetensors$'", scratch_path("to"));
        assert_int_equal(run_command(command, counted, sizeof counted), 0);
        int n = atoi(counted);
        snprintf(wanted, sizeof wanted, "in %d file", n);
        assert_printed(wanted);
        if (cases[i].files == 1)
            assert_int_equal(n, 1);
        else
            assert_int_equal(n, first = first ? first : n);
    }
    assert_true(first > 3);
}

static void what_the_release_has_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *golden, *says;
    } cases[] = {
        { "add",
          "loads in the authors' release as gpt_base, whose class GPTBase is abstract: derive a class" },
        { "ddl-1", "as DDL-vdim1 (model/DDL-vdim1-gpt-mha-rope-TC.py)," },
        { "ddl-tc", "as DDL (model/DDL-gpt-mha-rope-TC.py)," },
        { "ddl-tc-ec", "as DDL-EC (model/DDL-gpt-mha-rope-TC-EC.py)," },
        { "ddl-cc", "as DDL-CC (model/DDL-gpt-mha-rope-CC.py)," },
        { "ddl-cc-ec-mup", "as DDL-CC-EC (model/DDL-gpt-mha-rope-CC-EC.py)," },
        { "ddl-cc-ec-write", "the authors' release has no such model (ddl_update write)" },
        { "ddl-cc-c3-k2", "no such model (ddl_state_shortconv_kernel_size other than ddl_value_channels" },
        { "ddl-cc-ec-c5-k4", "no such model (ddl_state_shortconv_kernel_size other than ddl_value_channels" },
        { "ddl-1-mixed", "(a residual rule that changes from layer to layer)" },
        { "ddl-1-vmap", "(ddl_map v)" },
        { "ddl-1-v-context", "(ddl_v_input context)" },
        { "ddl-mix-ec", "(ddl_v_input context)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char from[256];
        snprintf(from, sizeof from, "tests/golden/%s", cases[i].golden);
        remove_scratch("to");
        assert_int_equal(ddl("export %s --out %s --dtype bf16", source_path(from), scratch_path("to")), 0);
        if (!strstr(printed, cases[i].says))
            fail_msg("%s: '%s', wanted '%s'", cases[i].golden, printed, cases[i].says);
    }
}

struct extra {
    const ddl_safetensors *st;
    size_t n;
};

static ddl_status fill(void *user, size_t i, size_t offset, size_t bytes, void *to, struct ddl_error *err)
{
    (void)err;
    const struct extra *x = user;
    if (i < x->n)
        memcpy(to, ddl_safetensors_at(x->st, i)->data + offset, bytes);
    else
        memset(to, 0, bytes);
    return DDL_OK;
}

/* The folder "from" with one tensor more. */
static void add_a_tensor(const char *folder)
{
    struct ddl_error err;
    struct extra x;
    ddl_safetensors *st;
    struct ddl_tensor plan[128];
    char path[4200];
    assert_ok(ddl_safetensors_open_folder(&st, folder, &err), err);
    x = (struct extra){ st, ddl_safetensors_count(st) };
    assert_true(x.n < 128);
    for (size_t i = 0; i < x.n; i++)
        plan[i] = *ddl_safetensors_at(st, i);
    plan[x.n] = (struct ddl_tensor){ .name = "rotary.inv_freq", .dtype = DDL_F32, .ndim = 1, .shape = { 3 } };
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(ddl_safetensors_write(path, plan, x.n + 1, fill, &x, &err), err);
    ddl_safetensors_close(st);
    snprintf(path, sizeof path, "%s/checksums.json", folder);
    assert_int_equal(remove(path), 0);
}

static void extra_tensors_need_the_flag(void **state)
{
    (void)state;
    char from[4096], rest[8192];
    snprintf(from, sizeof from, "%s", tiny_folder("from", "ddl-cc"));
    add_a_tensor(from);
    write_random_shard(scratch_path("val_000.bin"), 1, 300, 2000);
    const char *const commands[] = {
        "eval %s --shard %s%.0s",
        "generate %s --prompt a --max-tokens 2 %.0s%.0s",
        "train --init-from %s --train-data %s --steps 1 --seq 8 --batch 1 --warmup 0 --out '%s'",
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        for (int flag = 0; flag < 2; flag++) {
            remove_scratch("run");
            snprintf(rest, sizeof rest, commands[i], from, scratch_path("val_000.bin"), scratch_path("run"));
            int status = ddl("%s %s", rest, flag ? "--ignore-extra" : "");
            if (status != !flag ||
                !strstr(printed, "from: rotary.inv_freq is not a parameter of this model (1 in all"))
                fail_msg("%s: status %d: %s", rest, status, printed);
        }
    }
    for (int flag = 0; flag < 2; flag++) {
        remove_scratch("to");
        assert_int_equal(ddl("export %s --out %s %s", from, scratch_path("to"), flag ? "--ignore-extra" : ""),
                         !flag);
        assert_printed("rotary.inv_freq is not a parameter");
        assert_int_equal(ddl_file_exists(scratch_path("to")), flag);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(what_the_release_has_is_said),
        cmocka_unit_test(extra_tensors_need_the_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
