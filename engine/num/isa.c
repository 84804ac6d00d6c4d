/* SPDX-License-Identifier: MIT
 *
 * Which instruction set this CPU and operating system can run: picks the tables of vector kernels.
 * Asks CPUID alone, but for AMX, which the kernel must allow too; keeps nothing; any thread. The
 * build says which tables it has (HAVE_KERNELS_x, HAVE_INTEGERS_x, HAVE_BYTES_x, HAVE_PACKED_x). */
#include "num/integer.h"
#include "num/kernels.h"
#include "num/packed.h"

#if defined __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

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

static bool has_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool has_bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

/* AMX for bytes and for bf16: bits 22, 24 and 25 of edx of CPUID leaf 7. Its tiles are so large
 * that a process asks for the room to keep them (Linux, Documentation/arch/x86/xstate.rst). To ask
 * once more does no harm. A kernel before 5.16, one that saves no tiles, and the filter of a
 * process that may not ask say no. */
static bool has_amx(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    const unsigned all = 1u << 22 | 1u << 24 | 1u << 25;
    unsigned a, b, c, d;
    return has_vnni() && has_bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & all) == all &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
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

const char *isa_rounding(void)
{
    return isa_pick_packed_amx() ? "avx512/amx" : isa_pick()->isa;
}

const struct int_kernels *isa_pick_int(void)
{
#if HAVE_INTEGERS_vnni
    if (has_vnni())
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

const struct int_tiles *isa_pick_int_tiles(void)
{
#if HAVE_BYTES_amx
    if (has_amx())
        return &int_tiles_amx;
#endif
#if HAVE_BYTES_vnni
    if (has_vnni())
        return &int_tiles_vnni;
#endif
#if HAVE_BYTES_avxvnni
    if (has_avxvnni())
        return &int_tiles_avxvnni;
#endif
#if HAVE_BYTES_avx2
    if (has_avx2())
        return &int_tiles_avx2;
#endif
    return &int_tiles_base;
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
    if (has_bf16())
        return &packed_kernels_bf16;
#endif
    return NULL;
}

const struct packed_kernels *isa_pick_packed_amx(void)
{
#if HAVE_BYTES_amx
    if (has_amx())
        return &packed_kernels_amx;
#endif
    return NULL;
}

const struct packed_kernels *isa_pick_packed_bytes(void)
{
#if HAVE_BYTES_amx
    if (has_amx())
        return &packed_bytes_amx;
#endif
#if HAVE_BYTES_vnni
    if (has_vnni())
        return &packed_bytes_vnni;
#endif
#if HAVE_BYTES_avxvnni
    if (has_avxvnni())
        return &packed_bytes_avxvnni;
#endif
#if HAVE_BYTES_avx2
    if (has_avx2())
        return &packed_bytes_avx2;
#endif
    return &packed_bytes_base;
}
