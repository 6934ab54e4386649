/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The wire protocol of ib_memreg_blk and memreg blkd: a block device on the
 * memory or a file of a peer.
 */

/**
 * DOC: The protocol
 *
 * All numbers are big endian. Connections are RC, by the RDMA CM; the client
 * opens one for each of its queues. It sends commands by SEND, each with a list
 * of segments of its memory that the server reads (WRITE) or writes (READ) by
 * RDMA. The server answers each command once by SEND_WITH_INV, which
 * invalidates the rkey of the first segment, or by SEND if there is none. The
 * client invalidates the others itself. Answers come in any order. Both sides
 * keep receives posted for @depth messages: neither sends more.
 *
 * **Data in messages.** A READ or WRITE of no more than @inline_max bytes, as
 * the welcome has it, may have no segment. Then a WRITE's data follows the
 * command in its message, and a READ's data follows the answer if that is OK.
 * No key is needed, and the answer invalidates none.
 *
 * A side that receives what this file does not allow ends the connection.
 *
 * **After a loss.** A client is known by 16 bytes that it makes of the server's
 * address and of a secret that it draws when its device is created, so that it
 * is the same one for ever to a server, and another one to others. All its
 * connections that belong together have the same epoch, and are for the same
 * export. The epoch grows by at least one each time that it connects anew. A
 * server that sees a new epoch first ends all connections of that client's
 * older ones, and lets none of their commands begin or go on: only then does it
 * accept. It refuses older epochs.
 *
 * Each command has a sequence number, which is its own for the life of the
 * client. A command that was not answered is sent again in the new epoch under
 * the number it had. The server knows the numbers and the outcomes of the last
 * IB_MEMREG_BLK_REMEMBERED commands of each client that changed something, and
 * answers one that it has done already as it did then, without doing it again.
 *
 * A server that was started anew knows no clients, and takes any epoch. Where
 * it may have lost what was answered, its welcome has another @instance than
 * before: a client that goes on with what it knew of the export must not take
 * it.
 */

/**
 * DOC: What each side checks
 *
 * The client checks of the welcome: its length, magic number and version; that
 * the block size is a power of two from 512 to 4096, and the physical one a
 * power of two that isn't smaller; that the capacity and the length of commands
 * are multiples of the block size, the capacity not above 2^63 - 1, the length
 * not 0 and not above IB_MEMREG_BLK_LENGTH_MAX; that there are no unknown
 * flags; the number of segments; that it isn't granted more commands than it
 * asked for, nor more data in messages than it offered; and that all queues get
 * the same block size, flags and instance. When it connects anew, the block
 * size, the flags and the instance must be those that it knows, and no limit
 * may be lower than the disk was made for. A server that allows commands
 * shorter than a page, or one command alone, is within the protocol, and
 * refused. A discard granularity that is no power of two, smaller than a block,
 * or above 256 MiB is within the protocol as well, and not used.
 *
 * The client checks of a message: that it is a SEND without immediate data, at
 * least as long as an answer; that the tag is that of a command in flight;
 * sequence number, epoch, status, capacity and the reserved field; that all was
 * moved if the status is OK and nothing otherwise; that the message ends with
 * the answer, or with as much data as a READ without segments asked for; and
 * that it has invalidated the key of the command's first segment, or none if
 * there is no segment. Only an answer of INVALID may come without that. If a
 * check fails, nothing of the answer counts, and the connection ends.
 *
 * The server checks of the hello: magic number, version, the number of the
 * queue and of queues, depth, epoch, how much data in messages there may be,
 * the reserved field, the name; that there is such an export; that the epoch is
 * not an old one, and that no other connection of this epoch has this queue, or
 * another export. It checks of a command: that it is as long as its number of
 * segments says, or, without any, as its data; epoch; that the tag is not in
 * flight; opcode and flags; that offset and length are multiples of the block
 * size and within the capacity; that segments are not empty and are together as
 * long as the command; the reserved field; that no more are in flight than were
 * granted.
 */

#ifndef _IB_MEMREG_BLK_H
#define _IB_MEMREG_BLK_H

#include <linux/types.h>

#define IB_MEMREG_BLK_MAGIC		0x6d72626b	/* "mrbk" */
#define IB_MEMREG_BLK_VERSION		3
#define IB_MEMREG_BLK_PORT		7472
#define IB_MEMREG_BLK_EXPORT_MAX	16
#define IB_MEMREG_BLK_CLIENT_SIZE	16
#define IB_MEMREG_BLK_QUEUES_MAX	64
#define IB_MEMREG_BLK_DEPTH_MAX		256
#define IB_MEMREG_BLK_SEGS_MAX		16
#define IB_MEMREG_BLK_LENGTH_MAX	(4U << 20)
#define IB_MEMREG_BLK_INLINE_MAX	(16U << 10)
#define IB_MEMREG_BLK_REMEMBERED	16384

