/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Issuing and cancelling commands of io_uring.
 */
#ifndef _MEMREG_CONN_URING_CMD_H
#define _MEMREG_CONN_URING_CMD_H

struct io_uring_cmd;

int memreg_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);

#endif /* _MEMREG_CONN_URING_CMD_H */
