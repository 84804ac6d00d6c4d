/* SPDX-License-Identifier: MIT
 *
 * A main for fuzz targets without a fuzzer: runs some inputs that are always the same through the
 * target, and each file given as argument, once. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { INPUT_MAX = 1 << 24, DRAWN = 64 };

static int run(const uint8_t *data, size_t n)
{
    uint8_t *exact = malloc(n + (n == 0)); /* so that a sanitizer sees reads past its end */

    if (!exact)
        return 1;
    for (size_t i = 0; i < n; i++)
        exact[i] = data[i];
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

/* Bytes of a fixed sequence (xorshift), longer from one to the next: noise, and noise of printable
 * characters. */
static int draw(uint8_t *room)
{
    uint64_t x = 88172645463325252u;
    int failed = 0;

    for (size_t k = 0; k < DRAWN; k++) {
        const size_t n = k * k * 2;

        for (size_t i = 0; i < n; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            room[i] = (uint8_t)(k % 2 ? x >> 32 : ' ' + (x >> 32) % 95);
        }
        failed |= run(room, n);
    }
    return failed;
}

static int replay(const char *path, uint8_t *room)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f) {
        perror(path);
        return 1;
    }
    n = fread(room, 1, INPUT_MAX, f);
    fclose(f);
    return run(room, n);
}

int main(int argc, char **argv)
{
    uint8_t *room = malloc(INPUT_MAX);
    int failed = !room || draw(room);

    for (int i = 1; room && i < argc; i++)
        failed |= replay(argv[i], room);
    free(room);
    printf("%d inputs\n", DRAWN + argc - 1);
    return failed;
}
