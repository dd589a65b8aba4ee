/*
 * -object vfio-user-server: one PCI device served to one client at a time.
 *
 * The protocol is QEMU's docs/interop/vfio-user.rst.  A client connects, negotiates
 * (VFIO_USER_VERSION), shares its memory (DMA_MAP), hands over eventfds for interrupts (SET_IRQS),
 * and from then on is the device's machine: configuration space and BARs are accessed by messages,
 * notifications by message or eventfd, packets move in the shared memory.  When it goes away, at
 * whatever byte, its eventfds are closed, the device is reset, its memory is unmapped, and the
 * next client is welcome.
 *
 *     -channel  messages on a socket            -device   the commands
 *     -version  the first message               -region   BARs and configuration space
 *     -dma, -dma-message  the client's memory   -irq      interrupts
 *     -log      dirty pages                     -sigbus   memory that its owner truncates
 *     -feature  the table of device features    -migration  device state, in and out
 *     -vmstate  the whole machine's migration: a new process takes over
 *
 * Once the machine's state has been saved, it may run on in another process that listens at the
 * same path.  What a client asks for is then neither read nor answered, until this process ends
 * (the client finds the other one) or its VM runs again.  The other one takes no client before the
 * state is there.
 *
 * machine-vfio-user.c is the machine that a served device sits in.  Everything is in the main
 * thread, except raising interrupts.
 *
 * A client's mistake is an error reply; what leaves the stream unreadable ends the connection.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "migration/migration.h"
#include "util/json.h"
#include "util/keyval.h"
#include "util/log.h"
#include "vfio-user-internal.h"
#include "util/trace.h"

#define ACCEPT_RETRY_NS 1000000000ll
#define BACKLOG         8
#define VM_PRIORITY     2 /* clients are answered when devices and back ends run */

typedef VfioUserServer XVfioUserServer;
typedef VfioUserServerClass XVfioUserServerClass;

G_DEFINE_TYPE(VfioUserServer, vfio_user_server, TYPE_OBJECT)
G_DEFINE_TYPE(XVfioUserServer, x_vfio_user_server, TYPE_VFIO_USER_SERVER)

static const char *server_name(VfioUserServer *server)
{
    return OBJECT(server)->name ? OBJECT(server)->name : "vfio-user-server";
}

/* --- a client's life --- */

static void accept_client(void *opaque);

static void set_listening(VfioUserServer *server, bool on)
{
    on = on && !server->saved;
    if (server->listen_fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), server->listen_fd, on ? accept_client : NULL,
                                  NULL, server);
    }
}

static void close_connection(VfioUserServer *server)
{
    vfio_user_channel_free(server->client);
    vfio_user_channel_free(server->reverse);
    server->client = server->reverse = NULL;
    server->negotiated = false;
    vfio_user_irqs_release(server);
}

/* Says why a connection ended, once a second: a client can do it as often as it likes. */
static void report_end(VfioUserServer *server, const char *why)
{
    static LogRate rate;
    unsigned left_out;

    if (why && log_rate_ok(&rate, &left_out)) {
        warn_report("vfio-user: %s: the client's connection is closed: %s", server_name(server),
                    why);
        if (left_out) {
            warn_report("vfio-user: %u connections before this one ended badly", left_out);
        }
    }
}

/* Forgets the client; the device is as after a machine's reset. */
static void client_gone(VfioUserServer *server, const char *why)
{
    bool was_there = server->negotiated;

    if (!server->client) {
        return;
    }
    report_end(server, why);
    close_connection(server);
    if (was_there) { /* else it has changed nothing: a restored device waits for the next */
        device_reset(DEVICE(server->pci));
        vfio_user_irqs_device_reset(server);
        vfio_user_dma_release(server);
        vfio_user_log_stop(server);
        vfio_user_migration_reset(server);
    }
    if (server->unplug_requested) {
        bh_schedule(server->unplug_bh);
    } else {
        set_listening(server, true);
    }
}

