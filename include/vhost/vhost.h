/*
 * vhost: somebody else moves the packets between a guest's rings and the network.  Either the
 * host's kernel (/dev/vhost-net, by ioctl) or another process (vhost-user, by messages over a
 * socket); a VhostBackend is one such, seen through the same operations.
 *
 * Who makes one: a back end of net/ (tap with vhost=on, vhost-user).  Who drives it:
 * hw/virtio/vhost.c, which knows the virtio device.  Nothing here knows devices or netdevs.
 *
 * Main thread.
 */
#ifndef VHOST_VHOST_H
#define VHOST_VHOST_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct VhostBackend VhostBackend;
typedef struct Chardev Chardev;

/* A piece of guest RAM. */
typedef struct VhostRegion {
    uint64_t addr, size; /* guest physical */
    uint64_t host;       /* where this process has it */
    int fd;              /* what it is mapped from; -1: private memory of this process */
    uint64_t offset;     /* in @fd */
} VhostRegion;

/* A virtqueue that is handed over. */
typedef struct VhostVring {
    unsigned num;
    uint32_t base;              /* as SET_VRING_BASE takes it */
    uint64_t desc, avail, used; /* host addresses */
    uint64_t used_guest;        /* guest address of the used ring, for the log */
    bool log;
    int kick, call, err; /* eventfds; stay the caller's */
} VhostVring;

/* One bit a 4 KiB page of guest memory that was written. */
typedef struct VhostLog {
    int fd;
    uint64_t *bits;
    uint64_t size; /* bytes */
} VhostLog;

/* FALSE with error: refused, or the other side is gone (then backend->connection changes too).
 * Rings are numbered within the back end: 0 .. vrings - 1. */
typedef struct VhostBackendOps {
    const char *kind; /* for messages */
    bool needs_shared_memory;
    bool handles_frames; /* it is the network's end: offloads are its own, no tap is below */
    gboolean (*set_features)(VhostBackend *b, uint64_t features, GError **errp);
    gboolean (*set_memory)(VhostBackend *b, const VhostRegion *regions, unsigned count,
                           GError **errp);
    /* Until the next start; logging itself begins with VHOST_F_LOG_ALL. */
    gboolean (*set_log)(VhostBackend *b, const VhostLog *log, GError **errp);
    /* Before the first ring is started. @max_num: entries of the longest. */
    gboolean (*prepare)(VhostBackend *b, unsigned max_num, GError **errp);
    gboolean (*vring_start)(VhostBackend *b, unsigned index, const VhostVring *vring,
                            GError **errp);
    /* When it returns, the ring is not touched any more; *base: where it stopped. */
    gboolean (*vring_stop)(VhostBackend *b, unsigned index, uint32_t *base, GError **errp);
    /* Ring in use by the driver; NULL: nothing to say. */
    gboolean (*vring_enable)(VhostBackend *b, unsigned index, bool on, GError **errp);
    /* All rings are set up: go. */
    gboolean (*run)(VhostBackend *b, GError **errp);
    /* The driver reset the device; may be NULL. */
    void (*reset)(VhostBackend *b);
    gboolean (*set_mtu)(VhostBackend *b, uint16_t mtu, GError **errp); /* may be NULL */
    void (*free)(VhostBackend *b);
} VhostBackendOps;

/* What the device wants to hear. */
typedef struct VhostListener {
    /* The connection came, or was lost (backend->connected). */
    void (*changed)(void *opaque);
    /* The back end is about to go for good: stop it now and forget it. */
    void (*gone)(void *opaque);
    void *opaque;
} VhostListener;

struct VhostBackend {
    const VhostBackendOps *ops;
    char *name;        /* of the netdev */
    uint64_t features; /* virtio features it can take */
    uint64_t required; /* those the device offers its driver: a new connection must have them */
    unsigned vrings;
    unsigned max_regions;
    bool force;          /* also without MSI-X; and there is no other data path if it fails */
    bool connected;      /* messages may be sent */
    unsigned connection; /* number of the connection: another one knows nothing of before */
    bool has_config;     /* it has a configuration space */
    VhostListener listener;
};

/* The end: tells the listener, then frees. */
void vhost_backend_free(VhostBackend *b);
void vhost_backend_set_listener(VhostBackend *b, const VhostListener *listener); /* NULL: none */
void vhost_backend_changed(VhostBackend *b);

/* --- vhost-kernel.c --- */

/* Back end over an open /dev/vhost-net, @fd, for one queue pair whose packets go to @tap.  Takes
 * @fd on success.  @poll_us: busy polling. */
VhostBackend *vhost_kernel_new(const char *name, int fd, int tap, uint32_t poll_us, GError **errp);

/* --- vhost-user.c --- */

typedef struct VhostUser VhostUser;

/* What the owner wants to hear of a vhost-user back end; main thread. */
typedef struct VhostUserEvents {
    /* Connected and negotiated, or lost. */
    void (*link_changed)(void *opaque, bool up);
    void *opaque;
} VhostUserEvents;

/* Over the chardev @chr, for @queues queue pairs.  Waits for a connection that can be used: at most
 * @timeout_ms, or for ever (-1), as at start-up.  Takes the chardev while it lives. */
VhostBackend *vhost_user_new(const char *name, Chardev *chr, unsigned queues, int timeout_ms,
                             const VhostUserEvents *events, GError **errp);
/* False: the back end cannot do it (or is not there). */
bool vhost_user_send_rarp(VhostBackend *b, const uint8_t mac[6]);
/* Configuration space; returns the bytes got, 0 when there is none. */
unsigned vhost_user_get_config(VhostBackend *b, void *data, unsigned size);
bool vhost_user_has_protocol_feature(const VhostBackend *b, unsigned bit);

#endif
