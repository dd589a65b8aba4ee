/*
 * QMP client: see qmp-client.h.
 *
 * Input passes through one json_tokener: it is fed what has arrived and stops after a complete
 * value; the rest stays in `input` for the next call.
 */
#include "guest/qmp-client.h"
#include <errno.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/unix-socket.h"

#define READ_SIZE 65536
#define MAX_VALUE (64u << 20) /* bytes: no answer of an emulator comes near */
#define MAX_DEPTH 128

struct QmpClient {
    int fd;
    unsigned timeout_ms;
    json_tokener *tokener;
    GByteArray *input;
    size_t value_size; /* bytes of the open value already in the tokener */
    json_object *greeting;
    GQueue events; /* json_object, oldest first */
    uint64_t next_id;
};

G_DEFINE_QUARK(qmp - client - error, qmp_client_error)

QmpClient *qmp_client_new(int fd)
{
    QmpClient *client = g_new0(QmpClient, 1);
    client->fd = fd;
    client->timeout_ms = 30000;
    client->tokener = json_tokener_new_ex(MAX_DEPTH);
    client->input = g_byte_array_new();
    g_queue_init(&client->events);
    return client;
}

QmpClient *qmp_client_connect(const char *path, GError **errp)
{
    int fd = unix_socket_connect("QMP socket", path, errp);
    if (fd < 0) {
        return NULL;
    }
    return qmp_client_new(fd);
}

void qmp_client_drop_events(QmpClient *client)
{
    json_object *event;
    while ((event = g_queue_pop_head(&client->events))) {
        json_object_put(event);
    }
}

void qmp_client_free(QmpClient *client)
{
    if (!client) {
        return;
    }
    close(client->fd);
    qmp_client_drop_events(client);
    json_object_put(client->greeting);
    json_tokener_free(client->tokener);
    g_byte_array_unref(client->input);
    g_free(client);
}

void qmp_client_set_timeout(QmpClient *client, unsigned ms)
{
    client->timeout_ms = ms;
}

int qmp_client_fd(const QmpClient *client)
{
    return client->fd;
}

json_object *qmp_client_greeting(const QmpClient *client)
{
    return client->greeting;
}

bool qmp_client_send_raw(QmpClient *client, const void *data, size_t size, GError **errp)
{
    return qmp_client_send_fd(client, data, size, -1, errp);
}

bool qmp_client_send_fd(QmpClient *client, const void *data, size_t size, int fd, GError **errp)
{
    const uint8_t *bytes = data;
    while (size > 0) {
        union {
            struct cmsghdr header;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control = {0};
        struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        if (fd >= 0) {
            message.msg_control = &control;
            message.msg_controllen = sizeof(control);
            control.header.cmsg_level = SOL_SOCKET;
            control.header.cmsg_type = SCM_RIGHTS;
            control.header.cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
        }
        ssize_t n = sendmsg(client->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_CLOSED, "QMP: %s", g_strerror(errno));
            return false;
        }
        fd = -1; /* once, with the first byte */
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

/* A complete value from what has been read.  NULL without error: more bytes are needed. */
static json_object *parse_input(QmpClient *client, GError **errp)
{
    GByteArray *in = client->input;
    /* Blanks between values would leave the tokener's end-of-value state unclear. */
    guint blanks = 0;
    while (client->value_size == 0 && blanks < in->len && g_ascii_isspace(in->data[blanks])) {
        blanks++;
    }
    g_byte_array_remove_range(in, 0, blanks);
    if (in->len == 0) {
        return NULL;
    }
    json_object *value = json_tokener_parse_ex(client->tokener, (char *)in->data, (int)in->len);
    enum json_tokener_error error = json_tokener_get_error(client->tokener);
    size_t used = MIN(json_tokener_get_parse_end(client->tokener), (size_t)in->len);
    if (error == json_tokener_continue) {
        client->value_size += in->len;
        g_byte_array_set_size(in, 0);
        if (client->value_size > MAX_VALUE) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "QMP: a value of over %u bytes",
                        MAX_VALUE);
        }
        return NULL;
    }
    json_tokener_reset(client->tokener);
    client->value_size = 0;
    if (error != json_tokener_success || !json_object_is_type(value, json_type_object)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "QMP: the emulator sent no object: %s",
                    json_tokener_error_desc(error));
        json_object_put(value);
        g_byte_array_set_size(in, 0);
        return NULL;
    }
    g_byte_array_remove_range(in, 0, (guint)used);
    return value;
}

/* Reads once, waiting up to @left_us. */
static bool fill_input(QmpClient *client, gint64 left_us, GError **errp)
{
    struct pollfd pfd = {.fd = client->fd, .events = POLLIN};
    if (poll(&pfd, 1, (int)(left_us / 1000) + 1) <= 0) {
        return true;
    }
    guint old = client->input->len;
    g_byte_array_set_size(client->input, old + READ_SIZE);
    ssize_t n = recv(client->fd, client->input->data + old, READ_SIZE, MSG_DONTWAIT);
    int saved = errno;
    g_byte_array_set_size(client->input, old + (guint)MAX(n, 0));
    if (n > 0 || (n < 0 && (saved == EINTR || saved == EAGAIN))) {
        return true;
    }
    g_set_error(errp, G_IO_ERROR, G_IO_ERROR_CLOSED, "QMP: %s",
                n == 0 ? "the emulator closed the connection" : g_strerror(saved));
    return false;
}

