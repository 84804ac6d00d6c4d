/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/message_table.h"
#include "daemon/common/job_spec.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "net/auth.h"
#include "net/cert.h"
#include "net/ring.h"
#include "net/roster.h"
#include "net/token.h"

enum {
    SENTENCE = 1024,
    NAME = CERT_NAME - 1,
    HEX_ID = 32, /* of 16 bytes */
    GRANT = 2 * (CERT_BYTES + CERT_CLUSTER_KEY + ROSTER_BYTES_MAX),
    PART = 1 << 20, /* in base64: 192 KiB of an answer, or the events there are */
    REQUEST = 512 << 10,
};

#define TEXT(key, most, ...)                                                                                 \
    {                                                                                                        \
        key, FIELD_TEXT, .max = (most), __VA_ARGS__                                                          \
    }
#define WHOLE(key, most, ...)                                                                                \
    {                                                                                                        \
        key, FIELD_WHOLE, .max = (most), __VA_ARGS__                                                         \
    }
#define FLAG(key, ...)                                                                                       \
    {                                                                                                        \
        key, FIELD_FLAG, __VA_ARGS__                                                                         \
    }
#define LIST(key, ...)                                                                                       \
    {                                                                                                        \
        key, FIELD_LIST, __VA_ARGS__                                                                         \
    }
#define OBJECT(key, ...)                                                                                     \
    {                                                                                                        \
        key, FIELD_OBJECT, __VA_ARGS__                                                                       \
    }
#define NEEDED .missing = ""
#define COMMON .missing = "", .doc = NULL

#define JOB_ID WHOLE("job", FIELD_ANY, COMMON)
#define ATTEMPT WHOLE("attempt", UINT32_MAX, .doc = NULL)
#define JOB JOB_ID, ATTEMPT
#define RANK WHOLE("rank", RING_MAX_NODES - 1, COMMON)
#define ROUND WHOLE("round", FIELD_ANY, COMMON)
#define TOKEN TEXT("token", HEX_ID, COMMON)
#define ORIGIN OBJECT("origin", COMMON)

static const struct field common_fields[] = {
    WHOLE("job", FIELD_ANY, NEEDED, .doc = "the head's number of the job"),
    WHOLE("attempt", UINT32_MAX,
          .doc =
              "how often the job was begun before, and 256 for each time that its head was started again; of "
              "another attempt nothing is heard"),
    WHOLE("rank", RING_MAX_NODES - 1, NEEDED,
          .doc = "the receiver's in messages of the head, else the sender's"),
    WHOLE("round", FIELD_ANY, NEEDED,
          .doc = "the asker's number of the question, which comes back as it was"),
    OBJECT("origin", NEEDED, .doc = "where a job was submitted: `node` in hex, `job`, its number there"),
    TEXT("token", HEX_ID, NEEDED, .doc = "random bytes in hex: 16 of a relay, 4 of a token to join"),
    {.name = NULL},
};