/**
 * struct ib_memreg_blk_hello - Private data of the connection request
 * @magic: IB_MEMREG_BLK_MAGIC
 * @version: IB_MEMREG_BLK_VERSION; a server refuses those that it doesn't know
 * @queue: Number of this connection among the client's, from 0
 * @queues: Number of connections of the client, 1 to IB_MEMREG_BLK_QUEUES_MAX
 * @depth: Commands that it wants to have in flight on this connection, 1 to
 *	IB_MEMREG_BLK_DEPTH_MAX
 * @client: Identity of the client
 * @epoch: Epoch of the connection, from 1
 * @inline_max: Most bytes of data that it would have in a message, 0 to
 *	IB_MEMREG_BLK_INLINE_MAX
 * @reserved: 0
 * @name: Name of the export, padded with zeros; all zeros: the only export
 */
struct ib_memreg_blk_hello {
	__be32 magic;
	__be16 version;
	__be16 queue;
	__be16 queues;
	__be16 depth;
	__u8 client[IB_MEMREG_BLK_CLIENT_SIZE];
	__be32 epoch;
	__be16 inline_max;
	__be16 reserved;
	char name[IB_MEMREG_BLK_EXPORT_MAX];
};

/**
 * enum ib_memreg_blk_flags - Properties of an export
 * @IB_MEMREG_BLK_READ_ONLY: Commands that change something fail.
 * @IB_MEMREG_BLK_WRITE_CACHE: Written data is stable only after a FLUSH.
 * @IB_MEMREG_BLK_HAS_FUA: IB_MEMREG_BLK_FUA is understood.
 * @IB_MEMREG_BLK_HAS_DISCARD: DISCARD is understood.
 * @IB_MEMREG_BLK_HAS_ZEROES: WRITE_ZEROES is understood.
 */
enum ib_memreg_blk_flags {
	IB_MEMREG_BLK_READ_ONLY		= 1 << 0,
	IB_MEMREG_BLK_WRITE_CACHE	= 1 << 1,
	IB_MEMREG_BLK_HAS_FUA		= 1 << 2,
	IB_MEMREG_BLK_HAS_DISCARD	= 1 << 3,
	IB_MEMREG_BLK_HAS_ZEROES	= 1 << 4
};

/**
 * struct ib_memreg_blk_welcome - Private data of the acceptance
 * @magic: IB_MEMREG_BLK_MAGIC
 * @version: IB_MEMREG_BLK_VERSION
 * @depth: Commands that the client may have in flight, 1 to what it asked for
 * @capacity: Bytes, a multiple of @block_size
 * @flags: enum ib_memreg_blk_flags
 * @block_size: Unit of offsets and lengths: a power of two, 512 to 4096
 * @physical_block_size: What is written at once: a power of two, from
 *	@block_size on
 * @max_length: Most bytes of a READ or WRITE, a multiple of @block_size, up to
 *	IB_MEMREG_BLK_LENGTH_MAX
 * @discard_granularity: Unit of what DISCARD gives back, or 0
 * @max_segs: Most segments of a command, 1 to IB_MEMREG_BLK_SEGS_MAX
 * @inline_max: Most bytes of data that a message may have, 0 to what the client
 *	would have
 * @instance: Another number says that what was answered may be lost: memory is
 *	gone with its server, and what was not flushed with its machine. 0: what
 *	was answered is never lost
 */
struct ib_memreg_blk_welcome {
	__be32 magic;
	__be16 version;
	__be16 depth;
	__be64 capacity;
	__be32 flags;
	__be32 block_size;
	__be32 physical_block_size;
	__be32 max_length;
	__be32 discard_granularity;
	__be16 max_segs;
	__be16 inline_max;
	__be64 instance;
};

/**
 * struct ib_memreg_blk_refusal - Private data of the rejection
 * @magic: IB_MEMREG_BLK_MAGIC
 * @version: IB_MEMREG_BLK_VERSION, the newest that the server knows
 * @status: enum ib_memreg_blk_status
 */
struct ib_memreg_blk_refusal {
	__be32 magic;
	__be16 version;
	__be16 status;
};

/**
 * enum ib_memreg_blk_opcode - Operation of a command
 * @IB_MEMREG_BLK_NOP: Nothing; is the server there, and how large is it?
 * @IB_MEMREG_BLK_READ: The server writes to the segments.
 * @IB_MEMREG_BLK_WRITE: The server reads the segments.
 * @IB_MEMREG_BLK_FLUSH: Make data of earlier answered WRITEs stable.
 * @IB_MEMREG_BLK_DISCARD: The range is not needed, and reads as anything.
 * @IB_MEMREG_BLK_WRITE_ZEROES: The range reads as zeros.
 *
 * The segments of READ and WRITE are as long as the command, together, if it
 * has any; other commands have none. NOP and FLUSH have neither offset nor
 * length.
 */
