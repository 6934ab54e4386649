/* SPDX-License-Identifier: GPL-2.0-only */
/* Killing keys. */
#ifndef _MEMREG_KEYS_KILL_H
#define _MEMREG_KEYS_KILL_H

#include <linux/jiffies.h>
#include <linux/types.h>

struct memreg_batch;
struct memreg_domain;
struct memreg_frwr;
struct memreg_region;

void memreg_frwr_destroy_mr(struct memreg_frwr *frwr);
void memreg_kill_init(struct memreg_domain *domain);
void memreg_kill_invalidate(struct memreg_frwr *frwr);
void memreg_kill_flush(struct memreg_domain *domain);
void memreg_kill_ended(struct memreg_batch *batch);
void memreg_kill_spoiled(struct memreg_batch *batch);
void memreg_kill_give_up(struct memreg_domain *domain);
void memreg_kill_destroy(struct memreg_frwr *frwr, bool awaited);
void memreg_kill_await(struct memreg_frwr *frwr);
bool memreg_kill_region(struct memreg_region *region);
void memreg_kill_wait(struct memreg_region *region, unsigned long deadline);
bool memreg_kill_is_own(const struct memreg_region *region);
int memreg_kill_line(struct memreg_domain *domain);
void memreg_kill_leave(struct memreg_domain *domain);

#endif /* _MEMREG_KEYS_KILL_H */
