/* A model folder in another dtype, in one file or several: what the authors' PyTorch release loads. */
#ifndef DDL_EXPORT_H
#define DDL_EXPORT_H

#include "ddl/model.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of every tensor that is written. */
enum ddl_export_dtype {
    DDL_EXPORT_F32,  /* 24 significant bits     */
    DDL_EXPORT_BF16, /* 8 significant bits      */
    DDL_EXPORT_F16,  /* 11, a small range       */
};

/* "f32", "bf16", "f16", NULL: choices for a struct ddl_option. */
DDL_API extern const char *const ddl_export_dtype_names[];

/* Writes further files to the new folder `folder`, which is complete but for its checksums and still has a
 * temporary name. May replace config.json; what it writes of the tokenizer's files gets a checksum too. */
typedef ddl_status ddl_export_extra_fn(void *user, const char *folder, struct ddl_error *err);

/* What is wanted of an export. */
struct ddl_export_config {
    int dtype;                  /* enum ddl_export_dtype                                                  */
    uint64_t max_shard_size;    /* bytes of tensors in a file; beyond, several and an index (0: one file) */
    bool no_lm_head;            /* leave out lm_head.weight, a copy of the embedding                      */
    bool ignore_extra;          /* tensors that are not parameters are left out instead of refused         */
    bool no_verify;             /* the files of `from` are not compared with their checksums               */
    ddl_export_extra_fn *extra; /* NULL: no further files */
    void *extra_user;           /* its first argument     */
};

/* What was written. */
struct ddl_export_result {
    size_t n_tensors, n_files; /* files of tensors */
    uint64_t bytes;            /* of tensors       */
    struct ddl_config config;  /* of the model     */
};

/* Writes the model of folder `from` (a model, a checkpoint, a folder of the release) to the new folder `to`:
 * config.json, the tensors, and copies of the tokenizer's files, atomically. `to` must not exist or must be
 * an empty folder. Numbers are rounded once, to nearest, ties to even; tensors of the same dtype keep their
 * bytes. A number that the dtype cannot hold is DDL_E_NUMERIC, by name. `warn` as in ddl_model_load. */
DDL_API ddl_status ddl_export(const char *from, const char *to, const struct ddl_export_config *config,
                              ddl_warn_fn *warn, void *user, struct ddl_export_result *result,
                              struct ddl_error *err);

/* What ddl_export_hf_files writes besides the configuration. */
struct ddl_export_hf {
    const char *name;    /* path of the new folder, whose last part is the title of the card         */
    const char *run;     /* run folder whose recipe and metrics the card has; NULL: none              */
    bool has_step;       /* step is set                                                               */
    uint64_t step;       /* of the run's model: later metrics are left out                            */
    const char *license; /* identifier such as "apache-2.0" for the card; NULL or "": not stated      */
    int dtype;           /* enum ddl_export_dtype of the tensors                                      */
    bool has_tokenizer;  /* set by ddl_export_hf_files: the folder has a tokenizer                    */
};
/* A ddl_export_extra_fn whose `user` is a struct ddl_export_hf: makes the folder one that `transformers`
 * loads with the classes of python/deep_delta/hf.py. config.json gets all keys and model_type "deep_delta".
 * With a tokenizer: tokenizer.json, tokenizer_config.json and generation_config.json. README.md is a model
 * card. */
DDL_API ddl_status ddl_export_hf_files(void *user, const char *folder, struct ddl_error *err);
/* DDL_E_USAGE, with `where` in front, unless `license` is "" or has letters, digits, '.', '-' and '_' only.
 */
DDL_API ddl_status ddl_export_check_license(const char *license, const char *where, struct ddl_error *err);

/* The model file of the authors' release that computes this config ("gpt_base", "DDL-CC-EC", ...);
 * NULL if none does, and then *why (may be NULL) says what the release lacks. */
DDL_API const char *ddl_config_release_file(const struct ddl_config *config, const char **why);
/* The Python module of that file in the release's folder model/ ("DDL-gpt-mha-rope-CC-EC"); NULL if there is
 * no such file, or if its class is abstract ("gpt_base"). */
DDL_API const char *ddl_config_release_module(const struct ddl_config *config);

#ifdef __cplusplus
}
#endif
#endif
