/* Tests tensor/torch_file.c, pickle.c and zip.c: files written here byte by byte are read, and every kind of
 * damage and every object that is no tensor has its error message. */
#include "support/files.h"
#include "support/torch_writer.h"

#include "tensor/torch_file.h"

#include <math.h>

/* Opcodes, and the pieces of a pickle. */
#define PROTO "\x80\x02"
#define TEXT1(c) "X\x01\0\0\0" c
#define STORAGE(type, key, numel) "(X\x07\0\0\0storagec" type "\n" TEXT1(key) "X\x03\0\0\0cpuK" numel "tQ"
#define FLOATS(key, numel) STORAGE("torch\nFloatStorage", key, numel)
#define V2 "ctorch._utils\n_rebuild_tensor_v2\n"
#define REST                                                                                                 \
    "\x89"                                                                                                   \
    "ccollections\nOrderedDict\n)RtR"
/* A tensor of shape (2, 3) at an offset. */
#define MATRIX(storage, offset) V2 "(" storage "K" offset "K\x02K\x03\x86K\x03K\x01\x86" REST

struct piece {
    const char *bytes;
    size_t n;
};
#define PIECE(text)                                                                                          \
    {                                                                                                        \
        text, sizeof(text) - 1                                                                               \
    }

static const float values[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };

/* A file with this pickle, and values as the storages 0 (8 floats) and 1 (the first 2). */
static const char *make(struct zip_writer *z, const struct piece *pickle)
{
    zip_add(z, "name/data.pkl", pickle->bytes, pickle->n);
    zip_add(z, "name/data/0", values, sizeof values);
    zip_add(z, "name/data/1", values, 2 * sizeof *values);
    zip_finish(z);
    const char *path = scratch_path("folder/pytorch_model.bin");
    write_file(path, z->file.data, z->file.n);
    zip_free(z);
    return path;
}

static ddl_status open_pickle(ddl_safetensors **st, const struct piece *pickle, struct ddl_error *err)
{
    struct zip_writer z = { 0 };
    make(&z, pickle);
    return ddl_safetensors_open_folder(st, scratch_path("folder"), err);
}

static void assert_values(const struct ddl_tensor *t, const char *shape, size_t n, float first)
{
    struct ddl_error err;
    char found[64];
    float numbers[8];
    assert_non_null(t);
    ddl_tensor_shape_text(t, found, sizeof found);
    assert_string_equal(found, shape);
    assert_int_equal(t->count, n);
    assert_ok(ddl_tensor_read_f32(t, 0, n, numbers, &err), err);
    for (size_t i = 0; i < n; i++)
        assert_float_equal(numbers[i], first + (float)i, 0);
}

static void tensors_are_read(void **state)
{
    (void)state;
    static const struct piece pickle =
        PIECE(PROTO "ccollections\nOrderedDict\n)Rq\x01("                  /* the state dict, with    */
              TEXT1("a") MATRIX(FLOATS("0", "\x08") "q\x02", "\0") "q\x03" /* a matrix                */
              TEXT1("b") MATRIX("h\x02", "\x02")                           /* one that shares its storage */
              TEXT1("c") "h\x03"                                           /* the same tensor again   */
              TEXT1("d") "ctorch._utils\n_rebuild_parameter\n" MATRIX("h\x02", "\x01") "\x88}\x87R" TEXT1("e")
                  V2 "(h\x02K\x05))" REST /* a scalar                */
                      TEXT1("f") V2
              "(" FLOATS("1", "\x02") "K\0K\x01K\x02\x86K\x63K\x01\x86" REST /* any stride for one */
                  TEXT1("g") V2 "(h\x02K\x08K\0K\x03\x86K\x03K\x01\x86" REST /* no elements             */
                      TEXT1("h") "K\x05" TEXT1("i") "]" TEXT1("j") "N"       /* no tensors              */
                                                                   "u}X\x09\0\0\0_metadata}sb.");
    for (int i = 0; i < 4; i++) {
        struct zip_writer z = { .zip64 = i & 1, .no_crc = i & 2 };
        struct ddl_error err;
        ddl_safetensors *st;
        make(&z, &pickle);
        assert_ok(ddl_safetensors_open_folder(&st, scratch_path("folder"), &err), err);
        assert_int_equal(ddl_safetensors_count(st), 7);
        assert_values(ddl_safetensors_find(st, "a"), "(2, 3)", 6, 0);
        assert_values(ddl_safetensors_find(st, "b"), "(2, 3)", 6, 2);
        assert_values(ddl_safetensors_find(st, "c"), "(2, 3)", 6, 0);
        assert_values(ddl_safetensors_find(st, "d"), "(2, 3)", 6, 1);
        assert_values(ddl_safetensors_find(st, "e"), "()", 1, 5);
        assert_values(ddl_safetensors_find(st, "f"), "(1, 2)", 2, 0);
        assert_values(ddl_safetensors_find(st, "g"), "(0, 3)", 0, 0);
        assert_null(ddl_safetensors_settings(st));
        assert_ok(ddl_safetensors_verify(st, &err), err);
        ddl_safetensors_close(st);
    }
}

