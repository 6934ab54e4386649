/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Completions: how slots end, and what is reported to users.
 */
#ifndef _MEMREG_CONN_COMPLETE_H
#define _MEMREG_CONN_COMPLETE_H

#include "conn/slot.h"

void memreg_queue_flush_early(struct memreg_queue *queue);
void memreg_queue_abandon(struct memreg_queue *queue);
bool memreg_slot_is_slow(const struct ib_wc *wc);
void memreg_slot_handle_slow(const struct ib_wc *wc);
unsigned int memreg_slot_done(struct memreg_kring *ring, const struct ib_wc *wc,
			      unsigned int max, bool *more);

#endif /* _MEMREG_CONN_COMPLETE_H */
