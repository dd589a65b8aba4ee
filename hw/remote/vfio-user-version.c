/*
 * VFIO_USER_VERSION: the first message of a client, and what both sides can do.
 *
 * We speak 0.0.  A client of another major version, or whose data cannot be read, gets an error
 * reply and the connection ends; a newer minor version is answered with ours.  Of the capabilities
 * that are offers (twin_socket, write_multiple) the reply has those that the client named too;
 * the others are our limits and always there.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/json.h"
#include "vfio-user-internal.h"

/* The capability @name of the client as a number in [1, @max], else @fallback. */
static uint32_t limit(json_object *capabilities, const char *name, uint32_t fallback, uint32_t max)
{
    json_object *value = capabilities ? json_member(capabilities, name) : NULL;
    int64_t number = value && json_object_is_type(value, json_type_int)
                         ? json_object_get_int64(value)
                         : fallback;

    return (uint32_t)CLAMP(number, 1, (int64_t)max);
}

static bool is_true(json_object *object, const char *name)
{
    json_object *value = object ? json_member(object, name) : NULL;

    return value && json_object_is_type(value, json_type_boolean) && json_object_get_boolean(value);
}

static json_object *member_object(json_object *object, const char *name)
{
    json_object *value = object ? json_member(object, name) : NULL;

    return value && json_object_is_type(value, json_type_object) ? value : NULL;
}

/* Makes a socket of its own for our commands; the client's end, or -1. */
static int twin_socket_new(VfioUserServer *server)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        return -1;
    }
    server->reverse = vfio_user_channel_new(pair[0], &vfio_user_reverse_ops, server);
    return pair[1];
}

/* The reply's version data. */
static char *build_data(bool twin, bool write_multiple)
{
    json_object *data = json_object_new_object();
    json_object *ours = json_object_new_object();

    json_put_int(ours, "max_msg_fds", SERVER_MAX_FDS);
    json_put_int(ours, "max_data_xfer_size", SERVER_MAX_XFER);
    json_put_int(ours, "max_dma_maps", SERVER_MAX_DMA_MAPS);
    json_put_int(ours, "pgsizes", SERVER_PAGE_SIZE);
    if (write_multiple) {
        json_put_bool(ours, "write_multiple", true);
    }
    if (twin) {
        json_object *socket = json_object_new_object();

        json_put_bool(socket, "supported", true);
        json_put_int(socket, "fd_index", 0);
        json_object_object_add(ours, "twin_socket", socket);
    }
    json_object_object_add(data, "capabilities", ours);
    char *text = json_to_string(data);

    json_object_put(data);
    return text;
}

static void accept_version(VfioUserServer *server, VfioUserMessage *message, json_object *theirs)
{
    const VfioUserVersion *version = (VfioUserVersion *)message->payload;
    int twin = -1;

    server->peer_max_fds = limit(theirs, "max_msg_fds", VFIO_USER_DEFAULT_MAX_FDS, MESSAGE_MAX_FDS);
    server->peer_max_xfer =
        limit(theirs, "max_data_xfer_size", VFIO_USER_DEFAULT_MAX_XFER, SERVER_MAX_XFER);
    if (is_true(member_object(theirs, "twin_socket"), "supported")) {
        twin = twin_socket_new(server);
    }
    g_autofree char *text = build_data(twin >= 0, is_true(theirs, "write_multiple"));
    size_t length = strlen(text) + 1;
    g_autofree VfioUserVersion *answer = g_malloc(sizeof(*answer) + length);

    answer->major = VFIO_USER_MAJOR;
    answer->minor = MIN(version->minor, VFIO_USER_MINOR);
    memcpy(answer->data, text, length);
    vfio_user_reply(server, &message->header, 0, answer, sizeof(*answer) + length, &twin,
                    twin >= 0 ? 1 : 0);
    if (twin >= 0) {
        close(twin);
    }
    server->negotiated = true;
}

static const char *refuse(VfioUserServer *server, VfioUserMessage *message, const char *why)
{
    vfio_user_reply(server, &message->header, EINVAL, NULL, 0, NULL, 0);
    return why;
}

const char *vfio_user_negotiate(VfioUserServer *server, VfioUserMessage *message)
{
    const VfioUserVersion *version = (VfioUserVersion *)message->payload;
    json_object *data = NULL;

    if (message->header.command != VFIO_USER_VERSION || message->size < sizeof(*version)) {
        return refuse(server, message, "its first message was not VFIO_USER_VERSION");
    }
    if (version->major != VFIO_USER_MAJOR) {
        return refuse(server, message, "it speaks another major version of the protocol");
    }
    if (message->size > sizeof(*version)) {
        g_autofree char *text = g_strndup(version->data, message->size - sizeof(*version));

        data = json_parse(text, NULL);
        if (!data || !json_object_is_type(data, json_type_object)) {
            json_object_put(data);
            return refuse(server, message, "its version data is not a JSON object");
        }
    }
    accept_version(server, message, member_object(data, "capabilities"));
    json_object_put(data);
    return NULL;
}
