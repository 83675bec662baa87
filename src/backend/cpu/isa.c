#define _DEFAULT_SOURCE /* syscall */
#include "backend/cpu/isa.h"

#include <stdlib.h>
#include <string.h>
#ifdef DDL_HAS_ISA_amx
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static bool always(void)
{
    return true;
}

#ifdef DDL_HAS_ISA_avx2
static bool has_avx2(void) /* what x86-64-v3 adds to the code that compilers emit */
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}
#endif

#ifdef DDL_HAS_ISA_avx512
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

#ifdef DDL_HAS_ISA_avx512vnni
static bool has_avx512vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}
#endif

#ifdef DDL_HAS_ISA_avx512bf16
static bool has_avx512bf16(void)
{
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}
#endif

#ifdef DDL_HAS_ISA_amx
/* The processor has tiles, and Linux grants their registers to all threads of the process. Alternate signal
 * stacks have to be larger from then on. */
static bool has_amx(void)
{
    enum { SEVENTH = 7, BF16 = 1 << 22, TILE = 1 << 24, REQUEST_REGISTERS = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d = 0;
    return has_avx512bf16() && __get_cpuid_count(SEVENTH, 0, &a, &b, &c, &d) && d & BF16 && d & TILE &&
           syscall(SYS_arch_prctl, REQUEST_REGISTERS, TILE_DATA) == 0;
}
#endif

/* Worst first. */
static const struct isa {
    const char *name;
    const struct ddl_kernels *kernels;
    bool (*runs_here)(void);
} sets[] = {
    { "baseline", &ddl_kernels_baseline, always },
#ifdef DDL_HAS_ISA_avx2
    { "avx2", &ddl_kernels_avx2, has_avx2 },
#endif
#ifdef DDL_HAS_ISA_avx512
    { "avx512", &ddl_kernels_avx512, has_avx512 },
#endif
#ifdef DDL_HAS_ISA_avx512vnni
    { "avx512vnni", &ddl_kernels_avx512vnni, has_avx512vnni },
#endif
#ifdef DDL_HAS_ISA_avx512bf16
    { "avx512bf16", &ddl_kernels_avx512bf16, has_avx512bf16 },
#endif
#ifdef DDL_HAS_ISA_amx
    { "amx", &ddl_kernels_amx, has_amx },
#endif
};
enum { N_SETS = sizeof sets / sizeof *sets };

const struct ddl_kernels *isa_best(void)
{
    size_t i = N_SETS - 1;
    while (!sets[i].runs_here())
        i--;
    return sets[i].kernels;
}

ddl_status isa_choose(const struct ddl_kernels **kernels, const char **name, struct ddl_error *err)
{
    const char *wanted = getenv("DDL_ISA");
    for (size_t i = N_SETS; i-- > 0;) {
        bool named = wanted && *wanted;
        if (named && strcmp(wanted, sets[i].name) != 0)
            continue;
        if (sets[i].runs_here()) {
            *kernels = sets[i].kernels;
            *name = sets[i].name;
            return DDL_OK;
        }
        if (named)
            return ddl_error_set(err, DDL_E_UNSUPPORTED,
                                 "DDL_ISA: this machine lacks the instruction set '%s'", wanted);
    }
    return ddl_error_set(
        err, DDL_E_USAGE,
        "DDL_ISA: '%s' is not an instruction set of this build (baseline, avx2, avx512, avx512vnni, "
        "avx512bf16 or amx on x86-64; baseline elsewhere)",
        wanted);
}
