/*
 * Sets of file descriptors that somebody passed to us (add-fd, -add-fd), opened by the path
 * "/dev/fdset/N": a process that may not open files gets them this way.  Main thread.
 */
#ifndef UTIL_FDSET_H
#define UTIL_FDSET_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Adds @fd, which the set takes on success, to set @id (-1: the lowest id without a set, which
 * *id then is).  @opaque may be NULL. */
gboolean fdset_add(int64_t *id, int fd, const char *opaque, GError **errp);
/* Closes @fd of set @id, all of it when @fd is -1.  A set without fds does not exist. */
gboolean fdset_remove(int64_t id, int fd, GError **errp);
/* By ascending id, in order of adding. */
void fdset_foreach(void (*fn)(int64_t id, int fd, const char *text, void *opaque), void *opaque);

/* As open(2) with O_CLOEXEC; of "/dev/fdset/N" a duplicate of the fd in that set whose access mode
 * is that of @flags (EACCES: there is none). */
int fdset_open(const char *path, int flags, mode_t mode);
void fdset_cleanup(void);

#endif