/* The dtype is an argument, and the storage counts bytes. */
static void untyped_storages_are_read(void **state)
{
    (void)state;
    static const struct piece pickle =
        PIECE(PROTO "}" TEXT1("a") "ctorch._utils\n_rebuild_tensor_v3\n(" STORAGE(
            "torch.storage\nUntypedStorage", "0", "\x20") "K\x04K\x04\x85K\x01\x85\x89}"
                                                          "ctorch\nfloat8_e4m3fn\ntRs.");
    struct ddl_error err;
    ddl_safetensors *st;
    assert_ok(open_pickle(&st, &pickle, &err), err);
    const struct ddl_tensor *t = ddl_safetensors_find(st, "a");
    assert_true(t && t->dtype == DDL_F8_E4M3 && t->count == 4);
    assert_memory_equal(t->data, (const unsigned char *)values + 4, 4);
    ddl_safetensors_close(st);
}

/* A training script's file: the model beside the optimizer's state and settings, in protocol 4. */
static void a_checkpoint_of_a_script_is_read(void **state)
{
    (void)state;
    static const struct piece pickle = PIECE(
        "\x80\x04\x95\0\0\0\0\0\0\0\0"
        "}\x94(\x8c\x05model\x94}\x94" TEXT1("a")
            MATRIX(FLOATS("0", "\x08"),
                   "\0") "s"
                         "\x8c\x09optimizer}(\x8c\x05state}K\0}\x8c\x04step" V2 "(" FLOATS(
                             "1", "\x02") "K\0))" REST "ss"
                                          "\x8c\x0cparam_groups](}(\x8c\x02lrG?PbM\xd2\xf1\xa9\xfc\x8c\x05"
                                          "betasG?\xec\xcc\xcc\xcc\xcc\xcc\xcd"
                                          "G?\xee\x66\x66\x66\x66\x66\x66\x86\x8c\x06params](K\0K\x01"
                                          "eu]eu"
                                          "\x8c\x0amodel_args}(\x8c\x07n_layerK\x0c\x8c\x04"
                                          "bias\x89"
                                          "\x8c\x01yJ\xff\xff\xff\xff\x8c\x01x\x8a\x09\0\0\0\0\0\0\0\0\x01"
                                          "\x8c\x01wN\x8c\x05"
                                          "dtypectorch\nbfloat16\nu"
                                          "u.");
    struct ddl_error err;
    ddl_safetensors *st;
    assert_ok(open_pickle(&st, &pickle, &err), err);
    assert_int_equal(ddl_safetensors_count(st), 1);
    assert_values(ddl_safetensors_find(st, "a"), "(2, 3)", 6, 0);
    const json_t *settings = ddl_safetensors_settings(st);
    assert_int_equal(json_integer_value(json_object_get(settings, "n_layer")), 12);
    assert_int_equal(json_integer_value(json_object_get(settings, "y")), -1);
    assert_true(json_is_false(json_object_get(settings, "bias")));
    assert_true(json_is_null(json_object_get(settings, "w")));
    assert_int_equal(json_object_size(settings), 4);
    ddl_safetensors_close(st);
}

