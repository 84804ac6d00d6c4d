/* SPDX-License-Identifier: MIT
 *
 * Who may ask, and who may change something: pure decisions on header values. A page in a browser
 * can send requests to a loopback port, under a name that was made to point here (rebinding) or
 * from a foreign site (forgery); Host and Origin give it away. */
#ifndef DAEMON_HTTP_ACCESS_H
#define DAEMON_HTTP_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

struct access_rules {
    bool is_tcp;       /* false: a Unix socket, guarded by its file mode; everything below is moot */
    bool is_loopback;  /* listens on a loopback address only */
    char host[256];    /* the address listened on, without brackets */
    const char *token; /* borrowed, NULL = none */
    const char *const
        *origins; /* borrowed [norigins]: of foreign pages that may ask, "https://chat.example" */
    size_t norigins;
};

/* 0, 421 (a Host that is not this machine) or 403 (a foreign Origin), with a sentence. host,
 * origin: header values or NULL. */
int access_check(const struct access_rules *rules, const char *host, const char *origin,
                 const char **ret_why);

/* Is it one of the foreign pages' that may ask? */
bool access_is_allowed(const struct access_rules *rules, const char *origin);

struct access_claim {
    const char *authorization; /* header values or NULL */
    const char *api_key;       /* as clients of Anthropic's API say the token */
    const char *content_type;
    bool has_body;
    bool has_session; /* sessions_check: worth as much as the token */
};
bool access_may_write(const struct access_rules *rules, const struct access_claim *claim);
/* Nothing of a node is for everyone, on a loopback port either: other users of the machine reach
 * it too. */
bool access_may_read(const struct access_rules *rules, const struct access_claim *claim);

/* What a client says as its key: of OpenAI's API, else of Anthropic's; NULL: nothing. */
const char *access_given(const struct access_claim *claim);
/* No form of a foreign page can send such a body. */
bool access_has_type(const struct access_claim *claim);

/* Takes the same time wherever the two differ. False for an empty secret. */
bool access_same_secret(const char *given, const char *secret);

#endif
