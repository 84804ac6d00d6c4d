/* SPDX-License-Identifier: MIT
 *
 * ringd's options: the table, and the defaults that depend on other options or on the machine.
 * Called by main at start. */
#include "daemon/common/conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/installed.h"
#include "daemon/common/xalloc.h"

static const char default_file[] = "/etc/ringd/ringd.conf";

const struct opt_def conf_table[] = {
    {.name = "config",
     .type = OPT_PATH,
     .placeholder = "PATH",
     .help = "read these options from FILE, as lines key = value (default: etc/ringd/ringd.conf under the "
             "prefix of ringd, else /etc/ringd/ringd.conf)"},
    {.name = "state-dir",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .def = "/var/lib/ringd",
     .help = "keep this node's identity, job history and checkpoints in DIR"},
    {.name = "socket",
     .type = OPT_PATH,
     .placeholder = "PATH",
     .help = "serve ringctl on this Unix socket (default: ringd.sock in --state-dir if that is given, else "
             "/run/ringd/ringd.sock)"},
    {.name = "name",
     .type = OPT_STRING,
     .placeholder = "STR",
     .help = "name of this node (default: the host name); a member of a cluster keeps the name with which it "
             "joined"},
    {.name = "listen",
     .type = OPT_STRING,
     .placeholder = "ADDR:PORT",
     .def = "[::]:17464",
     .help = "accept connections of other nodes at this address and port"},
    {.name = "discover",
     .type = OPT_CHOICE,
     .placeholder = "on|off",
     .def = "on",
     .help = "find the nodes of the cluster on every network port, without configuration"},
    {.name = "link-socket",
     .type = OPT_PATH,
     .placeholder = "PATH",
     .def = "/run/ringd-link/sock",
     .help = "socket of ringd-link, the program that gives each cable its subnet"},
    {.name = "ipv4-pool",
     .type = OPT_STRING,
     .placeholder = "PREFIX",
     .help = "give each cable also an IPv4 /31 from this private network, such as 10.98.0.0/16; all nodes "
             "need the same network"},
    {.name = "ports-allow",
     .type = OPT_LIST,
     .placeholder = "GLOB",
     .help = "use and set up these network interfaces, of any kind; --ports-allow overrides --ports-deny"},
    {.name = "ports-deny",
     .type = OPT_LIST,
     .placeholder = "GLOB",
     .help = "do not use these network interfaces"},
    {.name = "peer", .type = OPT_LIST, .placeholder = "HOST:PORT", .help = "connect to this neighbour"},
    {.name = "ring",
     .type = OPT_STRING,
     .placeholder = "NAME,NAME,...",
     .help =
         "order the nodes in this way, instead of the computed order; one node with this option is enough"},
    {.name = "http-listen",
     .type = OPT_STRING,
     .placeholder = "ADDR:PORT",
     .def = "127.0.0.1:8473",
     .help = "serve the dashboard and the HTTP API on this TCP address; \"none\" turns TCP off. All "
             "requests need the token, or the link of `ringctl dashboard`"},
    {.name = "http-token-file",
     .type = OPT_PATH,
     .placeholder = "PATH",
     .help = "file with the token of the HTTP API, which all requests over TCP need (default: http-token in "
             "--state-dir, made at the first start)"},
    {.name = "allow-origin",
     .type = OPT_LIST,
     .placeholder = "ORIGIN",
     .help = "let pages of this origin, such as https://chat.example.org, ask this node with a client's key"},
    {.name = "history-limit",
     .type = OPT_STRING,
     .placeholder = "SIZE",
     .def = "256M",
     .help =
         "limit the job history on disk to this size, such as 1G or 100M; the oldest jobs are deleted first"},
    {.name = "models-dir",
     .type = OPT_PATH,
     .placeholder = "DIR",
     .help = "keep models that are named as ORG/NAME in DIR (default: models in --state-dir)"},
    {.name = "models-quota",
     .type = OPT_STRING,
     .placeholder = "SIZE",
     .help = "limit --models-dir to this size, such as 500G; for a new model, those that were used longest "
             "ago go first (default: as much as the disk has)"},
    {.name = "threads",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "0",
     .min = 0,
     .max = 1024,
     .help =
         "threads of a stage; 0 is one thread for each core, and hardware threads of one core count once"},
    {.name = "memory-limit",
     .type = OPT_STRING,
     .placeholder = "SIZE",
     .help =
         "limit the memory of a stage to this size, such as 8G or 900M; 0 allows all memory of the machine"},
    {.name = "dead-after",
     .type = OPT_INT,
     .placeholder = "SECONDS",
     .def = "10",
     .min = 1,
     .max = 3600,
     .help = "give up a node that cannot be reached for this time"},
    {.name = "stage-binary",
     .type = OPT_PATH,
     .placeholder = "PATH",
     .help = "start this ringd-stage (default: ringd-stage beside ringd, else ../libexec/ringd/ringd-stage)"},
    {.name = "keys-binary",
     .type = OPT_PATH,
     .placeholder = "PATH",
     .help = "start this ringd-keys (default: ringd-keys beside ringd, else ../libexec/ringd/ringd-keys)"},
    {.name = "fetch-binary",
     .type = OPT_PATH,
     .placeholder = "PATH",
     .help =
         "start this ringd-fetch, which brings models from a hub (default: ringd-fetch beside ringd, else "
         "../libexec/ringd/ringd-fetch)"},
    {.name = "log-level",
     .type = OPT_CHOICE,
     .placeholder = "error|warning|info|debug",
     .def = "info",
     .help = "log messages of this level and above"},
    {.name = NULL},
};

