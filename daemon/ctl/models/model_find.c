/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/models/model_find.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/terminal/ctl_print.h"

const json_t *models_find(const json_t *answer, const char *given)
{
    const json_t *list = json_object_get(answer, "models"), *m, *found = NULL;
    const size_t n = strlen(given);
    size_t i, fits = 0;
    json_array_foreach (list, i, m) {
        const char *model = field_text(m, "model", "");
        if (strncmp(model, given, n) != 0 || (!strchr(given, '@') && model[n] != '@'))
            continue;
        found = m;
        fits++;
        if (!strchr(given, '@') && json_is_true(json_object_get(m, "meant"))) {
            fits = 1;
            break;
        }
    }
    if (!fits)
        ctl_fail(CTL_FAILED, "%s is not on this node: ringctl models list shows what is", given);
    else if (fits > 1)
        ctl_fail(CTL_FAILED, "%s is on this node %zu times: name one with its commit, as ORG/NAME@COMMIT",
                 given, fits);
    return fits == 1 ? found : NULL;
}

int model_find_whole(const struct ctl *ctl, const char *given, char ret[MODEL_NAME], char **ret_folder)
{
    json_t *answer = NULL;
    int rc = ctl_request(ctl, "GET", "/v1/store", NULL, &answer);
    const json_t *m = rc ? NULL : models_find(answer, given);
    if (!rc && !m)
        rc = CTL_FAILED;
    if (!rc && !json_is_true(json_object_get(m, "whole")))
        rc = ctl_fail(CTL_FAILED, "%s is not whole on this node: ringctl pull brings the rest", given);
    if (!rc)
        snprintf(ret, MODEL_NAME, "%s", field_text(m, "model", ""));
    if (!rc && ret_folder)
        *ret_folder = xasprintf("%s/%s", field_text(answer, "folder", ""), ret);
    json_decref(answer);
    return rc;
}

int model_find_folder(const struct ctl *ctl, const char *given, char **ret)
{
    char exact[MODEL_NAME], why[512] = "";
    struct ctl quiet = *ctl;
    if (!ctl_model_is_name(given)) {
        *ret = xstrdup(given);
        return CTL_OK;
    }
    quiet.complaint = why;
    quiet.complaint_size = sizeof why;
    const int rc = model_find_whole(&quiet, given, exact, ret);
    if (rc == CTL_NO_DAEMON)
        return ctl_usage(
            ctl, "%s is not here as a path, and no ringd answers that could have a model of that name",
            given);
    return rc && *why ? ctl_fail(rc, "%s", why) : rc;
}
