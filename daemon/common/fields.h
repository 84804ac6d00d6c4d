/* SPDX-License-Identifier: MIT
 *
 * A JSON object as a table: a row for each field says its name, type, range, default and meaning,
 * and where it lies in a struct. Reading, writing, the schema for docs/openapi.json, the tables of
 * docs/PROTOCOL.md and the keys of the fuzzers come from these rows. Pure: any thread. */
#ifndef DAEMON_FIELDS_H
#define DAEMON_FIELDS_H

#include <jansson.h>
#include <stddef.h>

#include "daemon/common/range_text.h"
#include "engine/err.h"

enum field_type {
    FIELD_TEXT,   /* const char *, borrowed from the JSON; NULL where it is missing */
    FIELD_OWNED,  /* char *, owned; "" is NULL */
    FIELD_FIXED,  /* char [size]; longer texts are cut */
    FIELD_WHOLE,  /* an unsigned integer or enum of size bytes */
    FIELD_NUMBER, /* float or double */
    FIELD_FLAG,   /* bool */
    FIELD_CHOICE, /* as FIELD_WHOLE; in JSON one of the names in choices */
    FIELD_WHOLES, /* whole numbers, an array of size bytes; how many, another member says */
    FIELD_LIST,   /* const json_t *, borrowed; NULL where it is missing */
    FIELD_OBJECT, /* the same */
};

/* A list of these ends with a name of NULL. */
struct field_choice {
    const char *name;
    unsigned value;
};

/* What a text means to the process that reads it: a text alone, or the path of … */
enum field_path {
    FIELD_NO_PATH,
    FIELD_MODEL,    /* a model's folder, */
    FIELD_READS,    /* another file or folder that is read, */
    FIELD_ADAPTER,  /* an adapter's folder, which the daemon may have kept for its user, */
    FIELD_WRITES,   /* a folder that is written, */
    FIELD_APPENDS,  /* a file that is written */
    FIELD_MAY_READ, /* a file that is read, if there is a slash in it: else a name */
};

#define FIELD_ANY 0x1p63 /* a `max` that JSON's whole numbers do not reach */

/* A table ends with a name of NULL. */
struct field {
    const char *name;
    enum field_type type;
    unsigned use;           /* bits of the uses that have this field; 0: all */
    size_t offset, size;    /* of the member; size 0: checked here, and the caller reads it */
    double min, max;        /* of numbers; of texts `max` is the most bytes, 0: any number */
    double def;             /* what a missing number or choice becomes, also if it is out of range */
    const char *arg;        /* ringctl has an option for it, with this in place of its value; NULL: none */
    const char *doc;        /* one line */
    const char *text;       /* of FIELD_TEXT: the default, or NULL */
    const char *missing;    /* the field is required, and this is the complaint; "": a usual one */
    const char *items;      /* of FIELD_LIST: the JSON type of its items */
    const struct field *of; /* of FIELD_OBJECT: its own table, for the schema, or NULL */
    size_t item;            /* of FIELD_WHOLES: bytes of an item, */
    size_t count, more;     /* and where the size_t lies that says how many there are, less `more` */
    const struct field_choice *choices;
    enum field_path path; /* of texts, and of objects that hold texts: a stage can open what is named
                             here, and nothing else */
    const char *spelling; /* of the option, where it is another than the name with - for _ */
};

#define FIELD_AT(type, member) offsetof(type, member), sizeof(((type *)NULL)->member)

/* Is the row for this use? */
int field_is_for(const struct field *field, unsigned use);

/* The option of ringctl that sets it: "--adapter-out" of "adapter_out". */
enum { FIELD_OPTION = 32 };
void field_option(char ret[FIELD_OPTION], const struct field *field);

/* The i-th path that a row with a `path` names in this object: the text itself or, of an object,
 * each of its texts. NULL: there are no more. Borrowed. */
const char *field_path_at(const struct field *field, const json_t *object, size_t i);

/* What a field may be: "a whole number from 1 to 64". */
void field_range(char ret[RANGE_TEXT], const struct field *field);
/* The names of a FIELD_CHOICE: "red|blue". */
void field_words(char ret[RANGE_TEXT], const struct field *field);

/* Fills the members of the rows for `use`; other members stay. Of FIELD_WHOLES as many as are
 * given: whether these are all, fields_check_counts says once the counts are known. A field of null
 * is missing, a key without a row is ignored. −EINVAL and a sentence with the field, its range and
 * what was given, or −ENOMEM; the struct may then be filled in part, and its owned texts are the
 * caller's to free. */
int fields_read(void *ret, const struct field *table, unsigned use, const json_t *object, struct err *err);

/* Has each FIELD_WHOLES as many items as its count says? −EINVAL and a sentence that names it. */
int fields_check_counts(const void *of, const struct field *table, unsigned use, const json_t *object,
                        struct err *err);

/* The object of these members; NULL if one of them cannot be said in JSON, or out of memory. */
json_t *fields_write(const void *from, const struct field *table, unsigned use);

/* The JSON schema (OpenAPI 3.1) of the object: "type", "required" and "properties". */
json_t *fields_schema(const struct field *table, unsigned use);

#endif
