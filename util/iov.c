/* Scatter-gather lists: copying into, out of and between them, and describing a part of one. */
#include "util/iov.h"

#include <string.h>

typedef struct IovCursor {
    const struct iovec *iov;
    unsigned left; /* elements, @iov included */
    size_t offset; /* in *iov */
} IovCursor;

/* The byte at @offset; left is 0 when the list ends before it. */
static IovCursor cursor_at(const struct iovec *iov, unsigned cnt, size_t offset)
{
    while (cnt && offset >= iov->iov_len) {
        offset -= iov->iov_len;
        iov++;
        cnt--;
    }
    return (IovCursor){.iov = iov, .left = cnt, .offset = offset};
}

/* The next contiguous piece of at most @bytes; *len is 0 at the end of the list. */
static char *cursor_piece(IovCursor *c, size_t bytes, size_t *len)
{
    while (c->left && c->offset == c->iov->iov_len) {
        c->iov++;
        c->left--;
        c->offset = 0;
    }
    *len = 0;
    if (!c->left) {
        return NULL;
    }
    size_t room = c->iov->iov_len - c->offset;
    *len = room < bytes ? room : bytes;
    return (char *)c->iov->iov_base + c->offset;
}

size_t iov_size(const struct iovec *iov, unsigned cnt)
{
    size_t size = 0;

    for (unsigned i = 0; i < cnt; i++) {
        size += iov[i].iov_len;
    }
    return size;
}

size_t iov_to_buf(const struct iovec *iov, unsigned cnt, size_t offset, void *buf, size_t bytes)
{
    IovCursor c = cursor_at(iov, cnt, offset);
    size_t done = 0, len;
    char *piece;

    while (done < bytes && (piece = cursor_piece(&c, bytes - done, &len))) {
        memcpy((char *)buf + done, piece, len);
        c.offset += len;
        done += len;
    }
    return done;
}

size_t iov_from_buf(const struct iovec *iov, unsigned cnt, size_t offset, const void *buf,
                    size_t bytes)
{
    IovCursor c = cursor_at(iov, cnt, offset);
    size_t done = 0, len;
    char *piece;

    while (done < bytes && (piece = cursor_piece(&c, bytes - done, &len))) {
        memcpy(piece, (const char *)buf + done, len);
        c.offset += len;
        done += len;
    }
    return done;
}

size_t iov_memset(const struct iovec *iov, unsigned cnt, size_t offset, int fill, size_t bytes)
{
    IovCursor c = cursor_at(iov, cnt, offset);
    size_t done = 0, len;
    char *piece;

    while (done < bytes && (piece = cursor_piece(&c, bytes - done, &len))) {
        memset(piece, fill, len);
        c.offset += len;
        done += len;
    }
    return done;
}

size_t iov_copy(const struct iovec *dst, unsigned dst_cnt, size_t dst_off, const struct iovec *src,
                unsigned src_cnt, size_t src_off, size_t bytes)
{
    IovCursor d = cursor_at(dst, dst_cnt, dst_off), s = cursor_at(src, src_cnt, src_off);
    size_t done = 0, room, len;

    while (done < bytes) {
        char *to = cursor_piece(&d, bytes - done, &room);
        char *from = to ? cursor_piece(&s, room, &len) : NULL;
        if (!from) {
            break;
        }
        memmove(to, from, len);
        d.offset += len;
        s.offset += len;
        done += len;
    }
    return done;
}

unsigned iov_slice(struct iovec *dst, unsigned dst_max, const struct iovec *src, unsigned src_cnt,
                   size_t offset, size_t bytes)
{
    IovCursor c = cursor_at(src, src_cnt, offset);
    unsigned n = 0;
    size_t len;
    char *piece;

    while (n < dst_max && bytes && (piece = cursor_piece(&c, bytes, &len))) {
        dst[n++] = (struct iovec){.iov_base = piece, .iov_len = len};
        c.offset += len;
        bytes -= len;
    }
    return n;
}