json_object *qmp_client_receive(QmpClient *client, unsigned ms, GError **errp)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)ms * 1000;
    for (;;) {
        GError *error = NULL;
        json_object *value = parse_input(client, &error);
        if (value || error) {
            if (error) {
                g_propagate_error(errp, error);
            }
            return value;
        }
        gint64 left = deadline - g_get_monotonic_time();
        if (left <= 0) {
            g_set_error(errp, G_IO_ERROR, G_IO_ERROR_TIMED_OUT, "QMP: no answer within %u ms", ms);
            return NULL;
        }
        if (!fill_input(client, left, errp)) {
            return NULL;
        }
    }
}

/* The next value that is no event. */
static json_object *receive_answer(QmpClient *client, GError **errp)
{
    for (;;) {
        json_object *value = qmp_client_receive(client, client->timeout_ms, errp);
        if (!value || !json_object_object_get_ex(value, "event", NULL)) {
            return value;
        }
        g_queue_push_tail(&client->events, value);
    }
}

bool qmp_client_negotiate(QmpClient *client, GError **errp)
{
    json_object *greeting = receive_answer(client, errp);
    if (!greeting) {
        return false;
    }
    json_object_put(client->greeting);
    client->greeting = greeting;
    if (!json_object_object_get_ex(greeting, "QMP", NULL)) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "QMP: the greeting is no QMP greeting");
        return false;
    }
    json_object *result = qmp_client_execute(client, "qmp_capabilities", NULL, errp);
    json_object_put(result);
    return result != NULL;
}

static const char *member_text(json_object *object, const char *key)
{
    json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    return value ? json_object_get_string(value) : "?";
}

/* Takes @answer over and splits it into "return" or an error. */
static json_object *unwrap_answer(json_object *answer, GError **errp)
{
    json_object *result = NULL, *error = NULL;
    if (json_object_object_get_ex(answer, "error", &error)) {
        g_set_error(errp, QMP_CLIENT_ERROR, 0, "%s: %s", member_text(error, "class"),
                    member_text(error, "desc"));
    } else if (json_object_object_get_ex(answer, "return", &result)) {
        json_object_get(result);
    } else {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "QMP: an answer that is none: %s",
                    json_object_to_json_string(answer));
    }
    json_object_put(answer);
    return result;
}

json_object *qmp_client_execute(QmpClient *client, const char *command, json_object *arguments,
                                GError **errp)
{
    uint64_t id = ++client->next_id;
    json_object *request = json_object_new_object();
    json_object_object_add(request, "execute", json_object_new_string(command));
    json_object_object_add(request, "id", json_object_new_int64((int64_t)id));
    if (arguments) {
        json_object_object_add(request, "arguments", arguments);
    }
    const char *text = json_object_to_json_string_ext(request, JSON_C_TO_STRING_PLAIN);
    g_autofree char *line = g_strconcat(text, "\n", NULL);
    json_object_put(request);
    if (!qmp_client_send_raw(client, line, strlen(line), errp)) {
        return NULL;
    }
    for (;;) {
        json_object *answer = receive_answer(client, errp);
        if (!answer) {
            return NULL;
        }
        json_object *echo = NULL;
        json_object_object_get_ex(answer, "id", &echo);
        if (echo && json_object_get_int64(echo) == (int64_t)id) {
            return unwrap_answer(answer, errp);
        }
        json_object_put(answer); /* of an earlier command that timed out */
    }
}

json_object *qmp_client_executef(QmpClient *client, const char *command, GError **errp,
                                 const char *arguments_format, ...)
{
    va_list ap;
    va_start(ap, arguments_format);
    g_autofree char *text = g_strdup_vprintf(arguments_format, ap);
    va_end(ap);
    json_object *arguments = json_tokener_parse(text);
    if (!arguments) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT, "QMP: arguments '%s': not JSON",
                    text);
        return NULL;
    }
    return qmp_client_execute(client, command, arguments, errp);
}

char *qmp_client_hmp(QmpClient *client, const char *command_line, GError **errp)
{
    json_object *arguments = json_object_new_object();
    json_object_object_add(arguments, "command-line", json_object_new_string(command_line));
    json_object *result = qmp_client_execute(client, "human-monitor-command", arguments, errp);
    if (!result) {
        return NULL;
    }
    char *text = g_strdup(json_object_get_string(result));
    json_object_put(result);
    return text;
}

json_object *qmp_client_qom_get(QmpClient *client, const char *path, const char *property,
                                GError **errp)
{
    json_object *arguments = json_object_new_object();
    json_object_object_add(arguments, "path", json_object_new_string(path));
    json_object_object_add(arguments, "property", json_object_new_string(property));
    return qmp_client_execute(client, "qom-get", arguments, errp);
}

static json_object *take_queued_event(QmpClient *client, const char *name)
{
    for (GList *link = client->events.head; link; link = link->next) {
        if (!name || strcmp(member_text(link->data, "event"), name) == 0) {
            json_object *event = link->data;
            g_queue_delete_link(&client->events, link);
            return event;
        }
    }
    return NULL;
}

json_object *qmp_client_wait_event(QmpClient *client, const char *name, unsigned ms, GError **errp)
{
    gint64 deadline = g_get_monotonic_time() + (gint64)ms * 1000;
    for (;;) {
        json_object *event = take_queued_event(client, name);
        if (event) {
            return event;
        }
        gint64 left = MAX(deadline - g_get_monotonic_time(), 0);
        json_object *value = qmp_client_receive(client, (unsigned)(left / 1000), errp);
        if (!value) {
            g_prefix_error(errp, "waiting for event %s: ", name ? name : "(any)");
            return NULL;
        }
        if (json_object_object_get_ex(value, "event", NULL)) {
            g_queue_push_tail(&client->events, value);
        } else {
            json_object_put(value);
        }
    }
}
