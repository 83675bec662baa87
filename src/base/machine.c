#include "base/machine.h"

#include <stdio.h>
#include <string.h>

void ddl_machine_processor(char *out, size_t size)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strstr(line, ": ");
        if (value && strncmp(line, "model name", strlen("model name")) == 0) {
            value[strcspn(value, "\n")] = '\0';
            snprintf(out, size, "%.100s", value + 2);
            break;
        }
    }
    if (file)
        fclose(file);
}