/* Each of these pickles is refused, with a message that contains the text. */
#define ONE(tensor) PIECE(PROTO "}" TEXT1("a") tensor "s.")
static const struct {
    struct piece pickle;
    const char *says;
} bad[] = {
    { PIECE(PROTO "cposix\nsystem\n" TEXT1("x") "\x85R."),
      "the pickle uses posix.system: expected only what" },
    { PIECE(PROTO "cbuiltins\neval\n" TEXT1("x") "\x85R."), "builtins.eval" },
    { PIECE("\x80\x04\x8c\x02os\x8c\x06system\x93."), "os.system" },
    { PIECE(PROTO "ctorch\nComplexFloatStorage\n."), "torch.ComplexFloatStorage" },
    { PIECE(PROTO "ctorch._utils\n_rebuild_tensor_v2\n(\x81."), "opcode 0x81 at byte 36" },
    { PIECE(PROTO "(S'x'\ni."), "opcode 0x53" },
    { PIECE(PROTO "X\xff\xff\xff\xff"
                  "a"),
      "ends inside an opcode's argument" },
    { PIECE(PROTO "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                  "a"),
      "ends inside an opcode's argument" },
    { PIECE(PROTO "ctorch"), "ends inside an opcode's argument" },
    { PIECE(PROTO "}"), "ends without a STOP" },
    { PIECE(""), "ends without a STOP" },
    { PIECE("."), "a value is missing on the stack" },
    { PIECE("(."), "a value is missing on the stack" },
    { PIECE("}R."), "a value is missing on the stack" },
    { PIECE("}}R."), "a call of a value that is not a global" },
    { PIECE("ccollections\nOrderedDict\n}R."), "without a tuple of arguments" },
    { PIECE("ccollections\nOrderedDict\nN\x85R."), "OrderedDict is called with arguments" },
    { PIECE("t."), "there is no mark on the stack" },
    { PIECE("](K\x01u."), "items are added to a value that is not a dict" },
    { PIECE("}(K\x01u."), "a key has no value" },
    { PIECE("}K\x01"
            "a."),
      "items are added to a value that is not a list" },
    { PIECE("h\x05."), "the memo has no value at this index" },
    { PIECE("}r\xff\xff\xff\xff."), "index of the memo is larger than the pickle" },
    { PIECE("q\x01."), "a value is missing on the stack" },
    { PIECE("K\x01K\x02\x93."), "the name of a global is not a string" },
    { PIECE("]."), "expected a dict of tensors, found a list" },
    { PIECE("}."), "found no tensor" },
    { ONE("K\x01"), "found no tensor" },
    { ONE("ctorch._utils\n_rebuild_parameter\nK\x01K\x01K\x01\x87R"), "a: expected a tensor" },
    { ONE(V2 ")R"), "a: expected a tensor" },
    { ONE(V2 "(NK\0))" REST), "a: expected a storage" },
    { ONE(V2 "(NQK\0))" REST), "a: expected a storage" },
    { ONE(V2 "(" STORAGE("torch\nfloat32", "0", "\x08") "K\0))" REST), "the storage has no known dtype" },
    { ONE(MATRIX(FLOATS("7", "\x08"), "\0")), "a: there is no entry 'name/data/7'" },
    { ONE(MATRIX(FLOATS("0", "\x09"), "\0")),
      "entry 'name/data/0' has the wrong size: expected 9 elements of 4 bytes, found 32" },
    { ONE(MATRIX(FLOATS("0", "\x08"), "\x03")),
      "a is outside of its storage: expected at most 8 elements, found 6 from element 3 on" },
    { ONE(V2 "(" FLOATS("0", "\x08") "J\xff\xff\xff\xff))" REST), "the offset in its storage" },
    { ONE(V2 "(" FLOATS("0", "\x08") "K\0K\x02K\x03\x86K\x01K\x02\x86" REST),
      "a is not contiguous: expected stride 1 in dimension 1, found 2" },
    { ONE(V2 "(" FLOATS("0", "\x08") "K\0K\x08K\x08\x86K\0K\0\x86" REST), "a is not contiguous" },
    { ONE(V2 "(" FLOATS("0", "\x08") "K\0K\x02\x85K\x01K\x01\x86" REST), "a shape and as many strides" },
    { ONE(V2 "(" FLOATS("0", "\x08") "K\0J\xff\xff\xff\xff\x85K\x01\x85" REST), "a dimension of the shape" },
    { ONE(V2 "(" FLOATS("0", "\x08") "K\0(K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01t"
                                     "(K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01t" REST),
      "9 dimensions exceed the limit of 8" },
    { ONE(V2 "(" FLOATS("0", "\x08") "K\0\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85K\x01\x85" REST),
      "the shape is too large" },
    { PIECE(PROTO "}(" TEXT1("a") "q\x07" MATRIX(FLOATS("0", "\x08"), "\0") "q\x05h\x07h\x05u."),
      "duplicate tensor a" },
    { PIECE(PROTO "}X\x02\0\0\0a\0" MATRIX(FLOATS("0", "\x08"), "\0") "s."), "the name contains a NUL" },
};

static void other_pickles_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ddl_error err;
        ddl_safetensors *st;
        ddl_status status = open_pickle(&st, &bad[i].pickle, &err);
        if (status != DDL_E_FORMAT && status != DDL_E_UNSUPPORTED)
            fail_msg("case %zu (%s) was read", i, bad[i].says);
        assert_says(&err, bad[i].says);
        assert_says(&err, "pytorch_model.bin: ");
        assert_null(st);
    }
}