void vfio_user_reply(VfioUserServer *server, const VfioUserHeader *command, int error,
                     const void *payload, size_t size, const int *fds, unsigned nfds)
{
    VfioUserHeader header = {
        .id = command->id,
        .command = command->command,
        .size = (uint32_t)(sizeof(header) + (error ? 0 : size)),
        .flags = VFIO_USER_REPLY | (error ? VFIO_USER_ERROR : 0),
        .error = (uint32_t)error,
    };

    vfio_user_channel_send(server->client, &header, payload, error ? 0 : size, fds,
                           error ? 0 : nfds);
}

static void run_command(VfioUserServer *server, VfioUserMessage *message)
{
    VfioUserReply reply = {.data = g_byte_array_new()};
    int error = vfio_user_run_command(server, message, &reply);

    trace_vfio_user_command(message->header.id, message->header.command, error);
    if (server->client && !(message->header.flags & VFIO_USER_NO_REPLY)) {
        vfio_user_reply(server, &message->header, error, reply.data->data, reply.data->len,
                        reply.fds, reply.nfds);
    }
    g_byte_array_unref(reply.data);
}

static void client_message(void *opaque, VfioUserMessage *message)
{
    VfioUserServer *server = opaque;
    uint32_t type = message->header.flags & VFIO_USER_TYPE_MASK;
    const char *why = NULL;

    if (type == VFIO_USER_REPLY && server->negotiated) {
        /* To a call of ours that gave up waiting. */
    } else if (type != VFIO_USER_COMMAND) {
        why = "a message that is neither command nor reply";
    } else if (!server->negotiated) {
        why = vfio_user_negotiate(server, message);
    } else {
        run_command(server, message);
    }
    vfio_user_message_free(message);
    if (why) {
        vfio_user_channel_fail(server->client, why);
    }
}

static void client_closed(void *opaque, const char *why)
{
    client_gone(opaque, why);
}

/* The twin socket carries replies, and those are taken by the calls that wait for them. */
static void reverse_message(void *opaque, VfioUserMessage *message)
{
    vfio_user_message_free(message);
}

static void reverse_closed(void *opaque, const char *why)
{
    VfioUserServer *server = opaque;

    /* Usually both end together; then the other one tells. */
    vfio_user_channel_free(server->reverse);
    server->reverse = NULL;
    if (why) {
        vfio_user_channel_fail(server->client, why);
    }
}

static const VfioUserChannelOps client_ops = {.message = client_message, .closed = client_closed};
const VfioUserChannelOps vfio_user_reverse_ops = {.message = reverse_message,
                                                  .closed = reverse_closed};

static void use_connection(VfioUserServer *server, int fd)
{
    server->peer_max_fds = VFIO_USER_DEFAULT_MAX_FDS;
    server->peer_max_xfer = VFIO_USER_DEFAULT_MAX_XFER;
    server->client = vfio_user_channel_new(fd, &client_ops, server);
}

static void accept_again(void *opaque)
{
    VfioUserServer *server = opaque;

    if (!server->client) {
        set_listening(server, true);
    }
}

static void accept_client(void *opaque)
{
    VfioUserServer *server = opaque;
    int fd;

    if (migration_is_incoming()) {
        set_listening(server, false); /* until vfio_user_server_arrived() */
        return;
    }
    fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        /* One client a device: others wait in the backlog until this one has gone. */
        set_listening(server, false);
        use_connection(server, fd);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        warn_report("vfio-user: %s: cannot accept a client: %s", server_name(server),
                    g_strerror(errno));
        set_listening(server, false);
        timer_mod_ns(&server->accept_timer, clock_get_ns(CLOCK_HOST) + ACCEPT_RETRY_NS);
    }
}

/* --- another process takes over --- */

void vfio_user_server_saved(VfioUserServer *server)
{
    server->saved = true;
    if (server->client) {
        vfio_user_channel_hold(server->client);
    }
    set_listening(server, false);
}

