/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/carry_order.h"

#include "daemon/common/model/model_name.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/hub/model_route.h"

int carry_order_read(struct carry_order *ret, const struct members *members, const json_t *body)
{
    const char *content = json_string_value(json_object_get(body, "content")),
               *list = json_string_value(json_object_get(body, "list"));
    size_t i;
    json_t *id;
    *ret = (struct carry_order){.model = json_string_value(json_object_get(body, "model")),
                                .content = content ? content : "",
                                .list = list};
    if (!model_name_is_exact(ret->model) || (*ret->content && !model_content_is(ret->content)) ||
        (list && !model_content_is(list)))
        return -1;
    json_array_foreach (json_object_get(body, "from"), i, id) {
        if (ret->nfrom == ROUTE_SOURCES || id_parse(ret->from[ret->nfrom], json_string_value(id)) ||
            !members_find(members, ret->from[ret->nfrom]))
            return -1;
        ret->nfrom++;
    }
    return 0;
}
