/* SPDX-License-Identifier: MIT
 *
 * A step drawn: of each node what was planned, below it what came, on one axis of time; and what
 * was waited for longest. As text and as SVG. Pure but for the stream it is given; called by
 * ringctl gantt. */
#ifndef DAEMON_STEP_CHART_H
#define DAEMON_STEP_CHART_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/ctl/terminal/step_view.h"

/* At most `width` columns wide. colors: the planned lines are dim. */
void step_chart_text(FILE *to, const struct step_view *view, size_t width, bool colors);
void step_chart_svg(FILE *to, const struct step_view *view);

#endif
