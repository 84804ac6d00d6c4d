/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by whatever prints; the environment is changed once, before the command
 * runs. */
#include "daemon/ctl/terminal/ctl_term.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct winsize size_of(FILE *to)
{
    struct winsize size;
    if (ioctl(fileno(to), TIOCGWINSZ, &size))
        size = (struct winsize){0};
    return size;
}

size_t term_width(FILE *to)
{
    return size_of(to).ws_col;
}

size_t term_height(FILE *to)
{
    return size_of(to).ws_row;
}

void term_set_colors(const char *when)
{
    if (!strcmp(when, "auto"))
        return;
    bool always = !strcmp(when, "always");
    unsetenv(always ? "NO_COLOR" : "CLICOLOR_FORCE");
    setenv(always ? "CLICOLOR_FORCE" : "NO_COLOR", "1", 1);
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

bool term_has_colors(FILE *to)
{
    const char *term = getenv("TERM");
    if (is_set("NO_COLOR"))
        return false;
    if (is_set("CLICOLOR_FORCE"))
        return true;
    return isatty(fileno(to)) && term && strcmp(term, "dumb") != 0;
}

enum paint paint_of_state(const char *word, size_t bytes)
{
    static const struct {
        const char *word;
        enum paint paint;
    } states[] = {
        {"up", PAINT_GOOD},      {"done", PAINT_GOOD},        {"active", PAINT_GOOD},
        {"two-way", PAINT_GOOD}, {"closed", PAINT_GOOD},      {"alone", PAINT_GOOD},
        {"ok", PAINT_GOOD},      {"running", PAINT_BUSY},     {"planned", PAINT_BUSY},
        {"note", PAINT_BUSY},    {"queued", PAINT_WAIT},      {"interrupted", PAINT_WAIT},
        {"waiting", PAINT_WAIT}, {"dialing", PAINT_WAIT},     {"idle", PAINT_WAIT},
        {"heard", PAINT_WAIT},   {"backing-off", PAINT_WAIT}, {"flapping", PAINT_WAIT},
        {"warning", PAINT_WAIT}, {"chain", PAINT_WAIT},       {"cancelled", PAINT_DIM},
        {"failed", PAINT_BAD},   {"gone", PAINT_BAD},         {"removed", PAINT_BAD},
        {"out", PAINT_BAD},      {"one-way", PAINT_BAD},      {"version", PAINT_BAD},
        {"cloned", PAINT_BAD},   {"broken", PAINT_BAD},       {"error", PAINT_BAD},
        {"paused", PAINT_WAIT},  {"moved", PAINT_WAIT},
    };
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strlen(states[i].word) == bytes && !strncmp(states[i].word, word, bytes))
            return states[i].paint;
    return PAINT_NONE;
}

const char *paint_on(enum paint paint)
{
    static const char *const escapes[] = {
        [PAINT_NONE] = "",         [PAINT_HEAD] = "\033[1m",  [PAINT_GOOD] = "\033[32m",
        [PAINT_BUSY] = "\033[36m", [PAINT_WAIT] = "\033[33m", [PAINT_BAD] = "\033[1;31m",
        [PAINT_DIM] = "\033[2m",
    };
    return escapes[paint];
}

const char *paint_off(enum paint paint)
{
    return paint == PAINT_NONE ? "" : "\033[0m";
}

/* Every byte but the continuations of UTF-8 begins a character. */
static bool begins(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

size_t text_columns(const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += begins(text[i]);
    return n;
}

size_t text_bytes(const char *text, size_t bytes, size_t columns)
{
    size_t i = 0;
    for (size_t n = 0; i < bytes; i++) {
        if (begins(text[i]) && n++ == columns)
            break;
    }
    return i;
}