/* One key, referred to once per item, would take a multiple of the file's size as names. */
static void memory_is_bounded(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 20, ITEMS = 50000 };
    struct bytes pickle = { 0 };
    struct ddl_error err;
    ddl_safetensors *st;
    const struct ddl_tensor scalar = { .dtype = DDL_F32 };
    char *key = malloc(LENGTH + 1);
    assert_non_null(key);
    memset(key, 'k', LENGTH);
    key[LENGTH] = '\0';
    bytes_text(&pickle, "}");
    pickle_text(&pickle, key);
    bytes_text(&pickle, "q\x01");
    pickle_tensor(&pickle, &scalar, "0", 8, 0, NULL);
    bytes_text(&pickle, "q\x02s(");
    for (size_t i = 0; i < ITEMS; i++)
        bytes_text(&pickle, "h\x01h\x02");
    bytes_text(&pickle, "u.");
    assert_int_equal(open_pickle(&st, &(struct piece){ (const char *)pickle.data, pickle.n }, &err),
                     DDL_E_FORMAT);
    assert_says(&err, "duplicate tensor kkkk");
    bytes_free(&pickle);
    free(key);
}

/* Nesting has no recursion: as deep as the pickle is long. */
static void depth_is_no_matter(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    struct bytes pickle = { 0 };
    struct ddl_error err;
    ddl_safetensors *st;
    const struct ddl_tensor scalar = { .dtype = DDL_F32 };
    bytes_text(&pickle, "}");
    pickle_text(&pickle, "x");
    for (size_t i = 0; i < DEPTH; i++)
        bytes_text(&pickle, "]");
    for (size_t i = 1; i < DEPTH; i++)
        bytes_text(&pickle, "a");
    bytes_text(&pickle, "s");
    pickle_text(&pickle, "a");
    pickle_tensor(&pickle, &scalar, "0", 8, 0, NULL);
    bytes_text(&pickle, "s.");
    assert_ok(open_pickle(&st, &(struct piece){ (const char *)pickle.data, pickle.n }, &err), err);
    assert_int_equal(ddl_safetensors_count(st), 1);
    ddl_safetensors_close(st);
    bytes_free(&pickle);
}

/* ---- the zip file ---- */

