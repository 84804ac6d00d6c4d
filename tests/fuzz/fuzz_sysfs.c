/* SPDX-License-Identifier: MIT
 *
 * What files under /sys say of a port, some of it in the words of whoever is plugged in: any bytes
 * in each. Input: u8 which kind of port ‖ (u8 length ‖ text of a file)*. */
#include "tests/fuzz/lib/input.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static int open_file(const char *path, int flags);
static ssize_t read_file(int fd, void *to, size_t n);
static int close_file(int fd);
static ssize_t read_target(const char *path, char *to, size_t n);
static char *resolve(const char *path, char *to);
static int no_access(const char *path, int mode);
#define open(path, flags) open_file(path, flags)
#define read(fd, to, n) read_file(fd, to, n)
#define close(fd) close_file(fd)
#define readlink(path, to, n) read_target(path, to, n)
#define realpath(path, to) resolve(path, to)
#define access(path, mode) no_access(path, mode)
#include "net/port_sysfs.c" /* its files are the input */
#undef open
#undef read
#undef close
#undef readlink
#undef realpath
#undef access

enum { IFINDEX = 7 };

static struct {
    struct input in;
    bool is_index, is_thunderbolt;
} sys; /* system calls have no argument to hand it on by */

static int open_file(const char *path, int flags)
{
    (void)flags;
    sys.is_index = strstr(path, "/ifindex") != NULL;
    return sys.in.left || sys.is_index ? 0 : -1;
}

static ssize_t read_file(int fd, void *to, size_t n)
{
    const size_t length = sys.is_index ? 0 : input_u8(&sys.in);
    (void)fd;
    if (!sys.is_index)
        return (ssize_t)input_bytes(&sys.in, to, length < n ? length : n);
    memcpy(to, "7\n", 2); /* else nothing is read of it */
    return 2;
}

static int close_file(int fd)
{
    return fd;
}

static ssize_t read_target(const char *path, char *to, size_t n)
{
    (void)path;
    if (sys.is_thunderbolt)
        return (ssize_t)(n < 15 ? 0 : strlen(strcpy(to, "../thunderbolt")));
    const size_t length = input_u8(&sys.in);
    return (ssize_t)input_bytes(&sys.in, to, length < n ? length : n);
}

static char *resolve(const char *path, char *to)
{
    (void)path;
    return strcpy(to, "/sys/devices/pci0/domain0/0-0/0-1");
}

static int no_access(const char *path, int mode)
{
    (void)path, (void)mode;
    return -1;
}

static void is_text(const char *text, size_t size)
{
    const size_t n = strnlen(text, size);
    expect(n < size);
    for (size_t i = 0; i < n; i++)
        expect(text[i] >= ' ' && text[i] <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct port port = {.ifindex = IFINDEX, .name = "p0", .carrier = true};
    sys.in = (struct input){data, n};
    const uint8_t kind = input_u8(&sys.in);
    sys.is_thunderbolt = kind & 1;
    port_sysfs_read(&port, "/sys", kind & 2);
    expect(port.kind >= PORT_TB && port.kind <= PORT_OTHER && memchr(port.driver, '\0', sizeof port.driver));
    is_text(port.tb.peer_name, sizeof port.tb.peer_name);
    is_text(port.tb.peer_id, sizeof port.tb.peer_id);
    is_text(port.tb.security, sizeof port.tb.security);
    return 0;
}
