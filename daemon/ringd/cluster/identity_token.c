/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/identity_token.h"

#include <errno.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/private_file.h"

enum { TOKEN_BYTES = 32 };

int token_renew(char ret[TOKEN_ROOM], const char *path, struct err *err)
{
    uint8_t bytes[TOKEN_BYTES];
    char line[2 * TOKEN_BYTES + 2];
    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2hex(line, sizeof line, bytes, sizeof bytes);
    strcat(line, "\n");
    int r = private_write(path, (const uint8_t *)line, strlen(line), err);
    line[strcspn(line, "\n")] = '\0';
    if (!r)
        memcpy(ret, line, sizeof line);
    sodium_memzero(bytes, sizeof bytes);
    sodium_memzero(line, sizeof line);
    return r;
}

/* Whoever wrote the file by hand answers for its mode: a service manager's credentials, say, are
 * made by others. */
int token_load(char ret[TOKEN_ROOM], const char *path, bool make, struct err *err)
{
    char line[TOKEN_ROOM] = "";
    FILE *f = fopen(path, "re");
    if (!f && errno == ENOENT && make)
        return token_renew(ret, path, err);
    if (f)
        setvbuf(f, NULL, _IONBF, 0); /* a buffer would keep it */
    bool got = f && fgets(line, sizeof line, f);
    int saved = errno;
    if (f)
        fclose(f);
    line[strcspn(line, "\r\n")] = '\0';
    if (!got || !*line)
        return err_set(err, f ? -EINVAL : -saved, "--http-token-file %s: %s", path,
                       f ? "it holds no token" : strerror(saved));
    memcpy(ret, line, sizeof line);
    sodium_memzero(line, sizeof line);
    return 0;
}

void token_wipe(char token[TOKEN_ROOM])
{
    sodium_memzero(token, TOKEN_ROOM);
}
