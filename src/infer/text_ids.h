/* The tokens of a text that a model is evaluated on. */
#ifndef DDL_INFER_TEXT_IDS_H
#define DDL_INFER_TEXT_IDS_H

#include "ddl/tokenizer.h"

/* Sets *ids, zero before, to the tokens of the text (any bytes but zero; size in bytes, at least 1) after an
 * <|endoftext|>, where the tokenizer has one; *prefix is the number of tokens before the text. DDL_E_FORMAT
 * for an empty text and for a zero byte. Free *ids with ddl_ids_free after an error too. */
ddl_status ddl_text_ids(const ddl_tokenizer *tokenizer, const char *text, size_t size, struct ddl_ids *ids,
                        size_t *prefix, struct ddl_error *err);

#endif
