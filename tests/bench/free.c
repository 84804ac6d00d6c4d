/* SPDX-License-Identifier: MIT
 *
 * A ringd-stage that enters no cell: cell_enter is wrapped by the linker. What the cell costs is
 * the difference (bench_cell.sh). */
#include "daemon/stage/cell/cell.h"

int __wrap_cell_enter(const struct cell_rules *rules, struct err *err);

int __wrap_cell_enter(const struct cell_rules *rules, struct err *err)
{
    (void)rules, (void)err;
    return 0;
}
