/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The windows that are granted to an endpoint.
 */
#ifndef _MEMREG_MR_GRANTS_H
#define _MEMREG_MR_GRANTS_H

#include <linux/list.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "mr/bindings.h"

struct memreg_domain;
struct memreg_file;
struct memreg_key;
struct memreg_object;
struct memreg_window;
struct work_struct;

/* Windows that are revoked in one batch when a connection or a lease ends */
#define MEMREG_GRANTS_BATCH	32

/**
 * struct memreg_grants - The windows that end with an endpoint's connection
 * @obj: The endpoint
 * @domain: Its domain; NULL while windows of any domain can be granted
 * @windows: The granted windows, by memreg_window.grant_node;
 *	memreg_file.grant_lock
 * @claimed: Those of them that other calls had claimed when the end of the
 *	connection came to them, likewise; memreg_file.grant_lock
 * @closed: No more windows may be granted; memreg_file.grant_lock
 * @wait: Wait queue for both lists to become empty, or for a window to return
 *	to @windows
 * @abort: Work that ends the connection
 * @bound: Windows of type 2B, from the submission of their bind until their
 *	keys are dead
 */
struct memreg_grants {
	struct memreg_object *obj;
	struct memreg_domain *domain;
	struct list_head windows;
	struct list_head claimed;
	bool closed;
	wait_queue_head_t wait;
	struct work_struct *abort;
	struct memreg_bindings bound;
};

void memreg_grants_init(struct memreg_grants *grants,
			struct memreg_object *obj, struct work_struct *abort);
void memreg_grants_abort(struct memreg_grants *grants);
void memreg_window_tie_locked(struct memreg_window *window,
			      struct memreg_grants *grants);
bool memreg_window_tie(struct memreg_file *file, struct memreg_window *window,
		       struct memreg_grants *grants);
void memreg_window_untie(struct memreg_file *file,
			 struct memreg_window *window);
bool memreg_window_tie_lease(struct memreg_file *file,
			     struct memreg_window *window);
void memreg_window_give_back(struct memreg_window *window);
void memreg_window_return(struct memreg_window *window);
void memreg_window_count_revoke(const struct memreg_window *window);
void memreg_window_unbind(struct memreg_file *file,
			  struct memreg_window *window);
void memreg_revoke_claimed(struct memreg_file *file,
			   struct memreg_domain *domain,
			   struct memreg_window **windows,
			   struct memreg_key **keys, u32 count, bool relaxed);
void memreg_grants_revoke(struct memreg_file *file,
			  struct memreg_window **windows, int n);
void memreg_window_revoke_plain(struct memreg_file *file,
				struct memreg_grants *grants);
void memreg_window_revoke_granted(struct memreg_file *file,
				  struct memreg_grants *grants);

#endif /* _MEMREG_MR_GRANTS_H */
