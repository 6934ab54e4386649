/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Completions: how slots end, and what is reported to users.
 */
#ifndef _MEMREG_CONN_COMPLETE_H
#define _MEMREG_CONN_COMPLETE_H

#include "conn/slot.h"

void memreg_queue_flush_early(struct memreg_queue *queue);
void memreg_queue_abandon(struct memreg_queue *queue);
extern const struct memreg_slot_ops memreg_slot_ops;

#endif /* _MEMREG_CONN_COMPLETE_H */
