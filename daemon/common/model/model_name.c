/* SPDX-License-Identifier: MIT */
#include "daemon/common/model/model_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Of a part: no dot in front, so that it is neither hidden nor the way out of its folder. */
static bool is_part(const char *text, size_t n, size_t most, const char *also)
{
    if (!n || n > most || !is_letter(*text))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_letter(text[i]) && !strchr(also, text[i]))
            return false;
    return true;
}

bool model_name_is(const char *text)
{
    const char *slash = text ? strchr(text, '/') : NULL;
    return slash && slash != text && !strchr("./~", *text) && slash[1] &&
           !memchr(slash + 1, '/', strcspn(slash + 1, "@"));
}

int model_name_read(struct model_name *ret, const char *text, struct err *err)
{
    const size_t org = strcspn(text, "/");
    const char *name = text + org + (text[org] == '/');
    const size_t n = strcspn(name, "@");
    const char *revision = name[n] == '@' ? name + n + 1 : "main";
    if (text[org] != '/' || !is_part(text, org, MODEL_PART, "-_.") || !is_part(name, n, MODEL_PART, "-_.") ||
        !is_part(revision, strlen(revision), MODEL_REVISION, "-_./") || strstr(revision, "..") ||
        strstr(revision, "//"))
        return err_set(err, -EINVAL,
                       "\"%.100s\" is no name of a model: ORG/NAME is needed, or ORG/NAME@REVISION; a folder "
                       "is named by a path that begins with / or ./",
                       text);
    *ret = (struct model_name){.org = ""};
    memcpy(ret->org, text, org);
    memcpy(ret->name, name, n);
    memcpy(ret->revision, revision, strlen(revision));
    return 0;
}

void model_name_write(char ret[MODEL_NAME], const struct model_name *name)
{
    snprintf(ret, MODEL_NAME, "%s/%s@%s", name->org, name->name, name->revision);
}

static bool is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

bool model_commit_is(const char *revision)
{
    return is_hex(revision, MODEL_COMMIT);
}

bool model_content_is(const char *text)
{
    return text && is_hex(text, MODEL_CONTENT);
}

bool model_name_is_exact(const char *text)
{
    struct model_name name;
    return model_name_is(text) && !model_name_read(&name, text, NULL) && strchr(text, '@') &&
           model_commit_is(name.revision);
}
