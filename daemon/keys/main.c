/* SPDX-License-Identifier: MIT
 *
 * ringd-keys: has the secret keys of a node, so that ringd need not. Started by ringd, or by
 * systemd for it; ends when ringd closes the socket. */
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/keys/keeper.h"
#include "daemon/keys/key_file.h"
#include "daemon/keys/keys_cell.h"
#include "net/base/secret.h"

#ifdef __SANITIZE_ADDRESS__
/* AddressSanitizer asks. Nobody can look into this process from outside, so its search for leaks
 * would fail, and the process with it; tests of keeper.c look for them. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}
#endif

static int usage(void)
{
    puts("usage: ringd-keys DIR\n\n"
         "Holds the secret keys of a node, which are kept in DIR. ringd(8) starts it and asks it.");
    return 0;
}

static bool has_socket(void)
{
    int type = 0;
    socklen_t size = sizeof type;
    return !getsockopt(KEYS_FD, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_SEQPACKET;
}

/* One request at a time: who asks waits for the answer, so nothing queues. */
static void serve(struct keeper *k)
{
    ssize_t n;
    while ((n = recv(KEYS_FD, k->request, sizeof k->request, 0)) > 0) {
        const size_t size = keeper_answer(k, (size_t)n);
        if (send(KEYS_FD, k->answer, size, MSG_NOSIGNAL) != (ssize_t)size)
            return;
        sodium_memzero(k->request, (size_t)n);
        sodium_memzero(k->answer, size);
    }
}

int main(int argc, char **argv)
{
    struct err err = {""};
    if (argc != 2 || !strcmp(argv[1], "--help"))
        return usage();
    if (!has_socket()) {
        fprintf(stderr, "ringd-keys: no socket at descriptor %d: ringd starts this program\n", KEYS_FD);
        return 2;
    }
    keys_cell_begin();
    struct keeper *k = secret_new(sizeof *k);
    if (!k)
        return 1;
    int r = key_file_load(k->request, argv[1], &err);
    if (!r)
        r = keeper_init(k, k->request);
    sodium_memzero(k->request, sizeof k->request);
    if (!r)
        r = keys_cell_enter(&err);
    if (r)
        snprintf(k->trouble, sizeof k->trouble, "%s", *err.text ? err.text : "no keys can be made");
    serve(k);
    secret_free(k);
    return 0;
}
