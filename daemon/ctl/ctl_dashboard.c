/* SPDX-License-Identifier: MIT
 *
 * ringctl dashboard: a link that lets one browser in, once. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_print.h"

const struct opt_def ctl_dashboard_options[] = {
    {.name = "no-open", .type = OPT_FLAG, .help = "print the link only; do not open a browser"},
    {.name = NULL},
};

/* Every user of the machine sees the arguments of a program, and the first one who opens the link
 * is let in. So the browser gets the path of a file that only this user reads, and the file leads
 * on. */
static char *write_page(const char *url)
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    char *path = folder && *folder == '/' ? xasprintf("%s/ringd-dashboard.html", folder) : NULL;
    if (!path)
        return NULL;
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && dprintf(fd,
                                 "<!doctype html><meta charset=\"utf-8\"><title>ringd</title>"
                                 "<meta http-equiv=\"refresh\" content=\"0;url=%s\">\n",
                                 url) > 0;
    if (fd >= 0)
        close(fd);
    if (ok)
        return path;
    free(path);
    return NULL;
}

/* False: there is no display, or nothing that opens a page there. The browser goes on by itself. */
static bool open_browser(const char *url)
{
    const char *x = getenv("DISPLAY"), *wayland = getenv("WAYLAND_DISPLAY");
    char *page = (x && *x) || (wayland && *wayland) ? write_page(url) : NULL;
    char *argv[] = {(char *)"xdg-open", page, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    pid_t pid;
    if (!page)
        return false;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
    bool ok = !posix_spawnp(&pid, argv[0], &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    free(page);
    return ok;
}

static void print_link(const struct ctl *ctl, const char *url, int seconds)
{
    const char *at = strstr(url, "://"), *host = at ? at + 3 : url;
    const int n_host = (int)strcspn(host, "/");
    const char *port = host + n_host;
    while (port > host && port[-1] != ':')
        port--;
    puts(url);
    fflush(stdout);
    if (!opts_flag(ctl->opts, "no-open") && open_browser(url))
        fputs("A browser opens with this link. ", stderr);
    fprintf(stderr,
            "The link works once, within %d minutes. For a browser on another machine, first run there: "
            "ssh -L %.*s:%.*s NODE\n",
            seconds / 60, (int)(host + n_host - port), port, n_host, host);
}

int ctl_dashboard_main(struct ctl *ctl)
{
    json_t *answer;
    int status = ctl_no_args(ctl);
    status = status ? status : ctl_request(ctl, "POST", "/v1/tickets", NULL, &answer);
    if (status)
        return status;
    const char *url = json_string_value(json_object_get(answer, "url"));
    if (ctl->json)
        print_json(answer);
    else
        print_link(ctl, url ? url : "", (int)json_integer_value(json_object_get(answer, "seconds")));
    json_decref(answer);
    return CTL_OK;
}
