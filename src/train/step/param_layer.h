#ifndef DDL_TRAIN_PARAM_LAYER_H
#define DDL_TRAIN_PARAM_LAYER_H

/* The layer of the parameter with this name, from 0; -1: none, as of the embedding and the head. */
long ddl_param_layer(const char *name);

#endif
