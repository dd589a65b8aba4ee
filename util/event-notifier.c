/* Eventfds with a name that says what they are for. */
#include "util/event-notifier.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/error.h"

gboolean event_notifier_init(EventNotifier *e, GError **errp)
{
    e->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (e->fd < 0) {
        return error_set_errno(errp, errno, "cannot make an eventfd");
    }
    return TRUE;
}

void event_notifier_init_fd(EventNotifier *e, int fd)
{
    e->fd = fd;
}

void event_notifier_cleanup(EventNotifier *e)
{
    if (e->fd >= 0) {
        close(e->fd);
        e->fd = -1;
    }
}

void event_notifier_set(EventNotifier *e)
{
    uint64_t one = 1;
    int saved_errno = errno;
    ssize_t n;

    do {
        n = write(e->fd, &one, sizeof(one));
    } while (n < 0 && errno == EINTR);
    /* EAGAIN: the counter is full, so it is set. */
    errno = saved_errno;
}

bool event_notifier_test_and_clear(EventNotifier *e)
{
    uint64_t value;
    ssize_t n;

    do {
        n = read(e->fd, &value, sizeof(value));
    } while (n < 0 && errno == EINTR);
    return n == sizeof(value);
}
