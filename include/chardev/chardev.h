/*
 * Character devices: byte streams to the outside, for monitors, qtest and filters.
 *
 * One front end uses a chardev at a time.  Reading never blocks and is driven by the loop;
 * writing never blocks either: what the outside does not take is queued up to a limit, and
 * chardev_write() says how much was accepted.  Main thread.
 */
#ifndef CHARDEV_CHARDEV_H
#define CHARDEV_CHARDEV_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Chardev Chardev;

typedef enum ChardevEvent { CHARDEV_OPENED, CHARDEV_CLOSED } ChardevEvent;

typedef struct ChardevHandlers {
    /* Bytes the front end can take now; 0 stops reading until chardev_accept_input(). NULL: any. */
    size_t (*can_read)(void *opaque);
    void (*read)(void *opaque, const char *data, size_t size);
    void (*event)(void *opaque, ChardevEvent event);
    void (*drained)(void *opaque); /* the write queue is empty again */
    /* From now on @chr is the device; the one before has said CHARDEV_CLOSED if it was open, @chr
     * says CHARDEV_OPENED when it is.  NULL: this front end stays with the device it has. */
    void (*changed)(void *opaque, Chardev *chr);
} ChardevHandlers;

/* Limit of chardev_write() for front ends that bound their output themselves. */
#define CHARDEV_NO_LIMIT SIZE_MAX

/*
 * A back end by options as `-chardev` has them: {"backend": "socket", "id": …, "path": …, …};
 * types socket, stdio, file, null, pipe, ringbuf, pty.  Registered under its id.
 * `-qtest unix:PATH`, `-qmp unix:…,server=on,wait=off`, `-monitor stdio` use
 * chardev_new_compat(), which takes that spelling.
 */
Chardev *chardev_new(json_object *options, GError **errp);
/* "socket,path=…,server=on,wait=off", as -chardev takes it: a new reference, NULL with error.
 * *help: types (or nothing) were asked. */
json_object *chardev_parse_options(const char *text, bool *help, GError **errp);
char *chardev_types_help(void); /* the types, one a line; g_free */
Chardev *chardev_new_compat(const char *id, const char *spec, GError **errp);
/* Puts a device of these options in the place of @id's, whose front end stays attached: see
 * ChardevHandlers.changed.  The old one is there until the new one is open.  The new one; NULL
 * with error, and nothing changed: no such device, its front end cannot, or the options. */
Chardev *chardev_change(const char *id, json_object *options, GError **errp);
gboolean chardev_remove(const char *id, GError **errp); /* refuses one in use */
Chardev *chardev_find(const char *id);
void chardev_foreach(void (*fn)(Chardev *chr, void *opaque), void *opaque);
void chardev_cleanup_all(void); /* at exit: flushes, closes, unlinks sockets we bound */

const char *chardev_id(const Chardev *chr);
const char *chardev_type(const Chardev *chr); /* "socket" */
/* As query-chardev prints it: "unix:PATH,server=on"; g_free. */
char *chardev_filename(const Chardev *chr);
/* All types, with the options each takes besides "backend" and "id" (NULL-ended). */
void chardev_foreach_type(void (*fn)(const char *type, const char *const *keys, void *opaque),
                          void *opaque);
bool chardev_is_open(const Chardev *chr);
bool chardev_in_use(const Chardev *chr);
/* Blocks until a server made with wait=on has its first client; nothing for all others. */
gboolean chardev_wait_connected(Chardev *chr, GError **errp);
/* Blocks until a socket chardev is connected, at most @timeout_ms (-1: for ever). */
gboolean chardev_wait_open(Chardev *chr, int timeout_ms, GError **errp);
bool chardev_is_unix_socket(const Chardev *chr);

/* Attach a front end (refuses a second one), or detach with handlers NULL. */
gboolean chardev_attach(Chardev *chr, const ChardevHandlers *handlers, void *opaque, GError **errp);
void chardev_detach(Chardev *chr);
void chardev_accept_input(Chardev *chr);

/* Queues @size bytes.  Never blocks; false when the queue would be over @limit bytes (nothing is
 * queued).  What is written while nobody is connected is lost, and true is returned. */
bool chardev_write(Chardev *chr, const char *data, size_t size, size_t limit);
size_t chardev_queued(const Chardev *chr); /* bytes that the outside has not taken */
/* Hangs up on a socket's peer, after what is queued as far as it goes at once; else nothing. */
void chardev_disconnect(Chardev *chr);
/* The next of the fds received with the last bytes over a UNIX socket, now the caller's; -1: none.
 */
int chardev_take_fd(Chardev *chr);
/*
 * For protocols of questions and answers on UNIX sockets (vhost-user).  Both block, at most
 * @timeout_ms.  send passes @nfds descriptors along; receive takes exactly @size bytes, past the
 * front end's read function.  FALSE with error: the front end should disconnect.
 */
gboolean chardev_send_sync(Chardev *chr, const void *data, size_t size, const int *fds,
                           unsigned nfds, int timeout_ms, GError **errp);
gboolean chardev_receive_sync(Chardev *chr, void *data, size_t size, int timeout_ms, GError **errp);
/* Sockets: @fd, which is taken on success, is a client that connected. */
gboolean chardev_add_client(Chardev *chr, int fd, GError **errp);

/* ringbuf: appends to it as a front end would, and takes up to @max bytes out; g_byte_array_unref.
 */
gboolean chardev_ringbuf_write(Chardev *chr, const void *data, size_t size, GError **errp);
GByteArray *chardev_ringbuf_read(Chardev *chr, size_t max, GError **errp);

#endif
