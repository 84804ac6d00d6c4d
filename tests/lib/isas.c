/* SPDX-License-Identifier: MIT
 *
 * What a CPU has is told by what isa.c chooses: whoever has an instruction set has all those before
 * it, but for AVX-VNNI, which is asked of CPUID. */
#include "tests/lib/isas.h"

#if defined __x86_64__
#include <cpuid.h>

static bool has_avxvnni(void)
{
    unsigned a, b, c, d;
    return isa_pick_int() != &int_kernels_base && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           (a & bit_AVXVNNI);
}
#endif

size_t isas_kernels(const struct kernels *all[ISAS_MOST])
{
    size_t n = 0;
    all[n++] = &kernels_base;
#if defined __x86_64__
    if (isa_pick() == &kernels_avx512)
        all[n++] = &kernels_avx2;
#endif
    if (isa_pick() != &kernels_base)
        all[n++] = isa_pick();
    return n;
}

size_t isas_integers(const struct int_kernels *all[ISAS_MOST])
{
    size_t n = 0;
    all[n++] = &int_kernels_base;
#if defined __x86_64__
    if (isa_pick_int() == &int_kernels_vnni || isa_pick_int() == &int_kernels_avxvnni)
        all[n++] = &int_kernels_avx2;
    if (isa_pick_int() == &int_kernels_vnni && has_avxvnni())
        all[n++] = &int_kernels_avxvnni;
#endif
    if (isa_pick_int() != &int_kernels_base)
        all[n++] = isa_pick_int();
    return n;
}

size_t isas_tiles(const struct int_tiles *all[ISAS_MOST])
{
    size_t n = 0;
    all[n++] = &int_tiles_base;
#if defined __x86_64__
    if (isa_pick_int() != &int_kernels_base)
        all[n++] = &int_tiles_avx2;
    if (has_avxvnni())
        all[n++] = &int_tiles_avxvnni;
    if (isa_pick_int() == &int_kernels_vnni)
        all[n++] = &int_tiles_vnni;
#endif
    if (isa_pick_int_tiles() != all[n - 1])
        all[n++] = isa_pick_int_tiles();
    return n;
}

size_t isas_packed(const struct packed_kernels *all[ISAS_MOST])
{
    size_t n = 0;
#if defined __x86_64__
    if (isa_pick_packed() == &packed_kernels_avx512)
        all[n++] = &packed_kernels_avx2;
#endif
    if (isa_pick_packed())
        all[n++] = isa_pick_packed();
    return n;
}

size_t isas_bytes(const struct packed_kernels *all[ISAS_MOST])
{
    size_t n = 0;
    all[n++] = &packed_bytes_base;
#if defined __x86_64__
    if (isa_pick_int() != &int_kernels_base)
        all[n++] = &packed_bytes_avx2;
    if (has_avxvnni())
        all[n++] = &packed_bytes_avxvnni;
    if (isa_pick_int() == &int_kernels_vnni)
        all[n++] = &packed_bytes_vnni;
#endif
    if (isa_pick_packed_bytes() != all[n - 1])
        all[n++] = isa_pick_packed_bytes();
    return n;
}
