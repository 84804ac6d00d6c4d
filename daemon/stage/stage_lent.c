/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_lent.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "engine/file/lent.h"

static int add_all(const json_t *files, const json_t *folders, const int *fds, size_t *ret_taken)
{
    size_t i;
    json_t *path;
    int r = 0;
    json_array_foreach (folders, i, path)
        r = r || !json_is_string(path) ? -EBADMSG : lent_add_folder(json_string_value(path));
    for (*ret_taken = 0; *ret_taken < json_array_size(files) && !r; *ret_taken += !r) {
        const char *name = json_string_value(json_array_get(files, *ret_taken));
        r = name ? lent_add(name, fds[*ret_taken]) : -EBADMSG;
    }
    return r;
}

int stage_lent_take(int sock, const json_t *message, struct err *err)
{
    const json_t *files = json_object_get(message, "files");
    const size_t n = json_array_size(files);
    int fds[IPC_FDS_MAX];
    size_t taken = 0;
    int r = n && n <= IPC_FDS_MAX ? ipc_receive_fds(sock, fds, n) : -EBADMSG;
    if (!r) {
        r = add_all(files, json_object_get(message, "folders"), fds, &taken);
        for (; taken < n; taken++)
            close(fds[taken]);
    }
    return r ? err_set(err, r, "the files that ringctl opened for this job did not arrive: %s", strerror(-r))
             : 0;
}
