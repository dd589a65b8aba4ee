/*
 * QMP commands about character devices, and about file descriptors that clients pass.
 *
 * chardev-add's nested description is turned into the flat one that -chardev has, so that one
 * piece of code checks and makes both.
 */
#include "qapi/monitor-priv.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "qapi/qapi-commands.h"
#include "util/error.h"
#include "util/fdset.h"
#include "util/json.h"

static gboolean id_is_plain(const char *id, GError **errp)
{
    const char *p = id;

    while (g_ascii_isalnum(*p) || *p == '-' || *p == '.' || *p == '_') {
        p++;
    }
    return (g_ascii_isalpha(id[0]) && !*p) ||
           error_set(errp, "Parameter 'id' expects an identifier: a letter, then letters, digits, "
                           "'-', '.', '_'");
}

static bool fd_is_stream_socket(int fd)
{
    socklen_t size = sizeof(int);
    int type;

    return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM;
}

static void append_chardev(Chardev *chr, void *opaque)
{
    ChardevInfoList ***tail = opaque;
    ChardevInfo *info = g_new0(ChardevInfo, 1);

    info->label = g_strdup(chardev_id(chr));
    info->filename = chardev_filename(chr);
    info->frontend_open = chardev_in_use(chr);
    QAPI_LIST_APPEND(*tail, info);
}

ChardevInfoList *qmp_query_chardev(GError **errp)
{
    ChardevInfoList *list = NULL, **tail = &list;

    chardev_foreach(append_chardev, &tail);
    return list;
}

void qmp_chardev_remove(const char *id, GError **errp)
{
    chardev_remove(id, errp);
}

static void append_backend(const char *type, const char *const *keys, void *opaque)
{
    ChardevBackendInfoList ***tail = opaque;
    ChardevBackendInfo *info = g_new0(ChardevBackendInfo, 1);

    info->name = g_strdup(type);
    QAPI_LIST_APPEND(*tail, info);
}

ChardevBackendInfoList *qmp_query_chardev_backends(GError **errp)
{
    ChardevBackendInfoList *list = NULL, **tail = &list;

    chardev_foreach_type(append_backend, &tail);
    return list;
}

/* ---- chardev-add ---- */

static void put_optional_bool(json_object *options, const char *key, bool has, bool value)
{
    if (has) {
        json_put_string(options, key, value ? "on" : "off");
    }
}

static void put_number(json_object *options, const char *key, int64_t value)
{
    g_autofree char *text = g_strdup_printf("%" PRId64, value);

    json_put_string(options, key, text);
}

static void flatten_inet(const InetSocketAddress *inet, json_object *options)
{
    json_put_string(options, "host", inet->host);
    json_put_string(options, "port", inet->port);
    put_optional_bool(options, "ipv4", inet->has_ipv4, inet->ipv4);
    put_optional_bool(options, "ipv6", inet->has_ipv6, inet->ipv6);
    if (inet->has_to) {
        put_number(options, "to", inet->to);
    }
}

/* *fd: one that getfd kept under the name given, now ours; else -1. */
static gboolean flatten_address(const SocketAddressLegacy *addr, json_object *options, int *fd,
                                GError **errp)
{
    switch (addr->type) {
    case SOCKET_ADDRESS_TYPE_INET:
        flatten_inet(addr->u.inet.data, options);
        return TRUE;
    case SOCKET_ADDRESS_TYPE_UNIX:
        json_put_string(options, "path", addr->u.q_unix.data->path);
        put_optional_bool(options, "abstract", addr->u.q_unix.data->has_abstract,
                          addr->u.q_unix.data->abstract);
        return TRUE;
    case SOCKET_ADDRESS_TYPE_FD:
        break;
    default:
        return error_set(errp,
                         "Parameter 'backend.data.addr.type' does not accept value '%s', "
                         "allowed: inet, unix, fd",
                         SocketAddressType_str(addr->type));
    }
    const char *name = addr->u.fd.data->str;
    if (g_ascii_isdigit(name[0])) {
        json_put_string(options, "fd", name);
        return TRUE;
    }
    *fd = monitor_get_fd(monitor_current(), name, errp);
    if (*fd < 0) {
        return FALSE;
    }
    put_number(options, "fd", *fd);
    return TRUE;
}

static gboolean flatten_socket(const ChardevSocket *s, json_object *options, int *fd, GError **errp)
{
    bool server = !s->has_server || s->server;

    if (s->has_wait && s->wait) {
        return error_set(errp, "Parameter 'backend.data.wait' does not accept value 'true': a "
                               "command does not wait");
    }
    json_put_string(options, "server", server ? "on" : "off");
    if (server) {
        json_put_string(options, "wait", "off");
    }
    put_optional_bool(options, "nodelay", s->has_nodelay, s->nodelay);
    if (s->has_reconnect) {
        put_number(options, "reconnect", s->reconnect);
    }
    if (s->has_reconnect_ms) {
        put_number(options, "reconnect-ms", s->reconnect_ms);
    }
    return flatten_address(s->addr, options, fd, errp);
}

