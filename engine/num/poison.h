/* SPDX-License-Identifier: MIT
 *
 * Marks memory that nobody may touch, in builds with AddressSanitizer: between the pieces of a
 * slab, which it sees as one. In all other builds there are no gaps, and nothing is done. */
#ifndef NUM_POISON_H
#define NUM_POISON_H

#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISON_IS_ON 1 /* clang */
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define POISON_IS_ON 1 /* gcc */
#endif

#ifdef POISON_IS_ON
#include <sanitizer/asan_interface.h>
enum { POISON_GAP = 64 }; /* bytes behind a piece: more than a kernel reads at once */
#else
enum { POISON_GAP = 0 };
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

#endif
