/* add: X' = X + f, done by F's output product itself. Backward: dX = dX', df = dX'. */
#include "model/residual/table.h"

static ddl_status check(const struct ddl_config *config, struct ddl_error *err)
{
    return check_one_channel(config, "add", err);
}

static const float *write_bwd(const struct sublayer *s)
{
    return s->stream->dX;
}

static const char *release_file(const struct ddl_config *config, const char **why)
{
    (void)config;
    (void)why;
    return "gpt_base";
}

const struct residual_rule residual_add = {
    .earlier = STREAM_SAVED,
    .adds_in_place = true,
    .force_keys = DDL_FORCE_F_SCALE,
    .check = check,
    .read_fwd = read_stream_fwd,
    .read_bwd = read_stream_bwd,
    .write_bwd = write_bwd,
    .release_file = release_file,
};