static void flatten_file(const ChardevFile *file, json_object *options)
{
    json_put_string(options, "path", file->out);
    if (file->in) {
        json_put_string(options, "input-path", file->in);
    }
    put_optional_bool(options, "append", file->has_append, file->append);
}

static gboolean flatten_backend(const ChardevBackend *backend, json_object *options, int *fd,
                                GError **errp)
{
    const ChardevRingbuf *ringbuf = NULL;

    json_put_string(options, "backend", ChardevBackendKind_str(backend->type));
    switch (backend->type) {
    case CHARDEV_BACKEND_KIND_FILE:
        flatten_file(backend->u.file.data, options);
        break;
    case CHARDEV_BACKEND_KIND_PIPE:
        json_put_string(options, "path", backend->u.pipe.data->device);
        break;
    case CHARDEV_BACKEND_KIND_SOCKET:
        return flatten_socket(backend->u.socket.data, options, fd, errp);
    case CHARDEV_BACKEND_KIND_STDIO:
        put_optional_bool(options, "signal", backend->u.stdio.data->has_signal,
                          backend->u.stdio.data->signal);
        break;
    case CHARDEV_BACKEND_KIND_RINGBUF:
        ringbuf = backend->u.ringbuf.data;
        break;
    case CHARDEV_BACKEND_KIND_MEMORY:
        ringbuf = backend->u.memory.data;
        break;
    default:
        break;
    }
    if (ringbuf && ringbuf->has_size) {
        put_number(options, "size", ringbuf->size);
    }
    return TRUE;
}

Chardev *monitor_change_chardev(const char *id, json_object *options, GError **errp)
{
    Monitor *mon = monitor_current();

    if (mon && mon->chr == chardev_find(id)) {
        error_set(errp, "Chardev '%s' is busy: this command came by it", id);
        return NULL;
    }
    return chardev_change(id, options, errp);
}

typedef Chardev *OpenFunc(const char *id, json_object *options, GError **errp);

static Chardev *open_new(const char *id, json_object *options, GError **errp)
{
    json_put_string(options, "id", id);
    return id_is_plain(id, errp) ? chardev_new(options, errp) : NULL;
}

/* Makes what @backend describes by @open. */
static ChardevReturn *open_backend(OpenFunc *open, const char *id, const ChardevBackend *backend,
                                   GError **errp)
{
    json_object *options = json_object_new_object();
    ChardevReturn *ret = NULL;
    int fd = -1;
    Chardev *chr = flatten_backend(backend, options, &fd, errp) ? open(id, options, errp) : NULL;

    if (chr) {
        g_autofree char *filename = chardev_filename(chr);
        ret = g_new0(ChardevReturn, 1);
        if (g_str_has_prefix(filename, "pty:")) {
            ret->pty = g_strdup(filename + strlen("pty:"));
        }
    } else if (fd >= 0) {
        close(fd);
    }
    json_object_put(options);
    return ret;
}

ChardevReturn *qmp_chardev_add(const char *id, ChardevBackend *backend, GError **errp)
{
    return open_backend(open_new, id, backend, errp);
}

ChardevReturn *qmp_chardev_change(const char *id, ChardevBackend *backend, GError **errp)
{
    return open_backend(monitor_change_chardev, id, backend, errp);
}

void qmp_add_client(const char *protocol, const char *fdname, bool has_skipauth, bool skipauth,
                    bool has_tls, bool tls, GError **errp)
{
    Chardev *chr = chardev_find(protocol);
    int fd = monitor_get_fd(monitor_current(), fdname, errp);

    if (fd < 0) {
        return;
    }
    if (!chr) {
        error_set(errp, "protocol '%s' is invalid: it is the name of a character device", protocol);
    } else if (has_tls && tls) {
        error_set(errp, "Parameter 'tls' does not accept value 'true', allowed: false");
    } else if (!fd_is_stream_socket(fd)) {
        error_set(errp, "parameter @fdname must name a socket");
    } else if (chardev_add_client(chr, fd, errp)) {
        return;
    }
    close(fd);
}

/* ---- ring buffers ---- */

static Chardev *find_ringbuf(const char *device, GError **errp)
{
    Chardev *chr = chardev_find(device);

    if (!chr) {
        error_set(errp, "Device '%s' not found", device);
    }
    return chr;
}

void qmp_ringbuf_write(const char *device, const char *data, bool has_format, DataFormat format,
                       GError **errp)
{
    Chardev *chr = find_ringbuf(device, errp);
    g_autofree guchar *decoded = NULL;
    gsize size = strlen(data);

    if (!chr) {
        return;
    }
    if (has_format && format == DATA_FORMAT_BASE64) {
        decoded = g_base64_decode(data, &size);
        g_autofree char *again = g_base64_encode(decoded, size);
        if (strcmp(again, data)) {
            error_set(errp, "Parameter 'data' is not in Base64");
            return;
        }
    }
    chardev_ringbuf_write(chr, decoded ? (const char *)decoded : data, size, errp);
}

