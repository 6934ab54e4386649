/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * LIST: the objects of all files that the caller may see.
 */
#ifndef _MEMREG_LIST_H
#define _MEMREG_LIST_H

struct memreg_ucmd;

int memreg_list_ioctl(struct memreg_ucmd *ucmd);

#endif /* _MEMREG_LIST_H */