void vfio_user_server_go_on(VfioUserServer *server)
{
    if (!server->saved) {
        return;
    }
    server->saved = false;
    if (server->client) {
        vfio_user_channel_go_on(server->client);
    } else {
        set_listening(server, true);
    }
}

void vfio_user_server_arrived(VfioUserServer *server)
{
    set_listening(server, !server->client);
}

static void vm_state_changed(void *opaque, bool running)
{
    if (running) {
        vfio_user_server_go_on(opaque);
    }
}

/* --- the socket --- */

/* Whether the socket at our path is still the one that we made. */
static bool owns_path(VfioUserServer *server)
{
    struct stat st;

    return server->bound && lstat(server->socket_path, &st) == 0 &&
           st.st_dev == server->socket_dev && st.st_ino == server->socket_ino;
}

static void note_path(VfioUserServer *server)
{
    struct stat st;

    if (lstat(server->socket_path, &st) == 0) {
        server->bound = true;
        server->socket_dev = st.st_dev;
        server->socket_ino = st.st_ino;
    }
}

static gboolean open_path(VfioUserServer *server, GError **errp)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    int fd;

    if (strlen(server->socket_path) >= sizeof(address.sun_path)) {
        return error_set(errp, "vfio-user-server: socket path '%s' is longer than %zu bytes",
                         server->socket_path, sizeof(address.sun_path) - 1);
    }
    strcpy(address.sun_path, server->socket_path);
    if (lstat(server->socket_path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        unlink(server->socket_path);
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
        note_path(server);
        server->listen_fd = fd;
        if (listen(fd, BACKLOG) == 0) {
            return TRUE;
        }
    } else if (fd >= 0) {
        int errnum = errno;

        close(fd);
        errno = errnum;
    }
    return error_set_errno(errp, errno, "vfio-user-server: cannot listen on '%s'",
                           server->socket_path);
}

/* An fd that listens, or one that is connected already. */
static gboolean open_fd(VfioUserServer *server, GError **errp)
{
    socklen_t length = sizeof(int);
    int listening = 0;
    uint64_t fd;

    if (!server->socket_fd) {
        return error_set(errp, "vfio-user-server: 'str', the number of the fd, is missing");
    }
    if (!parse_uint64("str", server->socket_fd, INT32_MAX, &fd, errp)) {
        return FALSE;
    }
    if (getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) < 0) {
        return error_set_errno(errp, errno, "vfio-user-server: fd %s is not a socket",
                               server->socket_fd);
    }
    if (listening) {
        server->listen_fd = (int)fd;
    } else {
        use_connection(server, (int)fd);
    }
    return TRUE;
}

static gboolean open_socket(VfioUserServer *server, GError **errp)
{
    const char *type = server->socket_type ? server->socket_type : "unix";

    if (!strcmp(type, "fd")) {
        return open_fd(server, errp);
    }
    if (strcmp(type, "unix")) {
        return error_set(errp,
                         "vfio-user-server: socket type '%s' is not available (allowed: "
                         "unix, fd)",
                         type);
    }
    if (!server->socket_path) {
        return error_set(errp, "vfio-user-server: the socket's 'path' is missing");
    }
    return open_path(server, errp);
}

static void close_socket(VfioUserServer *server)
{
    timer_del(&server->accept_timer);
    if (server->listen_fd >= 0) {
        set_listening(server, false);
        close(server->listen_fd);
        server->listen_fd = -1;
    }
    if (owns_path(server)) {
        unlink(server->socket_path);
    }
    server->bound = false;
}

/* --- the device --- */

static void unplug_now(void *opaque)
{
    VfioUserServer *server = opaque;

    if (server->pci) {
        device_remove(DEVICE(server->pci));
    }
}

gboolean vfio_user_server_unplug(VfioUserServer *server)
{
    server->unplug_requested = server->client && vfio_user_irq_request_release(server);
    return server->unplug_requested;
}

