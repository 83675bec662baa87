#include "infer/eval_groups.h"

void ddl_eval_sums_end(struct ddl_eval_sums *sums)
{
    if (sums->open)
        sums->groups[sums->open].exact += sums->exact;
    sums->open = 0;
}

void ddl_eval_sums_add(struct ddl_eval_sums *sums, const struct ddl_eval_mark *marks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct ddl_eval_mark *mark = &marks[i];
        if (mark->group == DDL_EVAL_NO_TOKEN)
            continue;
        if (mark->group != sums->open)
            ddl_eval_sums_end(sums);
        if (mark->group == 0)
            continue;
        struct ddl_eval_group *group = &sums->groups[mark->group];
        if (!sums->open) {
            group->answers++;
            sums->exact = true;
        }
        sums->open = mark->group;
        sums->exact = sums->exact && mark->correct;
        group->tokens++;
        group->correct += mark->correct;
        group->nats += (double)mark->loss;
    }
}
