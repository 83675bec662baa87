/* The backend plugin "sim": simulated devices (support/simulated_device.h), so that whole programs run on
 * one: `ddl train --backend sim`. They compute with "cpu".
 *
 * Environment, numbers in decimal:
 * - DDL_SIM_DEVICES: how many devices there are; 2 without it.
 * - DDL_SIM_MEMORY: bytes of memory of each.
 * - DDL_SIM_FAIL: the op at which each fails. */
#include "backend/cpu/cpu.h"
#include "backend/plugin.h"
#include "support/simulated_device.h"

#include <stdio.h>
#include <stdlib.h>

static size_t number_from(const char *variable, size_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static size_t count_devices(void)
{
    return number_from("DDL_SIM_DEVICES", 2);
}

static ddl_status open_device(void **ctx, size_t device, size_t threads, char *text, size_t text_size,
                              struct ddl_error *err)
{
    const struct simulated_device_options options = { .memory = number_from("DDL_SIM_MEMORY", 0),
                                                      .fail_at = number_from("DDL_SIM_FAIL", 0) };
    struct ddl_backend real = { .ops = &ddl_ops_cpu };
    if (count_devices() == 0)
        return ddl_error_set(err, DDL_E_UNSUPPORTED, "backend sim: there is no device");
    ddl_status status =
        ddl_ops_cpu.open(&real.ctx, 0, threads, real.description, sizeof real.description, err);
    if (status)
        return status;
    *ctx = simulated_device_create(&real, &options);
    if (!*ctx) {
        ddl_ops_cpu.close(real.ctx);
        return ddl_error_set(err, DDL_E_MEMORY, "backend sim: out of memory");
    }
    snprintf(text, text_size, "sim:%zu, %.120s", device, real.description);
    return DDL_OK;
}

static struct ddl_ops table;

__attribute__((constructor)) static void make_table(void)
{
    table = simulated_device_table(&ddl_ops_cpu);
    table.name = "sim";
    table.devices = count_devices;
    table.open = open_device;
}

extern const struct ddl_backend_plugin ddl_backend_plugin;
DDL_API const struct ddl_backend_plugin ddl_backend_plugin = { DDL_BACKEND_ABI, &table };
