/* SPDX-License-Identifier: MIT
 *
 * The table of ringctl's commands and its global options: --help, the man page and completion are made from it. */
#include "daemon/ctl.h"

const struct opt_def ctl_global_options[] = {
    {.name = "socket",
     .type = OPT_PATH,
     .placeholder = "PATH",
     .help = "the daemon's socket (default $RINGD_SOCKET, else /run/ringd/ringd.sock)"},
    {.name = "json", .type = OPT_FLAG, .help = "print one JSON object and nothing else"},
    {.name = "color",
     .type = OPT_CHOICE,
     .placeholder = "auto|always|never",
     .def = "auto",
     .help = "colours: auto is on a terminal, and not if $NO_COLOR is set"},
    {.name = "version", .type = OPT_FLAG, .help = "print the version"},
    {.name = NULL},
};

const struct ctl_command ctl_commands[] = {
    {"train", "--model DIR --data FILE --adapter-out DIR [OPTIONS]", "fine-tune a model on the ring",
     ctl_train_main, .options = ctl_train_options, .group = "Work"},
    {"generate", "--model DIR [OPTIONS] (PROMPT | --ids 1,2,3)", "continue a text", ctl_generate_main,
     .options = ctl_generate_options},
    {"chat", "--model DIR [OPTIONS]", "converse with a model, a line at a time", ctl_chat_main,
     .options = ctl_chat_options},
    {"score", "--model DIR [OPTIONS] (--text S | --ids 1,2,3 | --data FILE)",
     "log-probability of each token of a text", ctl_score_main, .options = ctl_score_options},
    {"local", "N [OPTIONS] [--] COMMAND …", "run COMMAND on N nodes started on this machine for it",
     ctl_local_main, .options = ctl_local_options, .has_rest = true},

    {"jobs", "[--all]", "jobs waiting, running and lately ended", ctl_jobs_main, .options = ctl_jobs_options,
     .group = "Jobs"},
    {"job", "ID", "one job in full", ctl_job_main, .names = CTL_NAMES_JOBS},
    {"attach", "ID", "follow a job to its end, from what it has done so far", ctl_attach_main,
     .names = CTL_NAMES_JOBS},
    {"log", "ID", "what a job has said", ctl_log_main, .names = CTL_NAMES_JOBS},
    {"cancel", "ID", "end a job", ctl_cancel_main, .names = CTL_NAMES_JOBS},

    {"status", "", "this node, the ring, what runs and what is wrong", ctl_status_main, .options = NULL,
     .group = "The ring"},
    {"top", "[--interval SECONDS]", "the ring and its jobs, live", ctl_top_main, .options = ctl_top_options},
    {"ring", "", "the order of the nodes, its slowest hop, and what would close it", ctl_ring_main,
     .options = NULL},
    {"nodes", "", "the nodes of the ring and what each is doing", ctl_nodes_main, .options = NULL},
    {"links", "[-v | --hosts]", "the connections of this node", ctl_links_main, .options = ctl_links_options},
    {"ports", "", "this node's ports, and whom it hears on each", ctl_ports_main, .options = NULL},
    {"link", "(adopt | release) PORT [--dry-run]",
     "have networkd or NetworkManager leave a cable's addresses alone, or undo that; as root", ctl_link_main,
     .options = ctl_link_options, .words = "adopt release", .names = CTL_NAMES_PORTS},
    {"doctor", "[--model DIR] [--verbose]", "examine this node and all others, and say what would help",
     ctl_doctor_main, .options = ctl_doctor_options},

    {"init", "[--name NAME]", "make a cluster, with this node as its first member", ctl_init_main,
     .options = ctl_init_options, .group = "The cluster"},
    {"invite", "[--ttl TIME]", "print a token that lets one node into the cluster", ctl_invite_main,
     .options = ctl_invite_options},
    {"join", "TOKEN [--peer HOST:PORT]", "enter the cluster the token was made in", ctl_join_main,
     .options = ctl_join_options},
    {"members", "", "who belongs to the cluster", ctl_members_main, .options = NULL},
    {"remove", "NODE", "throw a node out of the cluster", ctl_remove_main, .names = CTL_NAMES_MEMBERS},
    {"promote", "NODE", "let a node invite and remove others, as this one does", ctl_promote_main,
     .options = NULL, .names = CTL_NAMES_MEMBERS},

    {"reload", "", "have the daemon read its configuration again", ctl_reload_main, .options = NULL,
     .group = "This program and the daemon"},
    {"token", "[--new]", "the token that allows changes over TCP", ctl_token_main,
     .options = ctl_token_options},
    {"completion", "(bash | zsh)", "print what makes a shell complete ringctl's commands and options",
     ctl_completion_main, .words = "bash zsh"},
    {.name = NULL},
};
