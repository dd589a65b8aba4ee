/*
 * QMP: JSON requests in, answers and events out, one session a client.
 *
 * Bytes go through a JsonFramer; each value becomes a QmpRequest in @requests and is run at once,
 * in order, unless the client does not read: while more than OUTPUT_HIGH bytes of answers wait,
 * requests stay queued and no more input is taken (what one read brought is the most that waits),
 * and events beyond EVENT_LIMIT are dropped and counted.  So one client holds a bounded amount of
 * memory and never blocks the device.  Out-of-band requests pass the queue.
 *
 * It does not know what commands do: they come from the generated table.
 */
#include "qapi/monitor-priv.h"

#include <stdlib.h>
#include <string.h>

#include "util/error.h"
#include "util/json.h"
#include "util/log.h"

#define READ_SIZE   (64u << 10)
#define OUTPUT_HIGH (256u << 10)
#define EVENT_LIMIT (1u << 20)
#define OOB_QUEUE   8 /* requests; as many as QEMU takes */

/* A value from the client, or why it was none. */
typedef struct QmpRequest {
    json_object *value;
    GError *err;
} QmpRequest;

typedef struct QmpMonitor {
    Monitor base;
    bool pretty;
    JsonFramer *framer;
    GQueue requests; /* of QmpRequest */
    bool running;    /* qmp_run_requests() is on the stack */
    bool negotiated;
    bool oob;
    uint64_t events_dropped; /* in this session */
} QmpMonitor;

/* What a request asks for, checked. */
typedef struct QmpCall {
    const char *command;
    json_object *arguments; /* borrowed, NULL: none */
    json_object *id;
    bool has_id;
    bool oob;
} QmpCall;

/* ---- Requests ---- */

static gboolean check_member(const QmpMonitor *m, QmpCall *call, const char *key,
                             json_object *value, GError **errp)
{
    bool oob = strcmp(key, "exec-oob") == 0 && m->oob;

    if (strcmp(key, "id") == 0) {
        return TRUE;
    }
    if (strcmp(key, "execute") == 0 || oob) {
        if (!json_object_is_type(value, json_type_string)) {
            return error_set(errp, "QMP input member '%s' must be a string", key);
        }
        if (call->command) {
            return error_set(errp, "QMP input member 'exec-oob' clashes with 'execute'");
        }
        call->command = json_object_get_string(value);
        call->oob = oob;
        return TRUE;
    }
    if (strcmp(key, "arguments") == 0) {
        if (!json_object_is_type(value, json_type_object)) {
            return error_set(errp, "QMP input member 'arguments' must be an object");
        }
        call->arguments = value;
        return TRUE;
    }
    return error_set(errp, "QMP input member '%s' is unexpected", key);
}

/* Fills @call from @request.  The id is there even when the rest is wrong. */
static gboolean check_request(const QmpMonitor *m, json_object *request, QmpCall *call,
                              GError **errp)
{
    if (!json_object_is_type(request, json_type_object)) {
        return error_set(errp, "QMP input must be a JSON object");
    }
    call->has_id = json_object_object_get_ex(request, "id", &call->id);
    json_object_object_foreach(request, key, value)
    {
        if (!check_member(m, call, key, value, errp)) {
            return FALSE;
        }
    }
    if (!call->command) {
        return error_set(errp, "QMP input lacks member 'execute'");
    }
    return TRUE;
}

static int compare_command(const void *name, const void *command)
{
    return strcmp(name, ((const QmpCommand *)command)->name);
}

static const QmpCommand *find_command(const char *name)
{
    static size_t count;

    if (!count) {
        while (qmp_commands[count].name) {
            count++;
        }
    }
    return bsearch(name, qmp_commands, count, sizeof(QmpCommand), compare_command);
}

/* Runs @command.  The answer, {} where it has none; NULL with error. */
static json_object *run_command(const QmpCommand *command, json_object *arguments, bool *ok,
                                GError **errp)
{
    json_object *none = arguments ? NULL : json_object_new_object(), *ret = NULL;
    GError *err = NULL;

    command->marshal(arguments ? arguments : none, &ret, &err);
    json_object_put(none);
    *ok = !err;
    if (err) {
        json_object_put(ret);
        g_propagate_error(errp, err);
        return NULL;
    }
    return ret || (command->flags & QMP_RETURNS_ANY) ? ret : json_object_new_object();
}

