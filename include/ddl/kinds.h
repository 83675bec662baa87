/* Choices and limits that the configuration of a model and the arguments of ops have in common. Needs no
 * other header, so that device code can include it. */
#ifndef DDL_KINDS_H
#define DDL_KINDS_H

enum {
    DDL_MAX_HEAD_DIM = 4096, /* head_dim at most: what the reference backend keeps on its stack         */
    DDL_MAX_STREAMS = 8,     /* ddl_streams at most: kernels keep a token's mixing weights on the stack */
    DDL_MAX_SINKHORN = 100,  /* ddl_sinkhorn_iterations at most, for the same reason                    */
};

/* Delta rule: the full update, or only one of its two terms as a control. */
enum ddl_update {
    DDL_UPDATE_DELTA, /* X + beta k (v - k^T X)^T */
    DDL_UPDATE_WRITE, /* X + beta k v^T           */
    DDL_UPDATE_ERASE, /* X - beta k (k^T X)^T     */
};
/* c > 1: how the state is read. */
enum ddl_compress {
    DDL_COMPRESS_TOKEN,   /* causal convolution over tokens, then a read vector over channels */
    DDL_COMPRESS_CHANNEL, /* convolution over channels, then a read vector                    */
    DDL_COMPRESS_MIX,     /* one weight for each feature and channel                          */
};
/* How the direction is normalized. The two others are the paper's v1 and exist for the delta update only. */
enum ddl_form {
    DDL_FORM_UNIT,  /* k = q / sqrt(|q|^2 + eps^2)                                          */
    DDL_FORM_RATIO, /* X' = X - beta q (q^T X) / (q^T q + eps) + beta q v^T, q as given     */
    DDL_FORM_L2,    /* k = q / (|q| + eps)                                                  */
};

#endif