/* Lets go of the device, alive or not. */
static void server_detach(VfioUserServer *server)
{
    close_socket(server);
    if (!server->pci) {
        return;
    }
    vfio_user_host_set_server(server->pci, NULL);
    vfio_user_migration_reset(server);
    vfio_user_dma_cleanup(server);
    vfio_user_irqs_cleanup(server);
    g_clear_pointer(&server->vm_notifier, vm_state_remove_notifier);
    g_clear_pointer(&server->unplug_bh, bh_delete);
    if (server->rom_fd >= 0) {
        close(server->rom_fd);
        server->rom_fd = -1;
    }
    g_clear_object(&server->pci);
}

void vfio_user_server_device_gone(VfioUserServer *server)
{
    if (server->client) {
        close_connection(server);
    }
    server_detach(server);
}

static gboolean attach_device(VfioUserServer *server, GError **errp)
{
    DeviceState *dev;

    if (!server->device_id) {
        return error_set(errp, "vfio-user-server: 'device', the id of the device to serve, is "
                               "missing");
    }
    dev = device_find(server->device_id, errp);
    if (!dev) {
        return FALSE;
    }
    if (!IS_PCI_DEVICE(dev)) {
        return error_set(errp, "vfio-user-server: device '%s' is not a PCI device",
                         server->device_id);
    }
    if (!vfio_user_host_owns(PCI_DEVICE(dev))) {
        return error_set(errp,
                         "vfio-user-server: device '%s' belongs to this machine: use "
                         "-machine vfio-user",
                         server->device_id);
    }
    if (vfio_user_host_server(PCI_DEVICE(dev))) {
        return error_set(errp, "vfio-user-server: device '%s' is served already",
                         server->device_id);
    }
    server->pci = g_object_ref(PCI_DEVICE(dev));
    server->unplug_bh = bh_new(event_loop_main(), unplug_now, server);
    server->vm_notifier = vm_state_add_notifier(VM_PRIORITY, vm_state_changed, server);
    vfio_user_irqs_init(server);
    vfio_user_dma_init(server);
    vfio_user_migration_init(server);
    device_drain_begin(dev);
    vfio_user_host_set_server(server->pci, server);
    device_drain_end(dev);
    return TRUE;
}

/* --- the object --- */

static gboolean server_complete(Object *obj, GError **errp)
{
    VfioUserServer *server = VFIO_USER_SERVER(obj);

    if (!attach_device(server, errp) || !open_socket(server, errp)) {
        return FALSE;
    }
    set_listening(server, !server->client);
    return TRUE;
}

static void server_finalize(GObject *obj)
{
    VfioUserServer *server = VFIO_USER_SERVER(obj);

    if (server->pci) {
        DeviceState *dev = DEVICE(server->pci);

        server->unplug_requested = false;
        client_gone(server, NULL);
        g_object_ref(dev);
        device_drain_begin(dev);
        server_detach(server);
        device_drain_end(dev);
        g_object_unref(dev);
    }
    pthread_mutex_destroy(&server->irq_lock);
    G_OBJECT_CLASS(vfio_user_server_parent_class)->finalize(obj);
}

/* The members of a SocketAddress that we know, and where they are kept. */
static const struct SocketMember {
    const char *name;
    size_t offset;
} socket_members[] = {
    {"type", offsetof(VfioUserServer, socket_type)},
    {"path", offsetof(VfioUserServer, socket_path)},
    {"str", offsetof(VfioUserServer, socket_fd)},
};

static char **socket_field(Object *obj, const struct SocketMember *member)
{
    return (char **)((char *)obj + member->offset);
}

static gboolean socket_set_member(Object *obj, const char *key, json_object *value, GError **errp)
{
    const char *text = property_value_text(value);

    for (size_t i = 0; i < G_N_ELEMENTS(socket_members); i++) {
        if (text && !strcmp(socket_members[i].name, key)) {
            char **field = socket_field(obj, &socket_members[i]);

            g_free(*field);
            *field = g_strdup(text);
            return TRUE;
        }
    }
    return error_set(errp, "vfio-user-server: 'socket.%s' is %s (allowed: type, path, str)", key,
                     text ? "unknown" : "not a string");
}