enum ib_memreg_blk_opcode {
	IB_MEMREG_BLK_NOP,
	IB_MEMREG_BLK_READ,
	IB_MEMREG_BLK_WRITE,
	IB_MEMREG_BLK_FLUSH,
	IB_MEMREG_BLK_DISCARD,
	IB_MEMREG_BLK_WRITE_ZEROES
};

/**
 * enum ib_memreg_blk_cmd_flags - How it is done
 * @IB_MEMREG_BLK_FUA: WRITE, WRITE_ZEROES: it is safe before it is answered.
 * @IB_MEMREG_BLK_NO_UNMAP: WRITE_ZEROES: the space stays allocated.
 */
enum ib_memreg_blk_cmd_flags {
	IB_MEMREG_BLK_FUA		= 1 << 0,
	IB_MEMREG_BLK_NO_UNMAP		= 1 << 1
};

/**
 * struct ib_memreg_blk_seg - Memory of the client
 * @addr: First I/O address
 * @length: Bytes, from 1
 * @rkey: Key
 */
struct ib_memreg_blk_seg {
	__be64 addr;
	__be32 length;
	__be32 rkey;
};

/**
 * struct ib_memreg_blk_cmd - What the client sends; the message ends with the
 *	last segment, or with @length bytes of data
 * @seq: Sequence number, from 1
 * @offset: First byte, a multiple of the block size
 * @length: Bytes, a multiple of the block size; READ, WRITE: up to max_length
 * @epoch: Epoch of the connection
 * @tag: Returned in the reply; no two commands in flight on a connection have
 *	the same one
 * @nr_segs: Number of segments; 0 if the data is in a message
 * @opcode: enum ib_memreg_blk_opcode
 * @flags: enum ib_memreg_blk_cmd_flags
 * @reserved: 0
 * @segs: Segments
 */
struct ib_memreg_blk_cmd {
	__be64 seq;
	__be64 offset;
	__be32 length;
	__be32 epoch;
	__be16 tag;
	__be16 nr_segs;
	__u8 opcode;
	__u8 flags;
	__be16 reserved;
	__extension__ struct ib_memreg_blk_seg segs[];
};

/**
 * enum ib_memreg_blk_status - How it went
 * @IB_MEMREG_BLK_OK: It is done, all of it.
 * @IB_MEMREG_BLK_IO: The medium failed.
 * @IB_MEMREG_BLK_NO_SPACE: There is no space left on it.
 * @IB_MEMREG_BLK_PERMISSION: The export is read only.
 * @IB_MEMREG_BLK_RANGE: The range is not within the capacity.
 * @IB_MEMREG_BLK_UNSUPPORTED: The export can't do this.
 * @IB_MEMREG_BLK_INVALID: This is no valid command, or no valid request for a
 *	connection.
 * @IB_MEMREG_BLK_NO_EXPORT: There is no export of this name.
 * @IB_MEMREG_BLK_OLD_EPOCH: The client has a newer one.
 * @IB_MEMREG_BLK_BUSY: There are too many clients or connections.
 *
 * IO to UNSUPPORTED are outcomes of commands; after INVALID the server ends the
 * connection. INVALID to BUSY are reasons of rejections, as is UNSUPPORTED, of
 * the version.
 */
enum ib_memreg_blk_status {
	IB_MEMREG_BLK_OK,
	IB_MEMREG_BLK_IO,
	IB_MEMREG_BLK_NO_SPACE,
	IB_MEMREG_BLK_PERMISSION,
	IB_MEMREG_BLK_RANGE,
	IB_MEMREG_BLK_UNSUPPORTED,
	IB_MEMREG_BLK_INVALID,
	IB_MEMREG_BLK_NO_EXPORT,
	IB_MEMREG_BLK_OLD_EPOCH,
	IB_MEMREG_BLK_BUSY
};

/**
 * struct ib_memreg_blk_reply - What the server sends; the message ends with it,
 *	or with @length bytes of data
 * @seq: Sequence number of the command
 * @capacity: Bytes; if it differs from what the client knows, it has changed
 * @length: Bytes that were moved: all of them if @status is OK, otherwise 0
 * @epoch: Epoch of the connection
 * @tag: Tag of the command
 * @status: enum ib_memreg_blk_status
 * @reserved: 0
 */
struct ib_memreg_blk_reply {
	__be64 seq;
	__be64 capacity;
	__be32 length;
	__be32 epoch;
	__be16 tag;
	__be16 status;
	__be32 reserved;
};

#endif
