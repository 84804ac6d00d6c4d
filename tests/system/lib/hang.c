/* SPDX-License-Identifier: MIT
 *
 * A network share that hangs: mounts a file system in DIR that never answers, and says "hangs".
 * Once this process has ended, whoever waits for it gets an error. Status 77 where that is not
 * allowed. usage: hang DIR */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char options[128];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd);
    if (argc != 2 || fd < 0 || mount("hang", argv[1], "fuse", MS_NOSUID | MS_NODEV, options)) {
        perror("hang");
        return 77;
    }
    puts("hangs");
    fflush(stdout);
    for (;;)
        pause();
}