static void whole(struct zip_writer *z)
{
    static const struct ddl_tensor two[] = {
        { .name = "a",
          .dtype = DDL_F32,
          .ndim = 1,
          .shape = { 8 },
          .count = 8,
          .bytes = 32,
          .data = (const void *)values },
        { .name = "b",
          .dtype = DDL_F64,
          .ndim = 1,
          .shape = { 2 },
          .count = 2,
          .bytes = 16,
          .data = (const void *)values },
    };
    torch_file(z, two, 2, NULL);
}

static ddl_status open_bytes(ddl_safetensors **st, const void *data, size_t n, struct ddl_error *err)
{
    write_file(scratch_path("folder/pytorch_model.bin"), data, n);
    return ddl_safetensors_open_folder(st, scratch_path("folder"), err);
}

/* Reads a copy of exactly n bytes. */
static ddl_status read_copy(struct ddl_torch_file *file, struct ddl_file_map *map, const struct bytes *b,
                            size_t n, struct ddl_error *err)
{
    unsigned char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, b->data, n);
    *map = (struct ddl_file_map){ copy, n };
    return ddl_torch_file_read(file, map, "a.pt", err);
}

static void close_copy(struct ddl_torch_file *file, struct ddl_file_map *map)
{
    for (size_t i = 0; i < file->n; i++)
        free((char *)(uintptr_t)file->tensors[i].name);
    ddl_torch_file_close(file);
    free((void *)(uintptr_t)map->data);
}

static void truncation_is_detected(void **state)
{
    (void)state;
    for (int zip64 = 0; zip64 < 2; zip64++) {
        struct zip_writer z = { .zip64 = zip64 };
        struct ddl_error err;
        struct ddl_torch_file file;
        struct ddl_file_map map;
        whole(&z);
        for (size_t n = 0; n < z.file.n; n++) {
            assert_int_equal(read_copy(&file, &map, &z.file, n, &err), DDL_E_FORMAT);
            assert_says(&err, n == 0  ? "found an empty file"
                              : n < 4 ? "expected a zip file as torch.save writes it"
                                      : "truncated: expected a zip file's central directory");
            close_copy(&file, &map);
        }
        assert_ok(read_copy(&file, &map, &z.file, z.file.n, &err), err);
        close_copy(&file, &map);
        zip_free(&z);
    }
}

/* Every byte changed: an error, or tensors inside of the file. A changed number is found by its checksum. */
static void every_changed_byte_is_safe(void **state)
{
    (void)state;
    for (int zip64 = 0; zip64 < 2; zip64++) {
        struct zip_writer z = { .zip64 = zip64 };
        whole(&z);
        for (size_t i = 0; i < z.file.n; i++) {
            struct ddl_error err;
            struct ddl_torch_file file;
            struct ddl_file_map map;
            unsigned char old = z.file.data[i];
            z.file.data[i] = (unsigned char)(i % 2 ? 0xff : old ^ 1);
            ddl_status status = read_copy(&file, &map, &z.file, z.file.n, &err);
            for (size_t t = 0; t < file.n && !status; t++) {
                const struct ddl_tensor *tensor = &file.tensors[t];
                assert_true(tensor->bytes <= sizeof values);
                bool same = memcmp(tensor->data, values, tensor->bytes) == 0;
                assert_true(same || ddl_torch_file_verify(&map, "a.pt", &err) == DDL_E_FORMAT);
            }
            close_copy(&file, &map);
            z.file.data[i] = old;
        }
        zip_free(&z);
    }
}

static void set(struct zip_writer *z, size_t at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++, value >>= 8)
        z->file.data[at + i] = (unsigned char)value;
}

