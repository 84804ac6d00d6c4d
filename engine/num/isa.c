/* SPDX-License-Identifier: MIT
 *
 * Which instruction set this CPU and operating system can run: picks the tables of vector kernels.
 * Asks CPUID alone, keeps nothing; any thread. The build says which tables it has (HAVE_KERNELS_x,
 * HAVE_INTEGERS_x, HAVE_PACKED_x). */
#include "num/integer.h"
#include "num/kernels.h"
#include "num/packed.h"

#if defined __x86_64__
#include <cpuid.h>

/* __builtin_cpu_supports counts a vector extension only if the operating system saves its
 * registers. */
static bool has_avx2(void)
{
    unsigned a, b, c, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

/* VNNI in vectors of 32 bytes, as CPUs without AVX-512 have it: CPUID leaf 7, subleaf 1. */
static bool has_avxvnni(void)
{
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVXVNNI);
}
#endif

const struct kernels *isa_pick(void)
{
#if HAVE_KERNELS_avx512
    if (has_avx512())
        return &kernels_avx512;
#endif
#if HAVE_KERNELS_avx2
    if (has_avx2())
        return &kernels_avx2;
#endif
    return &kernels_base;
}

const struct int_kernels *isa_pick_int(void)
{
#if HAVE_INTEGERS_vnni
    if (has_avx512() && __builtin_cpu_supports("avx512vnni"))
        return &int_kernels_vnni;
#endif
#if HAVE_INTEGERS_avxvnni
    if (has_avxvnni())
        return &int_kernels_avxvnni;
#endif
#if HAVE_INTEGERS_avx2
    if (has_avx2())
        return &int_kernels_avx2;
#endif
    return &int_kernels_base;
}

const struct packed_kernels *isa_pick_packed(void)
{
#if HAVE_PACKED_avx512
    if (has_avx512())
        return &packed_kernels_avx512;
#endif
#if HAVE_PACKED_avx2
    if (has_avx2())
        return &packed_kernels_avx2;
#endif
    return NULL;
}

const struct packed_kernels *isa_pick_packed_bf16(void)
{
#if HAVE_PACKED_bf16
    if (has_avx512() && __builtin_cpu_supports("avx512bf16"))
        return &packed_kernels_bf16;
#endif
    return NULL;
}

const struct packed_kernels *isa_pick_packed_bytes(void)
{
#if HAVE_INTEGERS_vnni
    if (has_avx512() && __builtin_cpu_supports("avx512vnni"))
        return &packed_bytes_vnni;
#endif
#if HAVE_INTEGERS_avxvnni
    if (has_avxvnni())
        return &packed_bytes_avxvnni;
#endif
#if HAVE_INTEGERS_avx2
    if (has_avx2())
        return &packed_bytes_avx2;
#endif
    return &packed_bytes_base;
}
