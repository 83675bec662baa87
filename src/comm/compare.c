/* What the ranks must have in common. */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

/* Writes the first line of `mine` that differs from rank 0's into err. */
static ddl_status compare_lines(const char *mine, const char *root, struct ddl_error *err)
{
    enum { LONGEST = 200 }; /* bytes of a value in the message */
    size_t n = 0, m = 0;
    for (; *mine || *root; mine += n + (mine[n] != '\0'), root += m + (root[m] != '\0')) {
        n = strcspn(mine, "\n");
        m = strcspn(root, "\n");
        if (n == m && memcmp(mine, root, n) == 0)
            continue;
        const char *colon = memchr(mine, ':', n);
        size_t name = colon ? (size_t)(colon - mine) : 0, skip = name + 2 < m ? name + 2 : m;
        size_t found = n > name + 2 ? n - name - 2 : 0;
        return ddl_error_set(err, DDL_E_USAGE,
                             "%.*s: the ranks differ: expected %.*s as on rank 0, found %.*s", (int)name,
                             mine, m - skip > LONGEST ? LONGEST : (int)(m - skip), root + skip,
                             found > LONGEST ? LONGEST : (int)found, mine + name + 2);
    }
    return DDL_OK;
}

ddl_status ddl_comm_compare(ddl_comm *comm, const char *text, struct ddl_error *err)
{
    uint64_t bytes = text ? strlen(text) + 1 : 0;
    ddl_comm_max_u64(comm, 1, &bytes);
    char *root = calloc(1, (size_t)bytes);
    ddl_status status = DDL_OK;
    if (!text || !root)
        status = ddl_error_set(err, DDL_E_MEMORY, "out of memory to compare the ranks");
    status = ddl_comm_agree(comm, status, err);
    if (!status) {
        if (ddl_comm_rank(comm) == 0)
            memcpy(root, text, strlen(text) + 1);
        ddl_comm_broadcast(comm, 0, (size_t)bytes, root);
        status = ddl_comm_agree(comm, compare_lines(text, root, err), err);
    }
    free(root);
    return status;
}
