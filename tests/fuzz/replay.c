/* SPDX-License-Identifier: MIT
 *
 * A main for fuzz targets without a fuzzer: runs each file given as argument through the target,
 * once. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { INPUT_MAX = 1 << 24 };

static int replay(const char *path, uint8_t *room)
{
    FILE *f = fopen(path, "rb");
    uint8_t *exact;
    size_t n;

    if (!f) {
        perror(path);
        return 1;
    }
    n = fread(room, 1, INPUT_MAX, f);
    fclose(f);
    exact = malloc(n + (n == 0)); /* of the input's size, so that a sanitizer sees reads past its end */
    if (!exact)
        return 1;
    for (size_t i = 0; i < n; i++)
        exact[i] = room[i];
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    uint8_t *room = malloc(INPUT_MAX);
    int failed = !room;

    for (int i = 1; room && i < argc; i++)
        failed |= replay(argv[i], room);
    free(room);
    printf("%d inputs\n", argc - 1);
    return failed;
}