static int read_file(struct opts *o, struct err *err)
{
    const char *path = opts_str(o, "config");
    char *own = path ? NULL : installed_file("etc/ringd/ringd.conf");
    int r = 0;
    if (!path)
        path = own ? own : default_file;
    if (own || path != default_file || access(default_file, F_OK) == 0)
        r = opts_read_ini(o, path, err);
    free(own);
    return r;
}

/* "a,b,c": whether such nodes are there, and are linked so, only the running ring can tell. */
static int check_ring(const struct opts *o, struct err *err)
{
    const char *ring = opts_str(o, "ring");
    size_t n = ring ? strlen(ring) : 0;
    if (!ring)
        return 0;
    if (n >= CONF_RING_BYTES)
        return err_set(err, -EINVAL, "--ring: at most %d bytes", CONF_RING_BYTES - 1);
    if (!n || *ring == ',' || ring[n - 1] == ',' || strstr(ring, ",,") || strpbrk(ring, " \t"))
        return err_set(err, -EINVAL,
                       "--ring \"%s\": names of nodes with a comma between them are needed, as a,b,c", ring);
    return 0;
}

/* "8G", "900M", "65536": checked here so that a slip is found at start and not at the first job. */
uint64_t conf_size(const struct opts *o, const char *name, struct err *err)
{
    const char *text = opts_str(o, name);
    char *end;
    errno = 0;
    unsigned long long v = text ? strtoull(text, &end, 10) : 0;
    if (!text)
        return 0;
    size_t shift = 0;
    if (*end && !end[1] && strchr("KMG", *end))
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
    bool is_number = *text >= '0' && *text <= '9' && !errno && (!*end || shift);
    if (is_number && v <= UINT64_MAX >> shift)
        return v << shift;
    err_set(err, -EINVAL, "--%s \"%s\": a size is needed, as 8G, 900M or a number of bytes", name, text);
    return UINT64_MAX;
}

static int set_default(struct opts *o, const char *name, char *value, struct err *err)
{
    int rc = opts_str(o, name) ? 0 : opts_set(o, name, value, err);
    free(value);
    return rc;
}

char *conf_default_stage(void)
{
    return installed_program("ringd-stage", "libexec/ringd");
}

static int fill_in(struct opts *o, struct err *err)
{
    const char *dir = opts_str(o, "state-dir");
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) || !*host)
        strcpy(host, "ringd");
    char *socket =
        opts_is_set(o, "state-dir") ? xasprintf("%s/ringd.sock", dir) : xstrdup("/run/ringd/ringd.sock");
    int rc = set_default(o, "socket", socket, err);
    rc = rc ? rc : set_default(o, "name", xstrdup(host), err);
    rc = rc ? rc : set_default(o, "models-dir", xasprintf("%s/models", dir), err);
    rc = rc ? rc : set_default(o, "stage-binary", conf_default_stage(), err);
    rc = rc ? rc : set_default(o, "fetch-binary", installed_program("ringd-fetch", "libexec/ringd"), err);
    return rc ? rc : set_default(o, "keys-binary", installed_program("ringd-keys", "libexec/ringd"), err);
}

int conf_load(struct opts **ret, int argc, char **argv, bool *ret_help, struct err *err)
{
    struct opts *o = opts_new(conf_table);
    char **positional = NULL;
    int n = 0;
    bool help = false;
    /* Flags first: they name the file, and what they set stays set. */
    int rc = opts_parse(o, argc, argv, &positional, &n, &help, err);
    if (!rc && n)
        rc = err_set(err, -EINVAL, "\"%s\": ringd takes options only, --help lists them", positional[0]);
    if (!rc && !help)
        rc = read_file(o, err);
    if (!rc && !help)
        rc = conf_size(o, "memory-limit", err) == UINT64_MAX ||
                     conf_size(o, "history-limit", err) == UINT64_MAX ||
                     conf_size(o, "models-quota", err) == UINT64_MAX
                 ? -EINVAL
                 : 0;
    if (!rc && !help)
        rc = check_ring(o, err);
    if (!rc)
        rc = fill_in(o, err);
    free(positional);
    if (rc) {
        opts_free(o);
        return rc;
    }
    *ret = o;
    *ret_help = help;
    return 0;
}
