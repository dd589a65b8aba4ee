/*
 * Between the core (chardev.c) and the back ends.  A back end opens something, hands fds to the
 * core with chardev_set_fds(), and is told when they end.
 */
#ifndef CHARDEV_CHARDEV_PRIV_H
#define CHARDEV_CHARDEV_PRIV_H

#include "chardev/chardev.h"
#include "util/event-loop.h"

typedef struct ChardevBackend {
    const char *type;
    const char *help;
    const char *const *keys; /* options besides "backend" and "id"; NULL-ended */
    size_t instance_size;    /* of a struct that begins with Chardev */
    gboolean (*open)(Chardev *chr, json_object *options, GError **errp);
    void (*close)(Chardev *chr);
    char *(*filename)(const Chardev *chr); /* g_free; NULL: the type's name */
    /* Reading or writing met the end or an error.  The core has forgotten the fds already. */
    void (*ended)(Chardev *chr);
    /* Takes the output instead of out_fd. */
    void (*write)(Chardev *chr, const char *data, size_t size);
} ChardevBackend;

struct Chardev {
    const ChardevBackend *backend;
    char *id;
    unsigned refs;
    bool is_open;

    const ChardevHandlers *handlers; /* NULL: no front end */
    ChardevHandlers handlers_copy;
    void *opaque;

    int in_fd, out_fd;  /* -1: none; may be the same */
    bool in_is_socket;  /* recvmsg, so that fds come along */
    bool out_is_socket; /* send, so that a lost connection is no signal */
    bool reading;       /* in_fd is watched for input */
    bool writing;       /* out_fd is watched for room */
    bool stalled;       /* the front end took no more; until chardev_accept_input() */
    GString *queue;     /* output that the outside has not taken */
    size_t queue_head;  /* bytes of @queue already written */
    GArray *passed_fds; /* int */
};

extern const ChardevBackend chardev_socket, chardev_stdio, chardev_file, chardev_pipe, chardev_pty,
    chardev_null, chardev_ringbuf, chardev_memory;

/* Uses these fds from now on and tells the front end CHARDEV_OPENED.  The back end closes them. */
void chardev_set_fds(Chardev *chr, int in_fd, int out_fd);
/* Forgets the fds and what is queued; tells the front end CHARDEV_CLOSED. */
void chardev_clear_fds(Chardev *chr);
void chardev_drop_passed_fds(Chardev *chr);
/* Writes what is queued for at most @timeout_ms. */
void chardev_flush(Chardev *chr, int timeout_ms);

/* The back end called @type, NULL when there is none. */
const ChardevBackend *chardev_backend_find(const char *type);
/* Refuses keys that @backend does not have, and values that are objects or lists. */
gboolean chardev_check_options(const ChardevBackend *backend, json_object *options, GError **errp);
/* The spelling "type:rest" as the options of -chardev; the caller's.  NULL with error. */
json_object *chardev_parse_compat(const char *spec, GError **errp);

/* Options: present, of the right form, else an error.  *value keeps its default when absent. */
gboolean chardev_opt_bool(json_object *options, const char *key, bool *value, GError **errp);
gboolean chardev_opt_uint(json_object *options, const char *key, uint64_t max, uint64_t *value,
                          GError **errp);
const char *chardev_opt_string(json_object *options, const char *key);

#endif
