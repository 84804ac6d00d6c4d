/* SPDX-License-Identifier: MIT
 *
 * Which start of the machine this is. What was written during the same one is still there; of an
 * earlier one there is what was synced. Any thread. */
#ifndef FILE_BOOT_ID_H
#define FILE_BOOT_ID_H

enum { BOOT_ID = 64 };

/* "-": the kernel does not say. */
void boot_id(char ret[BOOT_ID]);

#endif
