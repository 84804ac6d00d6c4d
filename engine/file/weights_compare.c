/* SPDX-License-Identifier: MIT
 *
 * PURE: compares what two nodes tell of their hashes. Called by weights_text.c and by the doctor,
 * also in ringctl. */
#include <errno.h>
#include <string.h>

#include "file/weights_impl.h"

/* The unit that begins here ("" for an unknown one); NULL: this is no such text. `ret_next`: behind
 * it and what follows it. */
static const char *take_unit(const char *at, size_t *ret_n, const char **ret_next)
{
    const size_t n = strcspn(at, ",;");
    if (!at[n] || (n != WEIGHTS_UNIT_DIGITS && !(n == 1 && *at == '-')))
        return NULL;
    *ret_n = n == 1 ? 0 : n;
    *ret_next = at + n + 1;
    return at;
}

static void compare_tensors(struct weights_difference *d, const char *a, const char *b)
{
    const size_t n = strlen(a);
    if (n != strlen(b))
        return;
    for (size_t i = 0; i + WEIGHTS_LETTERS <= n; i += WEIGHTS_LETTERS) {
        if (!memcmp(a + i, b + i, WEIGHTS_LETTERS) || !memcmp(a + i, "AAAA", WEIGHTS_LETTERS) ||
            !memcmp(b + i, "AAAA", WEIGHTS_LETTERS))
            continue;
        d->tensor = d->tensors++ ? d->tensor : i / WEIGHTS_LETTERS;
    }
}

int weights_text_compare(struct weights_difference *ret, const char *mine, const char *theirs)
{
    struct weights_difference d = {.tensor = SIZE_MAX};
    const char *a = mine, *b = theirs;
    for (size_t unit = 0;; unit++) {
        size_t na = 0, nb = 0;
        const char *x = take_unit(a, &na, &a), *y = take_unit(b, &nb, &b);
        if (!x || !y || a[-1] != b[-1])
            return -EBADMSG;
        d.compared += na && nb;
        if (na && nb && memcmp(x, y, na)) {
            d.unit = d.units ? d.unit : unit;
            d.units++;
        }
        d.all = unit + 1;
        if (a[-1] == ';')
            break;
    }
    compare_tensors(&d, a, b);
    *ret = d;
    return 0;
}
