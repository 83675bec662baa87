/* add: X' = X + f, done by F's output product itself. Backward: dX = dX', df = dX'. With ddl_f_norm f is
 * added once it is normalized, and backward reverses the state in place. */
#include "model/residual/table.h"

static struct operand write_bwd(const struct sublayer *s)
{
    return sublayer_dX(s);
}

static const char *release_file(const struct ddl_config *config, const char **why)
{
    (void)config;
    (void)why;
    return "gpt_base";
}

static void write_normalized_fwd(const struct sublayer *s, struct operand x_in, struct operand ctx)
{
    (void)x_in;
    (void)ctx;
    add_scaled_fwd(s, 1, NULL);
}

static struct operand write_normalized_bwd(const struct sublayer *s)
{
    return add_scaled_bwd(s, 1, NULL, NULL);
}

static double flops_normalized(const struct ddl_config *config)
{
    return (double)config->d_model;
}

static const struct residual_rule normalized = {
    .earlier = STREAM_REVERSED,
    .normalizes_f = true,
    .force_keys = DDL_FORCE_F_SCALE,
    .one_channel = true,
    .ops_fwd = DDL_OP_LIST(DDL_OP_scale_fwd),
    .ops_bwd = DDL_OP_LIST(DDL_OP_scale_bwd),
    .read_fwd = read_stream_fwd,
    .read_bwd = read_stream_bwd,
    .write_fwd = write_normalized_fwd,
    .write_bwd = write_normalized_bwd,
    .flops = flops_normalized,
};

const struct residual_rule residual_add = {
    .earlier = STREAM_SAVED,
    .adds_in_place = true,
    .normalizes_f = true,
    .normalized = &normalized,
    .force_keys = DDL_FORCE_F_SCALE,
    .one_channel = true,
    .read_fwd = read_stream_fwd,
    .read_bwd = read_stream_bwd,
    .write_bwd = write_bwd,
    .release_file = release_file,
};