static void zip_files_are_checked(void **state)
{
    (void)state;
    /* A number in the first record of the central directory, or in the last record. */
    static const struct {
        bool zip64, end;
        size_t at;
        uint64_t value;
        unsigned bytes;
        const char *says;
    } cases[] = {
        { false, false, 8, 1, 2, "entry 'archive/data.pkl' of the zip file: encrypted" },
        { false, false, 10, 8, 2, "entry 'archive/data.pkl' of the zip file: compressed" },
        { false, false, 24, 5, 4, "compressed" },
        { false, false, 28, 60000, 2, "ends outside of it" },
        { false, false, 42, 1, 4, "no header at the place that the central directory gives" },
        { false, false, 42, 0xfffffff0, 4, "no header at the place that the central directory gives" },
        { false, false, 42, 0xffffffff, 4, "no zip64 sizes in its record" },
        { false, false, 0, 0, 4, "fewer entries than it declares" },
        { false, true, 10, 60000, 2, "fewer entries than it declares" },
        { false, true, 16, 0xfffffff0, 4, "the central directory is outside of the file" },
        { false, true, 12, 0xfffffff0, 4, "the central directory is outside of the file" },
        { false, true, 10, 0xffff, 2, "no zip64 record" },
        { true, false, 50 + 16 + 0, UINT64_MAX, 8, "compressed" },
        { true, true, 0, 0, 4, "truncated" },
        { true, true, (size_t)-12, UINT64_MAX, 8, "no zip64 record at the place that its locator gives" },
        { true, true, (size_t)-12, 4, 8, "no zip64 record at the place that its locator gives" },
        { true, true, (size_t)-20 - 24, UINT64_MAX, 8, "fewer entries than it declares" },
        { true, true, (size_t)-20 - 16, UINT64_MAX, 8, "the zip64 central directory is outside" },
        { true, true, (size_t)-20 - 8, UINT64_MAX, 8, "the zip64 central directory is outside" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zip_writer z = { .zip64 = cases[i].zip64 };
        struct ddl_error err;
        ddl_safetensors *st;
        whole(&z);
        size_t end = z.file.n - 22, central = end - (cases[i].zip64 ? 76 : 0) - z.central.n;
        set(&z, (cases[i].end ? end : central) + cases[i].at, cases[i].value, cases[i].bytes);
        if (open_bytes(&st, z.file.data, z.file.n, &err) != DDL_E_FORMAT)
            fail_msg("case %zu (%s) was read", i, cases[i].says);
        assert_says(&err, cases[i].says);
        zip_free(&z);
    }
}

static void entries_are_distinct(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_safetensors *st;
    struct zip_writer z = { 0 };
    whole(&z);
    /* The second record's place becomes the first one's. */
    size_t central = z.file.n - 22 - z.central.n, second = central + 46 + strlen("archive/data.pkl");
    set(&z, second + 42, 0, 4);
    assert_int_equal(open_bytes(&st, z.file.data, z.file.n, &err), DDL_E_FORMAT);
    assert_says(&err, "overlaps another entry");
    zip_free(&z);

    zip_add(&z, "n/data.pkl", "}.", 2);
    zip_add(&z, "n/data.pkl", "}.", 2);
    zip_finish(&z);
    assert_int_equal(open_bytes(&st, z.file.data, z.file.n, &err), DDL_E_FORMAT);
    assert_says(&err, "entry 'n/data.pkl' of the zip file: duplicate name");
    zip_free(&z);

    z = (struct zip_writer){ 0 };
    zip_add(&z, "n/data.pkl", "}.", 2);
    zip_add(&z, "m/data.pkl", "}.", 2);
    zip_finish(&z);
    assert_int_equal(open_bytes(&st, z.file.data, z.file.n, &err), DDL_E_FORMAT);
    assert_says(&err, "expected a zip file of torch.save with one entry NAME/data.pkl, found 2");
    zip_free(&z);

    z = (struct zip_writer){ 0 };
    zip_add(&z, "n/data.pkl", "}.", 2);
    zip_add(&z, "n/byteorder", "big", 3);
    zip_finish(&z);
    assert_int_equal(open_bytes(&st, z.file.data, z.file.n, &err), DDL_E_UNSUPPORTED);
    assert_says(&err, "expected byte order little, found 'big'");
    zip_free(&z);
}

static void checksums_are_compared(void **state)
{
    (void)state;
    struct ddl_error err;
    ddl_safetensors *st;
    struct zip_writer z = { 0 };
    whole(&z);
    z.file.data[64] ^= 1; /* the pickle */
    assert_int_equal(open_bytes(&st, z.file.data, z.file.n, &err), DDL_E_FORMAT);
    assert_says(&err, "entry 'archive/data.pkl' is corrupted: expected CRC-32");
    z.file.data[64] ^= 1;
    assert_ok(open_bytes(&st, z.file.data, z.file.n, &err), err);
    size_t at = (size_t)(ddl_safetensors_at(st, 1)->data - ddl_safetensors_at(st, 0)->data);
    ddl_safetensors_close(st);
    unsigned char *first = z.file.data;
    while (memcmp(first, values, sizeof values) != 0)
        first++;
    first[at] ^= 1;
    assert_ok(open_bytes(&st, z.file.data, z.file.n, &err), err);
    assert_int_equal(ddl_safetensors_verify(st, &err), DDL_E_FORMAT);
    assert_says(&err, "entry 'archive/data/1' is corrupted");
    assert_int_equal(ddl_safetensors_verify_folder(scratch_path("folder"), &err), DDL_E_FORMAT);
    ddl_safetensors_close(st);
    zip_free(&z);
}

static void the_old_format_is_named(void **state)
{
    (void)state;
    static const char old[] = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    struct ddl_error err;
    ddl_safetensors *st;
    assert_int_equal(open_bytes(&st, old, sizeof old - 1, &err), DDL_E_UNSUPPORTED);
    assert_says(&err, "expected the zip format that torch.save writes since PyTorch 1.6");
    assert_says(&err, "torch.save(torch.load(");
}

/* ---- folders ---- */

static void write_part(const char *name, const char *tensor, const char *under)
{
    const struct ddl_tensor t = { .name = tensor,
                                  .dtype = DDL_F32,
                                  .ndim = 1,
                                  .shape = { 8 },
                                  .count = 8,
                                  .bytes = 32,
                                  .data = (const void *)values };
    struct zip_writer z = { 0 };
    torch_file(&z, &t, 1, under);
    write_file(scratch_path(name), z.file.data, z.file.n);
    zip_free(&z);
}

static void folders_of_several_files(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\": {\"a\": \"x-1.bin\", \"b\": \"x-2.bin\"}}";
    struct ddl_error err;
    ddl_safetensors *st;
    remove_scratch("folder/pytorch_model.bin");
    write_part("folder/ckpt.pt", "c", "model");
    assert_true(ddl_safetensors_in_folder(scratch_path("folder")));
    assert_ok(ddl_safetensors_open_folder(&st, scratch_path("folder"), &err), err);
    assert_values(ddl_safetensors_find(st, "c"), "(8)", 8, 0);
    ddl_safetensors_close(st);

    /* The index is preferred to a checkpoint of a script. */
    write_part("folder/x-1.bin", "a", NULL);
    write_part("folder/x-2.bin", "b", NULL);
    write_file(scratch_path("folder/pytorch_model.bin.index.json"), index, sizeof index - 1);
    assert_ok(ddl_safetensors_open_folder(&st, scratch_path("folder"), &err), err);
    assert_int_equal(ddl_safetensors_count(st), 2);
    assert_values(ddl_safetensors_find(st, "b"), "(8)", 8, 0);
    ddl_safetensors_close(st);

    write_part("folder/x-2.bin", "a", NULL);
    assert_int_equal(ddl_safetensors_open_folder(&st, scratch_path("folder"), &err), DDL_E_FORMAT);
    assert_says(&err, "duplicate tensor a");
}

static int set_up(void **state)
{
    (void)state;
    struct ddl_error err;
    remove_scratch("folder");
    assert_ok(ddl_file_make_dir(scratch_path("folder"), &err), err);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_read),
        cmocka_unit_test(untyped_storages_are_read),
        cmocka_unit_test(a_checkpoint_of_a_script_is_read),
        cmocka_unit_test(other_pickles_are_refused),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(depth_is_no_matter),
        cmocka_unit_test(truncation_is_detected),
        cmocka_unit_test(every_changed_byte_is_safe),
        cmocka_unit_test(zip_files_are_checked),
        cmocka_unit_test(entries_are_distinct),
        cmocka_unit_test(checksums_are_compared),
        cmocka_unit_test(the_old_format_is_named),
        cmocka_unit_test(folders_of_several_files),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