static const struct message_row rows[MESSAGE_KINDS] = {
    /* --- getting into the cluster --- */
    [MESSAGE_TOKENS] =
        {"tokens",
         MESSAGE_FROM_AUTHORITY,
         "to all members: the tokens that the authority made, instead of those of its last message",
         {LIST("tokens", NEEDED,
               .doc = "of objects: `id`, `psk`, `question`, `answer`, `claim` in hex, `ttl` in seconds")}},
    [MESSAGE_JOIN_ASK] = {"join-ask",
                          MESSAGE_FROM_MEMBER,
                          "a node with this token wants to join: may it?",
                          {WHOLE("number", FIELD_ANY, NEEDED, .doc = "the asker's, which comes back"), TOKEN,
                           TEXT("pub", 2 * AUTH_KEY, NEEDED, .doc = "the joiner's public key in hex"),
                           TEXT("name", NAME, NEEDED, .doc = "the name it wants"),
                           TEXT("hash", 2 * AUTH_HASH, NEEDED, .doc = "of its handshake, in hex"),
                           TEXT("proof", 2 * AUTH_SIGNATURE, NEEDED,
                                .doc = "its signature of token, key, hash and name, in hex")}},
    [MESSAGE_JOIN_ANSWER] = {"join-answer",
                             MESSAGE_FROM_AUTHORITY,
                             "one of both: what the joiner gets, or why it does not",
                             {WHOLE("number", FIELD_ANY, NEEDED, .doc = "the asker's"),
                              TEXT("grant", GRANT, .doc = "the body of frame 40 in hex"),
                              TEXT("error", SENTENCE, .doc = "a sentence")}},

    /* --- the doctor --- */
    [MESSAGE_DOCTOR_ASK] = {"doctor-ask",
                            MESSAGE_FROM_ANYONE,
                            "how are you?",
                            {ROUND, TEXT("model", PATH_MAX, .doc = "the path of a model to look at"),
                             FLAG("deep", .doc = "read all of the model first")}},
    [MESSAGE_DOCTOR_READING] = {"doctor-reading",
                                MESSAGE_FROM_ANYONE,
                                "about once a second while the model is read",
                                {ROUND, WHOLE("done", FIELD_ANY, NEEDED, .doc = "bytes"),
                                 WHOLE("total", FIELD_ANY, NEEDED, .doc = "bytes")}},
    [MESSAGE_DOCTOR_FACTS] = {"doctor-facts",
                              MESSAGE_FROM_ANYONE,
                              "what the node knows of itself, at most 1.3 s later, or when all is read",
                              {ROUND, WHOLE("asked_us", FIELD_ANY, NEEDED, .doc = "when the question came"),
                               WHOLE("answered_us", FIELD_ANY, NEEDED, .doc = "when the answer left"),
                               OBJECT("facts", NEEDED, .doc = "see below")}},

    /* --- jobs of other heads --- */
    [MESSAGE_JOBS_ASK] = {"jobs-ask",
                          MESSAGE_FROM_ANYONE,
                          "which rows have changed since that count of that boot?",
                          {WHOLE("boot", FIELD_ANY, NEEDED, .doc = "of the rows that the asker has"),
                           WHOLE("since", FIELD_ANY, NEEDED, .doc = "their count; 0: it has none")}},
    [MESSAGE_JOBS_TOLD] = {"jobs-told",
                           MESSAGE_FROM_ANYONE,
                           "the rows that changed after `since`; with `since` 0 all, and the receiver "
                           "forgets rows that are not among them",
                           {WHOLE("boot", FIELD_ANY, NEEDED, .doc = "the head's"),
                            WHOLE("version", FIELD_ANY, NEEDED, .doc = "its count now"),
                            WHOLE("since", FIELD_ANY, NEEDED, .doc = "as asked, or 0"),
                            LIST("jobs", NEEDED, .doc = "of rows, 64 at most")}},
    [MESSAGE_API_ASK] = {"api-ask",
                         MESSAGE_FROM_ANYONE,
                         "a request of the HTTP API",
                         {ROUND, TEXT("method", 8, NEEDED, .doc = "of HTTP"),
                          TEXT("path", 256, NEEDED,
                               .doc = "`/v1/jobs/`, a number of the head, and more; or `/v1/history`"),
                          OBJECT("query", .doc = "of at most 8 texts"),
                          TEXT("body", REQUEST, .doc = "of HTTP")}},
    [MESSAGE_API_TOLD] =
        {"api-told",
         MESSAGE_FROM_ANYONE,
         "a part of the answer; or, with `flow`, of a stream, and without `type` the word that it is worked "
         "on; or else the events there are, and the next `api-ask` says `after` `next`",
         {ROUND,
          TEXT("part", PART, NEEDED,
               .doc = "in base64: 192 KiB of an answer or stream at most, or events as the HTTP stream has "
                      "them"),
          WHOLE("status", 599, .min = 200, .def = 200, .doc = "of HTTP"),
          TEXT("type", 63, .doc = "of the content"),
          WHOLE("size", 16 << 20, .doc = "bytes of the whole answer"),
          WHOLE("at", 16 << 20, .doc = "where the part begins"),
          WHOLE("next", FIELD_ANY, .doc = "the last event's number"),
          FLAG("flow", .doc = "`api-more` asks for what follows"), FLAG("last", .doc = "nothing follows")}},
    [MESSAGE_API_MORE] = {"api-more",
                          MESSAGE_FROM_ANYONE,
                          "the next part is wanted",
                          {ROUND, WHOLE("at", 16 << 20, NEEDED, .doc = "where it begins"),
                           FLAG("stop", .doc = "nobody wants the answer any more")}},

    /* --- a job --- */
    [MESSAGE_JOB_PLANNED] =
        {"job-planned",
         MESSAGE_FROM_RANK,
         "rank 0's stage has read model and data",
         {JOB, RANK, OBJECT("plan", NEEDED, .doc = "see below"),
          WHOLE("steps", FIELD_ANY, NEEDED, .doc = "of the whole job"),
          FLAG("mirrored", .doc = "its ranks follow the ring the other way round"),
          WHOLE("chosen", UINT32_MAX,
                .doc = "the nodes that take part, bit *i* the *i*-th from the head on, 0 all"),
          OBJECT("forecast", .doc = "of a training job: how long a step takes, for people"),
          OBJECT("speed", .doc = "of other jobs: how long they take, for people"),
          OBJECT("pace", .doc = "of a training job whose layers may move: `units`, the cost of each, and "
                                "`speeds` of the ranks"),
          LIST("shared", .doc = "by rank: what its node has mapped already, for people"),
          OBJECT("travel", .doc = "what has to come to its nodes first, for people")}},
    [MESSAGE_JOB_OPEN] = {"job-open",
                          MESSAGE_FROM_ANYONE,
                          "take the lease, start a stage, open these layers; the sender is the head",
                          {JOB, RANK, OBJECT("plan", NEEDED, .doc = "see below"),
                           LIST("nodes", NEEDED, .doc = "ids in hex, by rank"),
                           OBJECT("origin", .doc = "where it was submitted, if not at the head"),
                           OBJECT("taken", .doc = "from whom the head took it over: `from`, `attempt`"),
                           WHOLE("said", FIELD_ANY,
                                 .doc = "the last step that the head knows to be said; see §7.4"),
                           LIST("holders", .doc = "ids in hex: of nodes that have the weights of a model "
                                                  "with a name"),
                           FLAG("parts", .doc = "none of these has all of them")}},
    [MESSAGE_JOB_READY] =
        {"job-ready",
         MESSAGE_FROM_RANK,
         "its layers are open",
         {JOB, RANK,
          LIST("layers", NEEDED,
               .doc = "of pairs: of each stage of the rank its first layer and the one after the last"),
          TEXT("isa", 31, .doc = "the instruction set it computes with"),
          WHOLE("threads", 65535, .doc = "that it computes with"),
          LIST("held", .doc = "copies of what the job trained before: of each `step` and `units`, see below"),
          OBJECT("lines", .doc = "what rank 0 said in an attempt before: `before` and `lines`, see §7.4")}},
    [MESSAGE_JOB_CONNECT] = {"job-connect", MESSAGE_FROM_HEAD, "dial the next rank", {JOB}},
    [MESSAGE_JOB_CONNECTED] = {"job-connected",
                               MESSAGE_FROM_RANK,
                               "its stage has all its data connections",
                               {JOB, RANK}},
    [MESSAGE_JOB_RUN] = {"job-run",
                         MESSAGE_FROM_HEAD,
                         "go",
                         {JOB, OBJECT("restore", .doc = "to rank 0: the copies to go on from, see below"),
                          OBJECT("said", .doc = "to rank 0: what was said in attempts before")}},
    [MESSAGE_JOB_TURN] =
        {"job-turn",
         MESSAGE_FROM_HEAD,
         "to rank 0, after the event `answer` of a conversation that is kept loaded: the next message; after "
         "the event `commit` of a training job: it is done",
         {JOB, OBJECT("turn", .doc = "`messages` and `seed`, or `committed`, the number; none for the end")}},
    [MESSAGE_JOB_LEAVE] = {"job-leave",
                           MESSAGE_FROM_HEAD,
                           "to rank 0 of a job that trains: stop after the next step, it goes on later",
                           {JOB, FLAG("save", .doc = "put what is trained on the disk first")}},
    [MESSAGE_JOB_KEPT] = {"job-kept",
                          MESSAGE_FROM_HEAD,
                          "to rank 0 of a job that trains, after the event `kept` of all ranks",
                          {JOB, WHOLE("step", FIELD_ANY, NEEDED, .doc = "that they have answered for"),
                           FLAG("whole", NEEDED, .doc = "it is on the disks of all")}},
    [MESSAGE_JOB_LEFT] = {"job-left",
                          MESSAGE_FROM_RANK,
                          "its stage has stopped after a step, as the head asked",
                          {JOB, RANK}},
    [MESSAGE_JOB_EVENT] = {"job-event",
                           MESSAGE_FROM_RANK,
                           "something happened, see below",
                           {JOB, RANK, OBJECT("event", NEEDED, .doc = "`ev` names it")}},
    [MESSAGE_JOB_RELAYED] = {"job-relayed",
                             MESSAGE_FROM_RANK,
                             "a data connection goes through other nodes, or is direct again",
                             {JOB, RANK,
                              WHOLE("to", RING_MAX_NODES - 1, NEEDED, .doc = "the rank at its other end"),
                              TEXT("through", SENTENCE, NEEDED, .doc = "their names; empty: direct")}},
    [MESSAGE_JOB_DONE] = {"job-done",
                          MESSAGE_FROM_RANK,
                          "the stage is through",
                          {JOB, RANK, OBJECT("result", .doc = "rank 0's is the job's")}},
    [MESSAGE_JOB_FAILED] =
        {"job-failed",
         MESSAGE_FROM_RANK,
         "the stage has failed, or the node takes no part",
         {JOB, RANK, TEXT("cause", SENTENCE, NEEDED, .doc = "a sentence"),
          FLAG("busy", .doc = "the node works on another job"),
          FLAG("lost", .doc = "the process or its connections; nothing is wrong with the job"),
          FLAG("starved", .doc = "the kernel ended the process for want of memory"),
          FLAG("kept", .doc = "it worked on an attempt before; another may do better"),
          WHOLE("lacks", FIELD_ANY, .doc = "of a plan: bytes of memory that are missing, at the node"),
          TEXT("at", HEX_ID, .doc = "with this id, in hex")}},
    [MESSAGE_JOB_STOP] =
        {"job-stop",
         MESSAGE_FROM_HEAD,
         "end the stage",
         {JOB, RANK, TEXT("cause", SENTENCE, .doc = "a sentence for the node's log"),
          FLAG("keep", .doc = "the job goes on later: its stage may rest, copies of what it trained stay")}},
    [MESSAGE_JOB_STOPPED] = {"job-stopped",
                             MESSAGE_FROM_RANK,
                             "the stage process is gone or rests, the lease free",
                             {JOB, RANK}},
    [MESSAGE_JOB_WANTED] = {"job-wanted",
                            MESSAGE_FROM_ANYONE,
                            "another head's first job waits for busy nodes: who heads a conversation that is "
                            "only kept loaded ends it, at once or after the answer under way",
                            {{.name = NULL}}},
    [MESSAGE_DRAIN] = {"drain",
                       MESSAGE_FROM_ANYONE,
                       "take no part in jobs from now on, or take part again",
                       {TEXT("reason", 95, NEEDED, .doc = "why; empty: take part again")}},
    [MESSAGE_CLIENT_KEYS] =
        {"client-keys",
         MESSAGE_FROM_MEMBER,
         "to all members: the keys of clients that this node knows of; the newer of a "
         "name counts",
         {LIST("keys", NEEDED,
               .doc = "of objects: `name`, `changed` (ms since 1970), and `hash` (SHA-256 of "
                      "the key, in hex) with `rate` (requests a minute), or `gone`")}},
    /* --- a job that may change hands --- */
    [MESSAGE_DOSSIER_NEWS] =
        {"dossier-news",
         MESSAGE_FROM_ANYONE,
         "a head to rank 1 of its job: keep this, to go on with the job if I am lost for good; what is "
         "missing is as it was",
         {JOB_ID, WHOLE("number", FIELD_ANY, NEEDED, .doc = "of the message, from 1"),
          FLAG("fresh", .doc = "the first: what was kept of the job goes"),
          OBJECT("record", .doc = "of the job, as the API has it"),
          OBJECT("life", .doc = "what its head keeps beside the record"),
          LIST("lines", .doc = "more of its history: of `[kind, line]`"),
          LIST("inputs", .doc = "the files that it reads, to be fetched: of `path`, `bytes`, `changed`"),
          OBJECT("best",
                 .doc = "of --early-stop, the best so far as of the save of `step`: `files` as above, "
                        "to be fetched by `number`, in place of a job's; other files get another number")}},
    [MESSAGE_DOSSIER_NOTED] = {"dossier-noted",
                               MESSAGE_FROM_ANYONE,
                               "it is kept, and the next may come; or why it is not kept",
                               {JOB_ID, WHOLE("number", FIELD_ANY, NEEDED, .doc = "of the message"),
                                TEXT("error", SENTENCE, .doc = "a sentence")}},
    [MESSAGE_DOSSIER_RECALL] =
        {"dossier-recall",
         MESSAGE_FROM_ANYONE,
         "a head to who may keep a dossier of its job: let go of it, unless you have taken the job over",
         {JOB_ID}},
    [MESSAGE_DOSSIER_HELD] = {"dossier-held",
                              MESSAGE_FROM_ANYONE,
                              "the answer, if the job was not taken over; or, with `kept`, a word to a head "
                              "that comes back: do you still want that?",
                              {JOB_ID, FLAG("kept", .doc = "this node keeps a dossier of the job")}},
    [MESSAGE_HEAD_ASK] = {"head-ask",
                          MESSAGE_FROM_ANYONE,
                          "to who headed the job, as far as the asker knows: have you handed it on?",
                          {ORIGIN}},
    [MESSAGE_HEAD_ANSWER] = {"head-answer",
                             MESSAGE_FROM_ANYONE,
                             "the answer, if it has: who heads it now",
                             {ORIGIN, TEXT("head", HEX_ID, NEEDED, .doc = "that node, in hex")}},
    [MESSAGE_CLAIM_ASK] =
        {"claim-ask",
         MESSAGE_FROM_ANYONE,
         "to the other nodes of a job: its head is lost; may I take it over?",
         {ROUND, ORIGIN,
          OBJECT("wanted", NEEDED,
                 .doc = "`from`, the head in hex, and `attempt`, the latest that the asker knows of")}},
    [MESSAGE_CLAIM_ANSWER] = {"claim-answer",
                              MESSAGE_FROM_ANYONE,
                              "it is promised, or not",
                              {ROUND, ORIGIN,
                               TEXT("why", SENTENCE, NEEDED,
                                    .doc = "why not: the rest of a sentence; empty: it is promised")}},
    [MESSAGE_CLAIM_RELEASE] = {"claim-release",
                               MESSAGE_FROM_ANYONE,
                               "the asker does not take the job over: the promise is void",
                               {ORIGIN}},
    [MESSAGE_JOB_ADOPTED] =
        {"job-adopted",
         MESSAGE_FROM_ANYONE,
         "to the old head: this node has taken its job over; said again when the job ends, and to a head "
         "that comes back",
         {JOB_ID, WHOLE("as", FIELD_ANY, NEEDED, .doc = "the job's number here"),
          TEXT("state", 31, NEEDED, .doc = "of the job here"),
          TEXT("error", SENTENCE, .doc = "of the record"), OBJECT("result", .doc = "of the record"),
          LIST("files", .doc = "of the result, to be fetched: of `path`, `bytes`, `changed`"),
          TEXT("unsent", SENTENCE, .doc = "why they cannot be fetched")}},
    [MESSAGE_JOB_LANDED] = {"job-landed",
                            MESSAGE_FROM_ANYONE,
                            "the old head has the result, or wants none",
                            {JOB_ID, WHOLE("as", FIELD_ANY, NEEDED, .doc = "as above"),
                             FLAG("over", .doc = "the job had ended before it was taken over: drop it")}},
    [MESSAGE_ADAPTER_OFFERED] =
        {"adapter-offered",
         MESSAGE_FROM_ANYONE,
         "to the head of a deployment: an adapter that was trained for it, to be fetched",
         {WHOLE("job", FIELD_ANY, NEEDED, .doc = "of the deployment there"),
          WHOLE("number", FIELD_ANY, NEEDED,
                .doc = "of the offer, in place of a job's where parts are asked for"),
          TEXT("name", JOB_ADAPTER_NAME, NEEDED, .doc = "of the adapter there"),
          LIST("files", .doc = "two: of `path`, `bytes`, `changed`")}},
    [MESSAGE_ADAPTER_ANSWER] = {"adapter-answer",
                                MESSAGE_FROM_ANYONE,
                                "the deployment is planned again with it, or why not",
                                {WHOLE("number", FIELD_ANY, NEEDED, .doc = "of the offer"),
                                 TEXT("why", SENTENCE, .doc = "a sentence")}},
    [MESSAGE_PART_ASK] = {"part-ask",
                          MESSAGE_FROM_ANYONE,
                          "a part of a file that was listed for this node is wanted",
                          {ROUND, JOB_ID, WHOLE("file", UINT16_MAX, NEEDED, .doc = "its place in the list"),
                           WHOLE("at", FIELD_ANY, NEEDED, .doc = "where the part begins, bytes")}},
    [MESSAGE_PART_TOLD] =
        {"part-told",
         MESSAGE_FROM_ANYONE,
         "the part, 192 KiB at most, less only at the end of the file; or why there is none",
         {ROUND, TEXT("part", PART, NEEDED, .doc = "in base64"),
          TEXT("error", SENTENCE, .doc = "a sentence")}},
    [MESSAGE_LANE_TURN] = {"lane-turn",
                           MESSAGE_FROM_ANYONE,
                           "the other end of a cable is to dial the data connections over it",
                           {TEXT("cable", 16, NEEDED, .doc = "its number in hex")}},

    /* --- models by their names --- */
    [MESSAGE_MODEL_WANT] =
        {"model-want",
         MESSAGE_FROM_MEMBER,
         "a job needs the outline of this model there",
         {TEXT("model", MODEL_NAME - 1, NEEDED, .doc = "ORG/NAME@COMMIT"),
          TEXT("how", 8, NEEDED,
               .doc = "if it is missing: `pull` the model from the hub, `take` the outline "
                      "from the nodes of `from`, or `ask`: only say so"),
          TEXT("content", MODEL_CONTENT, .doc = "which files it is, §7.5"),
          TEXT("list", MODEL_CONTENT, .doc = "the hash of its list of blocks, if those nodes know it"),
          LIST("from", .doc = "ids of two of its neighbours at most, in hex")}},
    [MESSAGE_MODEL_TOLD] =
        {"model-progress",
         MESSAGE_FROM_MEMBER,
         "to who wants it: how much of the outline is there; again while that changes",
         {TEXT("model", MODEL_NAME - 1, NEEDED, .doc = "as it was asked for"),
          FLAG("ready", NEEDED, .doc = "its outline is there"), FLAG("whole", NEEDED, .doc = "all of it is"),
          WHOLE("done", FIELD_ANY, NEEDED, .doc = "bytes that are there of what is coming"),
          WHOLE("total", FIELD_ANY, NEEDED, .doc = "of so many; 0: not known yet"),
          WHOLE("rate", FIELD_ANY, NEEDED, .doc = "bytes a second"),
          TEXT("why", SENTENCE, .doc = "it cannot be had: a sentence"),
          TEXT("content", MODEL_CONTENT, .doc = "which files it is, once it is there"),
          TEXT("list", MODEL_CONTENT, .doc = "the hash of its list of blocks, once each is known")}},
    [MESSAGE_MODEL_PUSH] =
        {"model-push",
         MESSAGE_FROM_MEMBER,
         "a user of the sender copies this model there: all of it is to be taken, and not from the hub",
         {ROUND, TEXT("model", MODEL_NAME - 1, NEEDED, .doc = "ORG/NAME@COMMIT"),
          TEXT("content", MODEL_CONTENT, NEEDED, .doc = "which files it is, §7.5"),
          TEXT("list", MODEL_CONTENT, .doc = "the hash of its list of blocks, if it is known"),
          FLAG("added", NEEDED, .doc = "a user gave it its name, so that no hub is asked what it means"),
          LIST("from", NEEDED, .doc = "ids of two nodes at most, in hex: from there")}},
    [MESSAGE_MODEL_PUSHED] = {"model-pushed",
                              MESSAGE_FROM_MEMBER,
                              "to who pushes it: how much of it is there; again while that changes",
                              {ROUND, TEXT("model", MODEL_NAME - 1, NEEDED, .doc = "as it was pushed"),
                               FLAG("ready", NEEDED, .doc = "all of it is there, and has its name"),
                               WHOLE("done", FIELD_ANY, NEEDED, .doc = "bytes that are there"),
                               WHOLE("total", FIELD_ANY, NEEDED, .doc = "of so many; 0: not known yet"),
                               WHOLE("rate", FIELD_ANY, NEEDED, .doc = "bytes a second"),
                               TEXT("place", SENTENCE, .doc = "once it is ready: its folder"),
                               TEXT("why", SENTENCE, .doc = "it does not come: a sentence")}},
    [MESSAGE_MODEL_GIVE] = {"model-give",
                            MESSAGE_FROM_MEMBER,
                            "the sender takes the model from here: a data connection follows, §7.5",
                            {TEXT("model", MODEL_NAME - 1, NEEDED, .doc = "ORG/NAME@COMMIT"),
                             TEXT("content", MODEL_CONTENT, NEEDED, .doc = "which files it is"),
                             FLAG("through",
                                  .doc = "what the hub has of it: it is asked there for the sender")}},
    [MESSAGE_MODEL_DENIED] = {"model-denied",
                              MESSAGE_FROM_MEMBER,
                              "it does not come from here",
                              {TEXT("model", MODEL_NAME - 1, NEEDED, .doc = "as it was asked for"),
                               FLAG("soon", NEEDED, .doc = "it may when it is asked again"),
                               FLAG("through", .doc = "as it was asked for"),
                               TEXT("why", SENTENCE, NEEDED, .doc = "a sentence")}},
    [MESSAGE_MODEL_CENSUS] = {"model-census",
                              MESSAGE_FROM_MEMBER,
                              "how much of these models is there?",
                              {ROUND, LIST("models", NEEDED, .doc = "at most 64, of ORG/NAME@COMMIT"),
                               FLAG("blocks", .doc = "and which blocks")}},
    [MESSAGE_MODEL_COUNTED] =
        {"model-counted",
         MESSAGE_FROM_MEMBER,
         "the answer, within 4 s",
         {ROUND, OBJECT("models", .doc = "by name, of those whose outline is there, see below"),
          LIST("ways", .doc = "to its neighbours, as of `cost-heard`"),
          TEXT("why", SENTENCE, .doc = "instead: the rest of a sentence about the node")}},

    /* --- what a model costs --- */
    [MESSAGE_COST_ASK] = {"cost-ask",
                          MESSAGE_FROM_ANYONE,
                          "what do these units of a model take there?",
                          {ROUND, OBJECT("question", NEEDED, .doc = "see below")}},
    [MESSAGE_COST_HEARD] = {"cost-heard",
                            MESSAGE_FROM_ANYONE,
                            "at once: the question has come",
                            {ROUND, OBJECT("answer", NEEDED, .doc = "`ways`, see below")}},
    [MESSAGE_COST_TOLD] = {"cost-told",
                           MESSAGE_FROM_ANYONE,
                           "the answer",
                           {ROUND, OBJECT("answer", NEEDED, .doc = "`costs` and `why`, see below")}},

    /* --- relays --- */
    [MESSAGE_RELAY_OPEN] = {"relay-open",
                            MESSAGE_FROM_ANYONE,
                            "to the next hop: a way between these two is wanted",
                            {TOKEN, TEXT("from", HEX_ID, NEEDED, .doc = "an end's id in hex"),
                             TEXT("to", HEX_ID, NEEDED, .doc = "the other's"),
                             TEXT("head", HEX_ID, NEEDED, .doc = "of the job"), JOB_ID,
                             WHOLE("hops", RING_MAX_NODES, .doc = "may still follow")}},
    [MESSAGE_RELAY_READY] = {"relay-ready",
                             MESSAGE_FROM_ANYONE,
                             "to who asked: a connection that begins with the token is passed on",
                             {TOKEN,
                              TEXT("through", SENTENCE, NEEDED, .doc = "names of the hops from here on")}},
    [MESSAGE_RELAY_REFUSED] = {"relay-refused",
                               MESSAGE_FROM_ANYONE,
                               "to who asked: there is no way",
                               {TOKEN, TEXT("why", SENTENCE, NEEDED, .doc = "a sentence")}},
};

