/* SPDX-License-Identifier: MIT
 *
 * Facts of this machine that need no privilege and no daemon: read from /proc and /sys, under a
 * root that tests choose. Called on the daemon's loop, and by ringctl where no daemon runs. A fact
 * that cannot be read is left out.
 *
 *   kernel              "6.1.0-18-amd64"
 *   firewall            "ufw", "firewalld", "nftables", "iptables": which one's commands to propose
 *   thunderbolt         only with a controller: module (thunderbolt_net is loaded), security,
 *   waiting: [devices not authorised]
 *   cpu                 model, governor, driver
 *   memory              total, available, swap_total, swap_free: bytes
 *   disk                path, total, free: bytes
 *   cell                landlock: the version of its ABI, 0 for none; filters: of system calls
 *   apparmor            only of a service: what doctor_host_apparmor says
 *   fds                 soft, hard and of a port       up, enslaved, link_local, ipv6_disabled,
 *   manager ("networkd", "NetworkManager") */
#ifndef DAEMON_DOCTOR_HOST_H
#define DAEMON_DOCTOR_HOST_H

#include <jansson.h>
#include <stdint.h>

/* root: "" but in tests. The caller owns the object. */
json_t *doctor_host_facts(const char *root, const char *state_dir);
/* How AppArmor confines this process: "enforce", "complain", "unconfined"; "": the kernel does not
 * use it. The caller owns the text. */
json_t *doctor_host_apparmor(const char *root);
/* Of ringd-keys, a process of that number (0: not known), with its keys in STATE/identity: file,
 * its path; mode, of the file, left out if there is none; running; filters: of its system calls,
 * left out where the kernel hides the process. The caller owns the object. */
json_t *doctor_host_keys(const char *root, const char *state_dir, int64_t pid);
/* Adds the facts of the port named `name` to `port`. */
void doctor_host_port(const char *root, const char *name, json_t *port);
/* Packets the port has received; −1 if nothing says. */
double doctor_host_received(const char *root, const char *name);
/* The ports of the machine that have hardware behind them, as GET /v1/ports shows them but for what
 * only a daemon knows. */
json_t *doctor_host_ports(const char *root);

#endif
