/* SPDX-License-Identifier: MIT */
#include "daemon/stage/hold/held_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Of a turn; both heads lie before all values. */
struct turn_head {
    uint64_t magic, job, step;
    struct {
        uint64_t at, bytes;
        uint8_t has[HELD_UNITS_MAX / 8];
    } part[HELD_OF];
    XXH128_canonical_t hash; /* of what stands before it, and of the values */
};
enum { PAGE = 4096, HEADS = HELD_TURNS * PAGE, READ = 1 << 20 };
_Static_assert(sizeof(struct turn_head) <= PAGE, "the head of a turn is a page");
static const uint64_t MAGIC = 0x314b53444b474e52; /* "RNGKDSK1" */

static int write_all(int fd, const void *from, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        const ssize_t some = pwrite(fd, (const uint8_t *)from + done, n - done, (off_t)(at + done));
        if (some < 0 && errno != EINTR)
            return -errno;
        if (!some)
            return -ENOSPC;
        done += some > 0 ? (size_t)some : 0;
    }
    return 0;
}

static bool read_all(int fd, void *to, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        const ssize_t some = pread(fd, (uint8_t *)to + done, n - done, (off_t)(at + done));
        if (!some || (some < 0 && errno != EINTR))
            return false;
        done += some > 0 ? (size_t)some : 0;
    }
    return true;
}

static void hash_head(XXH3_state_t *state, const struct turn_head *head)
{
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, head, offsetof(struct turn_head, hash));
}

int held_file_write(int fd, size_t turn, const struct held_turn *from)
{
    struct turn_head head = {.magic = MAGIC, .job = from->job, .step = from->step};
    uint64_t at = HEADS + turn * (from->part[HELD_OWN]->bytes + from->part[HELD_PREVIOUS]->bytes);
    XXH3_state_t *state = XXH3_createState();
    int r = state ? 0 : -ENOMEM;
    for (size_t i = 0; i < HELD_OF; i++) {
        head.part[i].at = at;
        head.part[i].bytes = from->part[i]->bytes;
        memcpy(head.part[i].has, from->part[i]->has, sizeof head.part[i].has);
        at += from->part[i]->bytes;
    }
    if (!r)
        hash_head(state, &head);
    for (size_t i = 0; i < HELD_OF && !r; i++) {
        XXH3_128bits_update(state, from->values[i], from->part[i]->bytes);
        r = write_all(fd, from->values[i], from->part[i]->bytes, head.part[i].at);
    }
    if (!r && from->is_torn(from->owner))
        r = -ECANCELED;
    if (!r) {
        XXH128_canonicalFromHash(&head.hash, XXH3_128bits_digest(state));
        r = write_all(fd, &head, sizeof head, turn * PAGE);
    }
    if (!r && fdatasync(fd))
        r = -errno;
    XXH3_freeState(state);
    return r;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* By reading: a page of a mapping that the disk cannot give would end the process. */
static bool is_hash_right(int fd, const struct turn_head *head)
{
    XXH3_state_t *state = XXH3_createState();
    uint8_t *buffer = malloc(READ);
    bool ok = state && buffer;
    if (ok)
        hash_head(state, head);
    for (size_t i = 0; i < HELD_OF && ok; i++)
        for (uint64_t done = 0; done < head->part[i].bytes && ok;) {
            const uint64_t left = head->part[i].bytes - done, n = left < READ ? left : READ;
            ok = read_all(fd, buffer, n, head->part[i].at + done);
            if (ok)
                XXH3_128bits_update(state, buffer, n);
            done += n;
        }
    XXH128_canonical_t is = {{0}};
    if (ok)
        XXH128_canonicalFromHash(&is, XXH3_128bits_digest(state));
    ok = ok && !memcmp(&is, &head->hash, sizeof is);
    free(buffer);
    XXH3_freeState(state);
    return ok;
}

static void read_turn(struct held_memory *m, int fd, size_t turn, const struct turn_head *head,
                      const struct held_shape *shape, uint64_t job)
{
    bool is_sound = head->magic == MAGIC && head->job == job && head->step;
    for (size_t i = 0; i < HELD_OF; i++) {
        struct held_part *part = &m->part[i * HELD_TURNS + turn];
        part->at = head->part[i].at;
        part->bytes = head->part[i].bytes;
        memcpy(part->has, head->part[i].has, sizeof part->has);
        is_sound = is_sound && held_part_is_sound(part, shape, m->size);
    }
    is_sound = is_sound && is_hash_right(fd, head);
    for (size_t i = 0; i < HELD_OF; i++)
        m->part[i * HELD_TURNS + turn].step = is_sound ? head->step : 0;
}

bool held_file_open(struct held_memory *ret, int fd, const struct held_shape *shape, uint64_t job)
{
    struct stat st;
    struct turn_head head[HELD_TURNS];
    bool is_one = false;
    *ret = (struct held_memory){0};
    if (fstat(fd, &st) || st.st_size < HEADS)
        return false;
    for (size_t t = 0; t < HELD_TURNS; t++) {
        if (!read_all(fd, &head[t], sizeof head[t], t * PAGE))
            return false;
        is_one = is_one || head[t].magic == MAGIC;
    }
    if (!is_one)
        return false;
    ret->size = (size_t)st.st_size;
    ret->map = mmap(NULL, ret->size, PROT_READ, MAP_SHARED, fd, 0);
    if (ret->map == MAP_FAILED) {
        *ret = (struct held_memory){0};
        return true;
    }
    for (size_t t = 0; t < HELD_TURNS; t++)
        read_turn(ret, fd, t, &head[t], shape, job);
    return true;
}
