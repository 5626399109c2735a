/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The form in which a text in E-code is sent to the daemon: a memory file (memfd_create(2)) that
 * accompanies a message (abi/message.h).
 *
 * The file is sealed against writing, shrinking and growing (F_SEAL_WRITE, F_SEAL_SHRINK,
 * F_SEAL_GROW), so nobody can change it while the daemon reads it. It consists of struct
 * ecalls_upload and `bytes` bytes of UTF-8.
 */
#ifndef ECALLS_UPLOAD_H
#define ECALLS_UPLOAD_H

#include "downcall.h"

#define ECALLS_UPLOAD_VERSION 1u
#define ECALLS_UPLOAD_BYTES_MAX 16384u /* of the text */
#define ECALLS_UPLOAD_NAME_MAX 64u

struct ecalls_upload {
	ecalls_u32 version;    /* ECALLS_UPLOAD_VERSION */
	ecalls_u32 bytes;      /* of the text, at most ECALLS_UPLOAD_BYTES_MAX */
	ecalls_u32 attributes; /* entries of `attribute` in use */
	ecalls_u32 pad;
	/* The name of the text in messages; ends with 0. */
	char name[ECALLS_UPLOAD_NAME_MAX];
	/* Names of the channel's attributes, in the order of their numbers; each ends with 0,
	 * and those that are not in use are empty. */
	char attribute[ECALLS_ATTRIBUTES][ECALLS_NAME_MAX];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_upload) == 80 + 32 * 32, "upload");

#endif