/* "socket": {"type": "unix", "path": …}, as -object nests it from socket.type and socket.path. */
static gboolean socket_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    if (!json_object_is_type(value, json_type_object)) {
        return error_set(errp, "vfio-user-server: 'socket' is an object: "
                               "socket.type=unix,socket.path=…");
    }
    json_object_object_foreach(value, key, member)
    {
        if (!socket_set_member(obj, key, member, errp)) {
            return FALSE;
        }
    }
    return TRUE;
}

static json_object *socket_get(Object *obj, const Property *prop)
{
    json_object *value = json_object_new_object();

    for (size_t i = 0; i < G_N_ELEMENTS(socket_members); i++) {
        const char *text = *socket_field(obj, &socket_members[i]);

        if (text) {
            json_put_string(value, socket_members[i].name, text);
        }
    }
    return value;
}

static void socket_release(Object *obj, const Property *prop)
{
    for (size_t i = 0; i < G_N_ELEMENTS(socket_members); i++) {
        g_clear_pointer(socket_field(obj, &socket_members[i]), g_free);
    }
}

static json_object *connected_get(Object *obj, const Property *prop)
{
    return json_object_new_boolean(VFIO_USER_SERVER(obj)->negotiated);
}

static json_object *state_get(Object *obj, const Property *prop)
{
    const VfioUserServer *server = VFIO_USER_SERVER(obj);

    return json_object_new_string(vfio_user_migration_state_name(server->migration.state));
}

static const PropertyInfo prop_info_socket = {
    .type = "SocketAddress", .set = socket_set, .get = socket_get, .release = socket_release};
static const PropertyInfo prop_info_connected = {.type = "bool", .get = connected_get};

static const PropertyInfo prop_info_state = {.type = "string", .get = state_get};

static const Property server_props[] = {
    PROP_STRING("device", VfioUserServer, device_id, "Device to serve, by id"),
    {.name = "socket",
     .info = &prop_info_socket,
     .offset = offsetof(VfioUserServer, socket_path),
     .description = "Where to listen: type unix (path), or type fd (str, a number)"},
    {.name = "connected",
     .info = &prop_info_connected,
     .flags = PROP_F_READONLY,
     .description = "A client is connected and has negotiated"},
    {.name = "device-state",
     .info = &prop_info_state,
     .flags = PROP_F_READONLY,
     .description = "Migration state that the client set: running, stop, stop-copy, …"},
    PROP_END,
};

/* QEMU's spelling has the socket's members flat. */
static const Property x_server_props[] = {
    PROP_STRING("type", VfioUserServer, socket_type, "Type of the socket: unix or fd"),
    PROP_STRING("path", VfioUserServer, socket_path, "Path of a unix socket"),
    PROP_STRING("str", VfioUserServer, socket_fd, "Number of an fd"),
    PROP_END,
};

static void vfio_user_server_init(VfioUserServer *server)
{
    server->listen_fd = server->rom_fd = -1;
    timer_init(&server->accept_timer, event_loop_main(), CLOCK_HOST, accept_again, server);
    pthread_mutex_init(&server->irq_lock, NULL);
}

static void vfio_user_server_class_init(VfioUserServerClass *klass)
{
    ObjectClass *oc = (ObjectClass *)klass;

    G_OBJECT_CLASS(klass)->finalize = server_finalize;
    oc->qom_name = "vfio-user-server";
    oc->description = "Serves a PCI device to a VMM over vfio-user";
    oc->user_creatable = true;
    oc->complete = server_complete;
    qom_class_set_props(klass, server_props);
}

static void x_vfio_user_server_init(XVfioUserServer *server) {}

static void x_vfio_user_server_class_init(XVfioUserServerClass *klass)
{
    ObjectClass *oc = (ObjectClass *)klass;

    oc->qom_name = "x-vfio-user-server";
    oc->description = "The same with QEMU's spelling of its socket";
    qom_class_set_props(klass, x_server_props);
}