char *qmp_ringbuf_read(const char *device, int64_t size, bool has_format, DataFormat format,
                       GError **errp)
{
    Chardev *chr = find_ringbuf(device, errp);

    if (!chr) {
        return NULL;
    }
    if (size <= 0) {
        error_set(errp, "size must be greater than zero");
        return NULL;
    }
    GByteArray *bytes = chardev_ringbuf_read(chr, (size_t)size, errp);
    if (!bytes) {
        return NULL;
    }
    char *text = has_format && format == DATA_FORMAT_BASE64
                     ? g_base64_encode(bytes->data, bytes->len)
                     : g_utf8_make_valid((const char *)bytes->data, bytes->len);
    g_byte_array_unref(bytes);
    return text;
}

/* ---- yank ---- */

static void append_yankable(Chardev *chr, void *opaque)
{
    YankInstanceList ***tail = opaque;

    if (!strcmp(chardev_type(chr), "socket")) {
        YankInstance *instance = g_new0(YankInstance, 1);
        instance->type = YANK_INSTANCE_TYPE_CHARDEV;
        instance->id = g_strdup(chardev_id(chr));
        QAPI_LIST_APPEND(*tail, instance);
    }
}

YankInstanceList *qmp_query_yank(GError **errp)
{
    YankInstanceList *list = NULL, **tail = &list;

    chardev_foreach(append_yankable, &tail);
    return list;
}

void qmp_yank(YankInstanceList *instances, GError **errp)
{
    /* All or none: names first. */
    for (YankInstanceList *l = instances; l; l = l->next) {
        Chardev *chr = chardev_find(l->value->id);
        if (!chr || strcmp(chardev_type(chr), "socket")) {
            error_set_class(errp, ERROR_DEVICE_NOT_FOUND, "Instance chardev/%s not found",
                            l->value->id);
            return;
        }
    }
    for (YankInstanceList *l = instances; l; l = l->next) {
        chardev_disconnect(chardev_find(l->value->id));
    }
}

/* ---- file descriptors ---- */

void qmp_getfd(const char *fdname, GError **errp)
{
    Monitor *mon = monitor_current();
    int fd = mon ? chardev_take_fd(mon->chr) : -1;

    if (fd < 0) {
        error_set(errp, "No file descriptor supplied via SCM_RIGHTS");
        return;
    }
    if (g_ascii_isdigit(fdname[0])) { /* "fd=5" must stay a number */
        close(fd);
        error_set(errp,
                  "Parameter 'fdname' does not accept value '%s', allowed: a name that does "
                  "not begin with a digit",
                  fdname);
        return;
    }
    g_hash_table_replace(mon->fds, g_strdup(fdname), GINT_TO_POINTER(fd));
}

void qmp_closefd(const char *fdname, GError **errp)
{
    Monitor *mon = monitor_current();

    if (!mon || !g_hash_table_remove(mon->fds, fdname)) {
        error_set(errp, "File descriptor named '%s' not found", fdname);
    }
}

AddfdInfo *qmp_add_fd(bool has_fdset_id, int64_t fdset_id, const char *opaque, GError **errp)
{
    Monitor *mon = monitor_current();
    int fd = mon ? chardev_take_fd(mon->chr) : -1;
    int64_t id = -1;

    if (fd < 0) {
        error_set(errp, "No file descriptor supplied via SCM_RIGHTS");
        return NULL;
    }
    if (has_fdset_id) {
        id = fdset_id < 0 ? -2 : fdset_id;
    }
    if (!fdset_add(&id, fd, opaque, errp)) {
        close(fd);
        return NULL;
    }
    AddfdInfo *info = g_new0(AddfdInfo, 1);
    info->fdset_id = id;
    info->fd = fd;
    return info;
}

void qmp_remove_fd(int64_t fdset_id, bool has_fd, int64_t fd, GError **errp)
{
    if (has_fd && (fd < 0 || fd > INT32_MAX)) {
        error_set(errp, "File descriptor named 'fdset-id:%" PRId64 ", fd:%" PRId64 "' not found",
                  fdset_id, fd);
        return;
    }
    fdset_remove(fdset_id, has_fd ? (int)fd : -1, errp);
}

typedef struct FdsetWalk {
    FdsetInfoList *list, **tail;
    FdsetInfo *set;
    FdsetFdInfoList **fds;
} FdsetWalk;

static void append_fdset_row(int64_t id, int fd, const char *text, void *opaque)
{
    FdsetWalk *walk = opaque;

    if (!walk->set || walk->set->fdset_id != id) {
        walk->set = g_new0(FdsetInfo, 1);
        walk->set->fdset_id = id;
        walk->fds = &walk->set->fds;
        QAPI_LIST_APPEND(walk->tail, walk->set);
    }
    FdsetFdInfo *info = g_new0(FdsetFdInfo, 1);
    info->fd = fd;
    info->opaque = g_strdup(text);
    QAPI_LIST_APPEND(walk->fds, info);
}

FdsetInfoList *qmp_query_fdsets(GError **errp)
{
    FdsetWalk walk = {.tail = &walk.list};

    fdset_foreach(append_fdset_row, &walk);
    return walk.list;
}
