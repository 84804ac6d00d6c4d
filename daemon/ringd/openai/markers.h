/* SPDX-License-Identifier: MIT
 *
 * The markers that models write around reasoning and calls. DeepSeek's are tokens of their own;
 * their bars and lower blocks are U+FF5C and U+2581. Private to this room. */
#ifndef DAEMON_OPENAI_MARKERS_H
#define DAEMON_OPENAI_MARKERS_H

#define MARK_THINK "<think>"
#define MARK_THINK_END "</think>"
#define MARK_DEEPSEEK_CALLS "<｜tool▁calls▁begin｜>"
#define MARK_DEEPSEEK_CALLS_END "<｜tool▁calls▁end｜>"
#define MARK_DEEPSEEK_CALL "<｜tool▁call▁begin｜>"
#define MARK_DEEPSEEK_CALL_END "<｜tool▁call▁end｜>"
#define MARK_DEEPSEEK_SEP "<｜tool▁sep｜>"

enum { MARKER_BYTES = 64 }; /* more than the longest has */

#endif
