#include "cli.h"

#include <stdio.h>
#include <string.h>

const struct command commands[] = {
    { 0 },
};

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("ddl %s\n", ddl_version());
    return EXIT_OK;
}
