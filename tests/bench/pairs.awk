# One row of the table, of pairs that were measured in turns: a figure, and what it is held against.
# Variables: what, unit, against; times: for both, as 1000 for seconds in ms; scale: for the second alone; how: <= or >=, with goal, which the
# ratio in percent must keep; within, with goal: so many percent from 100 at most; or - for none.
# SPDX-License-Identifier: MIT
{
    one[NR] = $1 * times
    two[NR] = $2 * times * scale
    ratio[NR] = one[NR] / two[NR]
}
function middle(x,  i, k, t, y) {
    for (i = 1; i <= NR; i++) y[i] = x[i]
    for (i = 1; i <= NR; i++) for (k = i + 1; k <= NR; k++) if (y[k] < y[i]) {t = y[i]; y[i] = y[k]; y[k] = t}
    low = y[1]; high = y[NR]
    return y[int((NR + 1) / 2)]
}
END {
    o = middle(one); t = middle(two); r = 100 * middle(ratio)
    printf "%-38s %9.2f %-9s %-22s %8.2f %-8s %6.1f %% +- %4.1f   ", what, o, unit, against, t, unit, r, 50 * (high - low)
    keeps = how == "<=" ? r <= goal : how == ">=" ? r >= goal : r >= 100 - goal && r <= 100 + goal
    print how == "-" ? "-" : how " " goal " %  " (keeps ? "ok" : "MISSED")
}
