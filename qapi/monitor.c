/*
 * Monitors: what QMP and HMP have in common.  A monitor is the front end of one chardev; the kind
 * (MonitorOps) does the talking.  A client may come and go: each is a session of its own.
 *
 * Lifetime: any call into a monitor may end with its client gone, and a command may end monitors.
 * So calls are bracketed by monitor_enter() and monitor_leave(), and freeing waits for the last.
 */
#include "qapi/monitor-priv.h"

#include <unistd.h>

#include "util/error.h"

static GSList *monitors;
static Monitor *current;

Monitor *monitor_current(void)
{
    return current;
}

static void close_fd(gpointer fd)
{
    close(GPOINTER_TO_INT(fd));
}

static void monitor_free(Monitor *mon)
{
    mon->ops->release(mon);
    g_hash_table_destroy(mon->fds);
    g_free(mon);
}

Monitor *monitor_enter(Monitor *mon)
{
    Monitor *previous = current;

    mon->busy++;
    current = mon;
    return previous;
}

void monitor_leave(Monitor *mon, Monitor *previous)
{
    current = previous;
    if (--mon->busy == 0 && mon->dead) {
        monitor_free(mon);
    }
}

static size_t monitor_can_read(void *opaque)
{
    Monitor *mon = opaque;

    return mon->open && !mon->dead ? mon->ops->can_read(mon) : 0;
}

static void monitor_read(void *opaque, const char *data, size_t size)
{
    Monitor *mon = opaque;
    Monitor *previous = monitor_enter(mon);

    if (mon->open && !mon->dead) {
        mon->ops->read(mon, data, size);
    }
    monitor_leave(mon, previous);
}

static void monitor_open(Monitor *mon)
{
    if (!mon->open) {
        mon->open = true;
        mon->ops->opened(mon);
    }
}

static void monitor_close(Monitor *mon)
{
    if (mon->open) {
        mon->open = false;
        mon->session++;
        mon->ops->closed(mon);
        g_hash_table_remove_all(mon->fds);
    }
}

static void monitor_event(void *opaque, ChardevEvent event)
{
    Monitor *mon = opaque;
    Monitor *previous = monitor_enter(mon);

    if (event == CHARDEV_OPENED) {
        monitor_open(mon);
    } else {
        monitor_close(mon);
    }
    monitor_leave(mon, previous);
}

static void monitor_drained(void *opaque)
{
    Monitor *mon = opaque;
    Monitor *previous = monitor_enter(mon);

    if (mon->open && !mon->dead) {
        mon->ops->drained(mon);
    }
    monitor_leave(mon, previous);
}

static void monitor_changed(void *opaque, Chardev *chr)
{
    ((Monitor *)opaque)->chr = chr;
}

static const ChardevHandlers monitor_handlers = {
    .can_read = monitor_can_read,
    .read = monitor_read,
    .event = monitor_event,
    .drained = monitor_drained,
    .changed = monitor_changed,
};

Monitor *monitor_new(const MonitorOps *ops, Chardev *chr,
                     void (*configure)(Monitor *mon, bool flag), bool flag, GError **errp)
{
    Monitor *mon = g_malloc0(ops->size);

    mon->ops = ops;
    mon->chr = chr;
    mon->fds = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, close_fd);
    configure(mon, flag);
    if (!chardev_attach(chr, &monitor_handlers, mon, errp)) {
        monitor_free(mon);
        return NULL;
    }
    monitors = g_slist_append(monitors, mon);
    if (chardev_is_open(chr)) {
        monitor_event(mon, CHARDEV_OPENED);
    }
    return mon;
}

void monitor_remove(Monitor *mon)
{
    if (!g_slist_find(monitors, mon)) {
        return; /* monitor_cleanup_all() was first */
    }
    Monitor *previous = monitor_enter(mon);
    monitors = g_slist_remove(monitors, mon);
    chardev_detach(mon->chr); /* what is queued stays with the chardev and is sent */
    monitor_close(mon);
    mon->dead = true;
    monitor_leave(mon, previous);
}

void monitor_cleanup_all(void)
{
    while (monitors) {
        monitor_remove(monitors->data);
    }
    qmp_events_cleanup();
}

int monitor_get_fd(Monitor *mon, const char *name, GError **errp)
{
    gpointer key, value;

    if (!mon || !g_hash_table_steal_extended(mon->fds, name, &key, &value)) {
        error_set(errp, "File descriptor named '%s' has not been found", name);
        return -1;
    }
    g_free(key);
    return GPOINTER_TO_INT(value);
}