const char *message_sender_text(enum message_sender sender)
{
    static const char *const texts[] = {"any node", "a member", "the authority", "the head", "a rank"};
    return texts[sender];
}

const struct message_row *message_row(enum message_kind kind)
{
    return &rows[kind];
}

const struct field *message_common_fields(void)
{
    return common_fields;
}

int message_check(enum message_kind *ret_kind, const json_t *body, struct err *err)
{
    const char *name = json_string_value(json_object_get(body, "kind"));
    for (enum message_kind kind = 0; name && kind < MESSAGE_KINDS; kind++) {
        char none;
        if (strcmp(rows[kind].name, name) != 0)
            continue;
        *ret_kind = kind;
        return fields_read(&none, rows[kind].fields, 0, body, err);
    }
    return err_set(err, -ENOENT, "this version knows no such message");
}

/* "`job`, `rank`; `plan`: an object (see below); perhaps …". */
static char *fields_text(const struct field *fields)
{
    char *text = xstrdup(""), range[RANGE_TEXT];
    for (const struct field *f = fields; f->name; f++) {
        const bool is_common = !f->doc, was_common = f > fields && !f[-1].doc;
        const char *between = f == fields ? "" : is_common && was_common ? ", " : "; ";
        char *former = text;
        field_range(range, f);
        text = is_common ? xasprintf("%s%s`%s`", former, between, f->name)
                         : xasprintf("%s%s%s`%s`: %s (%s)", former, between, f->missing ? "" : "perhaps ",
                                     f->name, range, f->doc);
        free(former);
    }
    return text;
}

char *message_row_text(enum message_kind kind)
{
    const struct message_row *row = &rows[kind];
    char *fields = fields_text(row->fields);
    char *text = xasprintf("| `%s` | %s | %s%s| %s |\n", row->name, message_sender_text(row->sender), fields,
                           *fields ? " " : "", row->doc);
    free(fields);
    return text;
}
