/* SPDX-License-Identifier: MIT
 *
 * The page of memory that a stage shares with its daemon, with anything in it: what a daemon says
 * of it is text, and what it counts of connections is of cables that were named. */
#include "tests/fuzz/lib/fuzz.h"

#include <jansson.h>

#include "daemon/common/progress.h"
#include "daemon/ringd/job/lane_counts.h"

static void add(const struct progress *page)
{
    struct lane_counts *counts = lane_counts_new(), *all = lane_counts_new();
    for (uint64_t path = 1; path <= 2; path++)
        lane_counts_name(counts, path, &(struct path_name){"b", "p0", {(char)('0' + path)}});
    lane_counts_add(all, counts, page);
    json_t *shown = lane_counts_encode(all);
    expect(json_array_size(shown) <= 2);
    json_decref(shown);
    lane_counts_keep(counts, page);
    shown = lane_counts_encode(counts);
    char *text = json_dumps(shown, JSON_COMPACT);
    expect(json_array_size(shown) <= 2 && text);
    free(text);
    json_decref(shown);
    lane_counts_free(counts);
    lane_counts_free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct progress page;
    char text[128], words[sizeof page.last_words];
    memset(&page, 0, sizeof page);
    memcpy(&page, data, n < sizeof page ? n : sizeof page);
    progress_describe(&page, text, sizeof text);
    expect(memchr(text, '\0', sizeof text) != NULL);
    progress_last_words(&page, words);
    expect(memchr(words, '\0', sizeof words) != NULL);
    expect(progress_seconds(&page) >= 0);
    add(&page);
    return 0;
}
