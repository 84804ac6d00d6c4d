/* SPDX-License-Identifier: MIT
 *
 * ringd serves HTTP without TLS, on loopback and on sockets (docs/API.md). Debian's libmicrohttpd
 * brings GnuTLS, and both initialize it as they are loaded, which keeps a megabyte of its tables
 * in the memory of a daemon that waits. The first definition is GnuTLS's own way to leave that
 * out, the others come before the library's. Called by the two libraries before main; the Makefile
 * exports the names. */
int _gnutls_global_init_skip(void);
int gnutls_global_init(void);
void gnutls_global_deinit(void);

int _gnutls_global_init_skip(void)
{
    return 1;
}

int gnutls_global_init(void)
{
    return 0;
}

void gnutls_global_deinit(void)
{
}
