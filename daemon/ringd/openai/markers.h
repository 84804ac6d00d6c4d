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
#define MARK_KIMI_CALLS "<|tool_calls_section_begin|>"
#define MARK_KIMI_CALLS_END "<|tool_calls_section_end|>"
#define MARK_KIMI_CALL "<|tool_call_begin|>"
#define MARK_KIMI_CALL_END "<|tool_call_end|>"
#define MARK_KIMI_SEP "<|tool_call_argument_begin|>"

/* DeepSeek V3.2's; the bars are U+FF5C. */
#define MARK_DSML_CALLS "<｜DSML｜function_calls>"
#define MARK_DSML_CALLS_END "</｜DSML｜function_calls>"
#define MARK_DSML_CALL "<｜DSML｜invoke name="
#define MARK_DSML_CALL_END "</｜DSML｜invoke>"
#define MARK_MISTRAL_CALLS "[TOOL_CALLS]"
#define MARK_MISTRAL_ID "[CALL_ID]"
#define MARK_MISTRAL_ARGS "[ARGS]"

/* gpt-oss's, of messages. */
#define MARK_START "<|start|>"
#define MARK_CHANNEL "<|channel|>"
#define MARK_MESSAGE "<|message|>"
#define MARK_END "<|end|>"
#define MARK_CALL "<|call|>"
#define MARK_RETURN "<|return|>"

enum { MARKER_BYTES = 64 }; /* more than the longest has */

#endif
