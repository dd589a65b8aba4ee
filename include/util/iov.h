/*
 * Scatter-gather lists.  Offsets and lengths in bytes; all functions stop at the end of the
 * list and return what they moved.
 */
#ifndef UTIL_IOV_H
#define UTIL_IOV_H

#include <stddef.h>
#include <sys/uio.h>

size_t iov_size(const struct iovec *iov, unsigned cnt);
size_t iov_to_buf(const struct iovec *iov, unsigned cnt, size_t offset, void *buf, size_t bytes);
size_t iov_from_buf(const struct iovec *iov, unsigned cnt, size_t offset, const void *buf,
                    size_t bytes);
size_t iov_memset(const struct iovec *iov, unsigned cnt, size_t offset, int fill, size_t bytes);

/* Copies @bytes from @src at @src_off to @dst at @dst_off. */
size_t iov_copy(const struct iovec *dst, unsigned dst_cnt, size_t dst_off, const struct iovec *src,
                unsigned src_cnt, size_t src_off, size_t bytes);

/* Describes @bytes of @src from @offset in @dst (at most @dst_max entries) without moving data.
 * Returns the entries used; fewer bytes are described when @dst is too small. */
unsigned iov_slice(struct iovec *dst, unsigned dst_max, const struct iovec *src, unsigned src_cnt,
                   size_t offset, size_t bytes);

#endif
