#include "train/run/trainer.h"

#include <stdio.h>

void trainer_note(const struct run *run, const char *message)
{
    if (run->callbacks->note)
        run->callbacks->note(run->callbacks->user, message);
}

ddl_status trainer_at_step(const struct run *run, ddl_status status, const char *what, struct ddl_error *err)
{
    char where[64];
    if (status != DDL_E_DEVICE)
        return status;
    snprintf(where, sizeof where, "step %llu: %s", (unsigned long long)run->state.step, what);
    return ddl_error_prefix(err, status, where);
}
