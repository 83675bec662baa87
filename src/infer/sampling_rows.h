/* Rows of the options of struct ddl_sampling. */
#ifndef DDL_INFER_SAMPLING_ROWS_H
#define DDL_INFER_SAMPLING_ROWS_H

#include "ddl/option.h"

#include <stddef.h>

extern const struct ddl_other_name sampling_length_others[], sampling_temperature_others[],
    sampling_presence_others[];

#define SAMPLING_AT(type, path, field) offsetof(type, path field)

/* The rows in a table for struct `type`, whose member path `path` ("sampling.", or empty) leads to the
 * fields. */
#define SAMPLING_ROWS(type, path)                                                                            \
    { "max_tokens",                                                                                          \
      DDL_OPTION_SIZE,                                                                                       \
      SAMPLING_AT(type, path, max_tokens),                                                                   \
      0,                                                                                                     \
      1,                                                                                                     \
      2147483647,                                                                                            \
      NULL,                                                                                                  \
      "N",                                                                                                   \
      "maximum number of new tokens",                                                                        \
      "max_new_tokens n_predict predict",                                                                    \
      .others = sampling_length_others },                                                                    \
        { "temperature",                                                                                     \
          DDL_OPTION_FLOAT,                                                                                  \
          SAMPLING_AT(type, path, temperature),                                                              \
          0,                                                                                                 \
          0,                                                                                                 \
          1000,                                                                                              \
          NULL,                                                                                              \
          "X",                                                                                               \
          "sampling temperature (0: greedy)",                                                                \
          .others = sampling_temperature_others },                                                           \
        { "top_k",                                                                                           \
          DDL_OPTION_SIZE,                                                                                   \
          SAMPLING_AT(type, path, top_k),                                                                    \
          0,                                                                                                 \
          0,                                                                                                 \
          2147483647,                                                                                        \
          NULL,                                                                                              \
          "N",                                                                                               \
          "sample from the N most probable tokens only (0: all)" },                                          \
        { "top_p",                                                                                           \
          DDL_OPTION_FLOAT,                                                                                  \
          SAMPLING_AT(type, path, top_p),                                                                    \
          0,                                                                                                 \
          0,                                                                                                 \
          1,                                                                                                 \
          NULL,                                                                                              \
          "X",                                                                                               \
          "sample from the smallest set of most probable tokens with a total probability of X or more" },    \
        { "min_p",                                                                                           \
          DDL_OPTION_FLOAT,                                                                                  \
          SAMPLING_AT(type, path, min_p),                                                                    \
          0,                                                                                                 \
          0,                                                                                                 \
          1,                                                                                                 \
          NULL,                                                                                              \
          "X",                                                                                               \
          "sample from tokens with at least X times the largest probability only" },                         \
        { "repeat_penalty",                                                                                  \
          DDL_OPTION_FLOAT,                                                                                  \
          SAMPLING_AT(type, path, repeat_penalty),                                                           \
          0,                                                                                                 \
          0.01,                                                                                              \
          100,                                                                                               \
          NULL,                                                                                              \
          "X",                                                                                               \
          "divide positive logits of tokens of the prompt and the text by X, multiply negative ones",        \
          "repetition_penalty" },                                                                            \
        { "presence_penalty",                                                                                \
          DDL_OPTION_FLOAT,                                                                                  \
          SAMPLING_AT(type, path, presence_penalty),                                                         \
          0,                                                                                                 \
          -100,                                                                                              \
          100,                                                                                               \
          NULL,                                                                                              \
          "X",                                                                                               \
          "subtract X from the logits of tokens that were generated",                                        \
          .others = sampling_presence_others },                                                              \
        { "frequency_penalty",                                                                               \
          DDL_OPTION_FLOAT,                                                                                  \
          SAMPLING_AT(type, path, frequency_penalty),                                                        \
          0,                                                                                                 \
          -100,                                                                                              \
          100,                                                                                               \
          NULL,                                                                                              \
          "X",                                                                                               \
          "subtract X from the logit of a token each time that it was generated" },                          \
        { "seed", DDL_OPTION_U64, SAMPLING_AT(type, path, seed), 0, 0, 0, NULL, "N", "random seed" },        \
    {                                                                                                        \
        "ignore_end", DDL_OPTION_BOOL, SAMPLING_AT(type, path, ignore_end), 0, 0, 0, NULL, NULL,             \
            "never choose <|endoftext|>", "ignore_eos"                                                       \
    }

#endif
