/* How the messages of a chat become one text. */
#ifndef DDL_CLI_SERVE_CHAT_H
#define DDL_CLI_SERVE_CHAT_H

#include "cli/serve/api_error.h"
#include "cli/output/buffer.h"

#include "ddl/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

enum chat_role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLES };

/* A message is the text before[role], its content, and after[role]; the answer begins after
 * before[assistant].
 */
struct chat_template {
    char *begin; /* before the first message */
    char *before[ROLES], *after[ROLES];
    char *stop; /* text that ends the answer, or NULL */
};
/* Reads chat_template.json of the model folder `dir`, or, where there is none, sets the plain template:
 * "User: ...\n\nAssistant:", ended by "\n\nUser:". Free after an error too. */
ddl_status chat_template_load(struct chat_template *t, const char *dir, struct ddl_error *err);
void chat_template_free(struct chat_template *t);

/* One message; `content` (size bytes) is owned. */
struct message {
    enum chat_role role;
    char *content;
    size_t size;
};
/* "system", "developer" and so on into *role; false for no role. */
bool chat_role_find(enum chat_role *role, const char *name);
/* Appends the tokens of a chat and of the beginning of its answer. Texts of special tokens are such tokens in
 * the template only, never in what a client sent. */
ddl_status chat_encode(const struct chat_template *t, const ddl_tokenizer *tokenizer,
                       const struct message *messages, size_t n, struct ddl_ids *out, struct ddl_error *err);

#endif
