/* SPDX-License-Identifier: MIT
 *
 * ringd-stage for ringctl tokenize, detokenize and render: started by them and not by a daemon. */
#ifndef DAEMON_STAGE_TEXT_H
#define DAEMON_STAGE_TEXT_H

/* text SPEC json|text, SPEC being an object:
 *   "do"    "tokenize" ("text", "special"; with "ids" their numbers alone are printed),
 *   "detokenize" ("ids", a text of numbers; "skip_special") or "render" ("messages", a list, or
 *   "file";
 *           "tools", "template_args", "generation"; with "check" nothing is printed)
 *   "model" its directory What is worked on comes from standard input where SPEC has neither it nor
 *   "file". Returns the exit status: 0, 1 after a sentence, 2 wrong use; with "check" 4, and no
 *   sentence, where a file may not be read by this user. */
int stage_text_main(int argc, char **argv);

enum { STAGE_TEXT_NOT_ALLOWED = 4 };

#endif