json_object *qmp_call(const char *name, json_object *args, GError **errp)
{
    const QmpCommand *command = find_command(name);
    bool ok;

    if (!command) {
        error_set_class(errp, ERROR_COMMAND_NOT_FOUND, "The command %s has not been found", name);
        return NULL;
    }
    return run_command(command, args, &ok, errp);
}

/* The command of @call, if it may run now. */
static const QmpCommand *admit_command(const QmpMonitor *m, const QmpCall *call, GError **errp)
{
    const QmpCommand *command;

    if (!m->negotiated && strcmp(call->command, "qmp_capabilities") != 0) {
        error_set_class(errp, ERROR_COMMAND_NOT_FOUND,
                        "Expecting capabilities negotiation with 'qmp_capabilities'");
        return NULL;
    }
    command = find_command(call->command);
    if (!command) {
        error_set_class(errp, ERROR_COMMAND_NOT_FOUND, "The command %s has not been found",
                        call->command);
        return NULL;
    }
    if (call->oob && !(command->flags & QMP_ALLOW_OOB)) {
        error_set(errp, "The command %s does not support OOB", call->command);
        return NULL;
    }
    return command;
}

/* ---- Answers ---- */

static json_object *error_object(const GError *err)
{
    static const char *const names[] = {
        [ERROR_GENERIC] = "GenericError",
        [ERROR_COMMAND_NOT_FOUND] = "CommandNotFound",
        [ERROR_DEVICE_NOT_FOUND] = "DeviceNotFound",
        [ERROR_DEVICE_NOT_ACTIVE] = "DeviceNotActive",
        [ERROR_KVM_MISSING_CAP] = "KVMMissingCap",
    };
    bool ours =
        err->domain == SWNIC_ERROR && err->code >= 0 && err->code < (int)G_N_ELEMENTS(names);
    json_object *obj = json_object_new_object();

    json_put_string(obj, "class", names[ours ? err->code : ERROR_GENERIC]);
    json_put_string(obj, "desc", err->message);
    return obj;
}

/* Queues one line for the client; false: more than @limit waits already. */
static bool send_object(QmpMonitor *m, json_object *obj, size_t limit)
{
    char *text = m->pretty ? json_to_pretty(obj) : json_to_string(obj);
    char *line = g_strconcat(text, "\r\n", NULL);
    bool ok = chardev_write(m->base.chr, line, strlen(line), limit);

    g_free(line);
    g_free(text);
    return ok;
}

/* Runs one request and answers it, unless its client has gone meanwhile. */
static void run_request(QmpMonitor *m, const QmpRequest *request)
{
    unsigned session = m->base.session;
    json_object *answer = json_object_new_object(), *ret = NULL;
    const QmpCommand *command = NULL;
    QmpCall call = {0};
    GError *err = request->err ? g_error_copy(request->err) : NULL;
    bool ok = false;

    if (!err && check_request(m, request->value, &call, &err)) {
        command = admit_command(m, &call, &err);
    }
    if (command) {
        ret = run_command(command, call.arguments, &ok, &err);
    }
    if (ok) {
        json_object_object_add(answer, "return", ret);
    }
    if (call.has_id) {
        json_object_object_add(answer, "id", json_object_get(call.id));
    }
    if (err) {
        json_object_object_add(answer, "error", error_object(err));
    }
    if (session == m->base.session && !(ok && (command->flags & QMP_NO_SUCCESS_RESPONSE))) {
        send_object(m, answer, SIZE_MAX);
    }
    json_object_put(answer);
    g_clear_error(&err);
}

static void request_free(gpointer data)
{
    QmpRequest *request = data;

    json_object_put(request->value);
    g_clear_error(&request->err);
    g_free(request);
}

static bool output_is_full(const QmpMonitor *m)
{
    return chardev_queued(m->base.chr) > OUTPUT_HIGH;
}

static void qmp_run_requests(QmpMonitor *m)
{
    if (m->running) {
        return; /* a command's own output drained: the loop below goes on */
    }
    m->running = true;
    while (!output_is_full(m)) {
        QmpRequest *request = g_queue_pop_head(&m->requests);

        if (!request) {
            break;
        }
        run_request(m, request);
        request_free(request);
    }
    m->running = false;
}

