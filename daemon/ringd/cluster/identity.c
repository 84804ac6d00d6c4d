/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/identity.h"

#include <errno.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/private_file.h"

#define BOOT_AHEAD_US (UINT64_C(50) * 365 * 86400 * 1000000) /* no clock was ever set back by so much */

int identity_boot(uint64_t *ret, const char *state_dir, uint64_t wall_us, struct err *err)
{
    char path[4096];
    uint8_t bytes[8];
    uint64_t last = 0;
    struct err ignored; /* what cannot be read is written anew */
    snprintf(path, sizeof path, "%s/boot", state_dir);
    if (private_read(path, bytes, sizeof bytes, &ignored) == sizeof bytes)
        for (int i = 0; i < 8; i++)
            last |= (uint64_t)bytes[i] << 8 * i;
    /* A number from the far future (a damaged file, a clock gone mad) would count up from there for
     * ever. */
    bool sane = last < wall_us + BOOT_AHEAD_US;
    *ret = sane && last >= wall_us ? last + 1 : wall_us;
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(*ret >> 8 * i);
    return private_write(path, bytes, sizeof bytes, err);
}

void id_hex(char buf[33], const uint8_t id[static 16])
{
    sodium_bin2hex(buf, 33, id, 16);
}

json_t *id_json(const uint8_t id[static 16])
{
    char text[33];
    id_hex(text, id);
    return json_string(text);
}

int id_parse(uint8_t id[static 16], const char *hex)
{
    size_t n;
    if (!hex || strlen(hex) != 32 || sodium_hex2bin(id, 16, hex, 32, NULL, &n, NULL) || n != 16)
        return -EINVAL;
    return 0;
}
