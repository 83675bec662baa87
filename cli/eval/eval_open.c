/* The models of ddl eval. */
#include "cli/eval/eval.h"

#include <stdio.h>

/* A rank may see an older state of a run's folder. */
static ddl_status compare_models(const struct folder *folder, ddl_comm *comm, struct ddl_error *err)
{
    char text[sizeof folder->found.name + 64];
    snprintf(text, sizeof text, "saved model: %s\nstep: %llu\n", folder->found.name,
             (unsigned long long)folder->found.step);
    return ddl_comm_compare(comm, text, err);
}

ddl_status eval_open(struct folder *folder, const struct eval_flags *flags, struct eval_model *model,
                     bool needs_tokenizer, struct ddl_error *err)
{
    const struct folder_request request = { .dir = model->folder,
                                            .model = &flags->model,
                                            .needs_tokenizer = needs_tokenizer,
                                            .quiet = flags->quiet || flags->json || flags->csv,
                                            .silent = flags->quiet };
    ddl_status status = ddl_comm_agree(flags->comm, folder_open(folder, &request, err), err);
    model->found = folder->found;
    return status || !flags->comm ? status : compare_models(folder, flags->comm, err);
}
