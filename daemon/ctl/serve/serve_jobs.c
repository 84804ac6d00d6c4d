/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/serve/serve_words.h"
#include "daemon/ctl/terminal/ctl_print.h"

/* Its head is out of reach; another node may have taken it over. */
static bool is_lost(const json_t *job)
{
    return json_is_false(json_object_get(job, "up"));
}

/* What is not served any more, or by another node now, is none of them. */
static bool is_served(const json_t *jobs, const json_t *job)
{
    size_t i;
    const json_t *other;
    const char *name = field_text(job, "serves", NULL);
    if (!name || json_is_integer(json_object_get(job, "ended")))
        return false;
    for (i = 0; is_lost(job) && (other = json_array_get(jobs, i)); i++)
        if (!strcmp(field_text(other, "serves", ""), name) && !is_lost(other) &&
            !json_is_integer(json_object_get(other, "ended")))
            return false;
    return true;
}

int serve_jobs(const struct ctl *ctl, json_t **ret)
{
    json_t *answer, *list = json_array(), *job;
    size_t i;
    int rc = ctl_request(ctl, "GET", "/v1/jobs", NULL, &answer);
    if (rc) {
        json_decref(list);
        return rc;
    }
    const json_t *jobs = json_object_get(answer, "jobs");
    json_array_foreach (jobs, i, job)
        if (is_served(jobs, job))
            json_array_append(list, job);
    json_decref(answer);
    *ret = list;
    return 0;
}

int serve_job_of(const struct ctl *ctl, const char *name, char **ret)
{
    json_t *list, *job;
    size_t i;
    int rc = serve_jobs(ctl, &list);
    if (rc)
        return rc;
    const json_t *found = NULL;
    json_array_foreach (list, i, job)
        if (!strcmp(field_text(job, "serves", ""), name) && !found)
            found = job;
    *ret = found ? xstrdup(field_text(found, "name", "")) : NULL;
    json_decref(list);
    return *ret ? CTL_OK
                : ctl_fail(CTL_FAILED, "no model \"%s\" is served: ringctl serve list shows them", name);
}