static bool is_out_of_band(const QmpMonitor *m, json_object *value)
{
    return m->oob && json_object_is_type(value, json_type_object) &&
           json_object_object_get_ex(value, "exec-oob", NULL);
}

/* One value from the framer. */
static void qmp_value(void *opaque, json_object *value, const GError *err)
{
    QmpMonitor *m = opaque;
    QmpRequest *request = g_new0(QmpRequest, 1);

    request->value = json_object_get(value);
    request->err = err ? g_error_copy(err) : NULL;
    if (is_out_of_band(m, value)) {
        run_request(m, request);
        request_free(request);
        return;
    }
    g_queue_push_tail(&m->requests, request);
    qmp_run_requests(m);
}

/* ---- Sessions ---- */

static size_t qmp_can_read(Monitor *mon)
{
    QmpMonitor *m = (QmpMonitor *)mon;

    /* With out-of-band execution a few requests may wait while one behind them is looked for. */
    if (m->oob) {
        return g_queue_get_length(&m->requests) < OOB_QUEUE ? READ_SIZE : 0;
    }
    return g_queue_is_empty(&m->requests) && !output_is_full(m) ? READ_SIZE : 0;
}

static void qmp_read(Monitor *mon, const char *data, size_t size)
{
    json_framer_feed(((QmpMonitor *)mon)->framer, data, size);
}

static void qmp_drained(Monitor *mon)
{
    QmpMonitor *m = (QmpMonitor *)mon;

    qmp_run_requests(m);
    if (qmp_can_read(mon)) {
        chardev_accept_input(mon->chr);
    }
}

static void qmp_opened(Monitor *mon)
{
    QmpMonitor *m = (QmpMonitor *)mon;
    json_object *greeting = json_object_new_object(), *qmp = json_object_new_object();
    json_object *capabilities = json_object_new_array();

    json_object_array_add(capabilities, json_object_new_string("oob"));
    json_object_object_add(qmp, "version", qmp_version());
    json_object_object_add(qmp, "capabilities", capabilities);
    json_object_object_add(greeting, "QMP", qmp);
    send_object(m, greeting, SIZE_MAX);
    json_object_put(greeting);
}

static void qmp_closed(Monitor *mon)
{
    QmpMonitor *m = (QmpMonitor *)mon;

    if (m->events_dropped) {
        log_printf("QMP client of '%s' did not read: %" G_GUINT64_FORMAT " events dropped\n",
                   chardev_id(mon->chr), m->events_dropped);
    }
    g_queue_clear_full(&m->requests, request_free);
    json_framer_free(m->framer);
    m->framer = json_framer_new(qmp_value, m);
    m->negotiated = m->oob = false;
    m->events_dropped = 0;
}

static void qmp_event(void *opaque, const char *name, json_object *event)
{
    QmpMonitor *m = opaque;

    (void)name;
    if (m->base.open && m->negotiated && !send_object(m, event, EVENT_LIMIT)) {
        m->events_dropped++;
    }
}

static void qmp_configure(Monitor *mon, bool pretty)
{
    QmpMonitor *m = (QmpMonitor *)mon;

    m->pretty = pretty;
    m->framer = json_framer_new(qmp_value, m);
    g_queue_init(&m->requests);
    qmp_event_listen(qmp_event, m);
}

static void qmp_release(Monitor *mon)
{
    QmpMonitor *m = (QmpMonitor *)mon;

    qmp_event_unlisten(qmp_event, m);
    g_queue_clear_full(&m->requests, request_free);
    json_framer_free(m->framer);
}

static const MonitorOps qmp_ops = {
    .size = sizeof(QmpMonitor),
    .can_read = qmp_can_read,
    .read = qmp_read,
    .opened = qmp_opened,
    .closed = qmp_closed,
    .drained = qmp_drained,
    .release = qmp_release,
};

Monitor *monitor_new_qmp(Chardev *chr, bool pretty, GError **errp)
{
    return monitor_new(&qmp_ops, chr, qmp_configure, pretty, errp);
}

bool qmp_session_negotiate(Monitor *mon, bool oob)
{
    QmpMonitor *m = (QmpMonitor *)mon;

    if (!mon || mon->ops != &qmp_ops || m->negotiated) {
        return false;
    }
    m->negotiated = true;
    m->oob = oob;
    return true;
}
