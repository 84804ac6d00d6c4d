/* SPDX-License-Identifier: MIT
 *
 * A record of a node with any fields of any type. What is read is told in a way that means the
 * same. First byte: whether the record begins as one that can be read, and which of its fields are
 * others. */
#include "tests/fuzz/lib/input.h"

#include "daemon/ringd/cluster/members.h"
#include "net/wire.h"

static const char *const keys[] = {
    "id",     "name",    "version", "boot", "seq",  "cores",  "threads", "memory_total", "memory_available",
    "links",  "ring",    "jobs",    "job",  "head", "rank",   "doing",   "seconds",      "class_mbps",
    "shared", "cables",  "port",    "ipv6", "ipv4", "stages", "class",   "bytes",        "weights",
    "units",  "kernels", NULL};
static const char *const texts[] = {"02000000000000000000000000000000",
                                    "03000000000000000000000000000000",
                                    "0200000000000000000000000000000g",
                                    "a,b",
                                    "fd00::1/127",
                                    "10.98.0.1/31",
                                    "",
                                    "train",
                                    "0123456789abcdef",
                                    NULL};
static const struct input_words words = {keys, texts};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct member plain = {.id = {2},
                                        .name = "n",
                                        .version = "1",
                                        .boot = 1,
                                        .seq = 1,
                                        .nlinks = 1,
                                        .ncables = 1,
                                        .nstages = 1,
                                        .stages = {{.job = 1}}};
    struct input in = {data, n};
    struct member m, back;
    json_t *record = input_u8(&in) % 8 ? member_encode(&plain) : json_object();
    json_t *fields = input_object(&in, &words, 1);
    json_object_update(record, fields);
    if (member_decode(&m, record) == 0) {
        expect(m.ncables <= MEMBER_CABLES);
        for (size_t i = 0; i < m.ncables; i++)
            expect(memchr(m.cables[i].port, '\0', sizeof m.cables[i].port) &&
                   (!m.cables[i].six.family || prefix_is_valid(&m.cables[i].six)) &&
                   (!m.cables[i].four.family || prefix_is_valid(&m.cables[i].four)));
        expect(m.nlinks <= RING_MAX_NODES && memchr(m.name, '\0', sizeof m.name) &&
               memchr(m.ring, '\0', sizeof m.ring));
        expect(m.nstages <= MEMBER_STAGES);
        for (size_t i = 0; i < m.nstages; i++) {
            const struct member_stage *s = &m.stages[i];
            expect(s->job && s->rank >= 0 && s->rank < RING_MAX_NODES && s->class < JOB_CLASSES &&
                   memchr(s->doing, '\0', sizeof s->doing) && wire_is_text(s->doing, strlen(s->doing)));
        }
        json_t *again = member_encode(&m);
        expect(again && member_decode(&back, again) == 0);
        expect(back.seq == m.seq && back.nlinks == m.nlinks && back.ncables == m.ncables &&
               !strcmp(back.name, m.name) && !strcmp(back.ring, m.ring) && back.nstages == m.nstages);
        expect(wire_is_text(m.name, strlen(m.name)) && wire_is_text(m.version, strlen(m.version)) &&
               wire_is_text(m.ring, strlen(m.ring)));
        json_decref(again);
    }
    json_decref(fields);
    json_decref(record);
    return 0;
}
