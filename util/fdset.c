/* Sets of passed file descriptors: a list of rows, each an fd with the number of its set. */
#include "util/fdset.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "util/error.h"

#define FDSET_PREFIX "/dev/fdset/"

typedef struct FdRow {
    int64_t set;
    int fd;
    char *opaque;
} FdRow;

static GArray *rows; /* FdRow, by set */

static void row_clear(gpointer data)
{
    FdRow *row = data;

    close(row->fd);
    g_free(row->opaque);
}

static int64_t lowest_free_id(void)
{
    int64_t id = 0;

    for (unsigned i = 0; i < rows->len && g_array_index(rows, FdRow, i).set <= id; i++) {
        id = g_array_index(rows, FdRow, i).set + 1;
    }
    return id;
}

gboolean fdset_add(int64_t *id, int fd, const char *opaque, GError **errp)
{
    unsigned at = 0;

    if (*id < -1) {
        return error_set(errp, "Parameter 'fdset-id' expects a non-negative value");
    }
    if (!rows) {
        rows = g_array_new(FALSE, FALSE, sizeof(FdRow));
        g_array_set_clear_func(rows, row_clear);
    }
    if (*id < 0) {
        *id = lowest_free_id();
    }
    while (at < rows->len && g_array_index(rows, FdRow, at).set <= *id) {
        at++;
    }
    FdRow row = {*id, fd, g_strdup(opaque)};
    g_array_insert_val(rows, at, row);
    return TRUE;
}

gboolean fdset_remove(int64_t id, int fd, GError **errp)
{
    bool found = false;

    for (unsigned i = rows ? rows->len : 0; i-- > 0;) {
        const FdRow *row = &g_array_index(rows, FdRow, i);
        if (row->set == id && (fd < 0 || row->fd == fd)) {
            g_array_remove_index(rows, i);
            found = true;
        }
    }
    if (!found && fd >= 0) {
        return error_set(errp, "File descriptor named 'fdset-id:%" PRId64 ", fd:%d' not found", id,
                         fd);
    }
    return found || error_set(errp, "File descriptor named 'fdset-id:%" PRId64 "' not found", id);
}

void fdset_foreach(void (*fn)(int64_t id, int fd, const char *text, void *opaque), void *opaque)
{
    for (unsigned i = 0; rows && i < rows->len; i++) {
        const FdRow *row = &g_array_index(rows, FdRow, i);
        fn(row->set, row->fd, row->opaque, opaque);
    }
}

int fdset_open(const char *path, int flags, mode_t mode)
{
    const char *number = path + strlen(FDSET_PREFIX);
    guint64 id;

    if (!g_str_has_prefix(path, FDSET_PREFIX) ||
        !g_ascii_string_to_unsigned(number, 10, 0, G_MAXINT64, &id, NULL)) {
        return open(path, flags | O_CLOEXEC, mode);
    }
    errno = ENOENT;
    for (unsigned i = 0; rows && i < rows->len; i++) {
        const FdRow *row = &g_array_index(rows, FdRow, i);
        int have = row->set == (int64_t)id ? fcntl(row->fd, F_GETFL) : -1;
        if (row->set == (int64_t)id) {
            errno = EACCES;
        }
        if (have >= 0 && (have & O_ACCMODE) == (flags & O_ACCMODE)) {
            return fcntl(row->fd, F_DUPFD_CLOEXEC, 0);
        }
    }
    return -1;
}

void fdset_cleanup(void)
{
    g_clear_pointer(&rows, g_array_unref);
}
