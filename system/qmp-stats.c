/*
 * query-stats and query-stats-schemas: the counters of virtio-net devices.
 *
 * The device tells its counters as JSON, a queue pair an entry (property x-queue-stats); here
 * they are summed over the pairs.  One table says which there are and what they mean.
 */
#include <string.h>

#include "hw/virtio/virtio.h"
#include "net/net.h"
#include "qapi/qapi-commands.h"
#include "qapi/qapi-visit.h"
#include "system.h"
#include "util/error.h"
#include "util/json.h"

typedef struct Counter {
    const char *direction; /* "tx", "rx": the member of a queue pair */
    const char *name;      /* member of that */
    bool is_bytes;
} Counter;

static const Counter counters[] = {
    {"tx", "packets"},
    {"tx", "bytes", true},
    {"tx", "notifications"},
    {"tx", "suppressed"},
    {"tx", "spurious"},
    {"tx", "empty"},
    {"tx", "interrupts"},
    {"tx", "interrupts-suppressed"},
    {"tx", "interrupts-coalesced"},
    {"tx", "batches"},
    {"tx", "bursts"},
    {"tx", "stalls"},
    {"tx", "stall-ns"},
    {"tx", "wait-ns"},
    {"tx", "linearised"},
    {"tx", "bad-chains"},
    {"rx", "packets"},
    {"rx", "bytes", true},
    {"rx", "notifications"},
    {"rx", "interrupts"},
    {"rx", "interrupts-suppressed"},
    {"rx", "interrupts-coalesced"},
    {"rx", "batches"},
    {"rx", "buffers"},
    {"rx", "stalls"},
    {"rx", "bad-buffers"},
    {"rx", "bad-chains"},
};
/* Members of the group "flushes" of "tx". */
static const char *const flush_causes[] = {"notify", "bh", "timer", "poll", "resume"};
static const char *const directions[] = {"tx", "rx"};

typedef void CounterFunc(const char *name, bool is_bytes, const char *direction, const char *group,
                         const char *key, void *opaque);

/* All counters by the name clients see: "tx-packets", "rx-drops-no-buffer". */
static void foreach_counter(CounterFunc *fn, void *opaque)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(counters); i++) {
        const Counter *c = &counters[i];
        g_autofree char *name = g_strdup_printf("%s-%s", c->direction, c->name);
        fn(name, c->is_bytes, c->direction, NULL, c->name, opaque);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(flush_causes); i++) {
        g_autofree char *name = g_strdup_printf("tx-flushes-%s", flush_causes[i]);
        fn(name, false, "tx", "flushes", flush_causes[i], opaque);
    }
    for (unsigned d = 0; d < G_N_ELEMENTS(directions); d++) {
        for (unsigned i = 0; i < NET_DROP__MAX; i++) {
            g_autofree char *name =
                g_strdup_printf("%s-drops-%s", directions[d], net_drop_names[i]);
            fn(name, false, directions[d], "drops", net_drop_names[i], opaque);
        }
    }
}

/* ---- values ---- */

typedef struct Collect {
    json_object *pairs;
    const strList *names; /* only these; NULL: all */
    StatsList **tail;
} Collect;

static bool name_in(const strList *names, const char *name)
{
    for (; names; names = names->next) {
        if (!strcmp(names->value, name)) {
            return true;
        }
    }
    return false;
}

static void collect_counter(const char *name, bool is_bytes, const char *direction,
                            const char *group, const char *key, void *opaque)
{
    Collect *collect = opaque;
    uint64_t sum = 0;

    if (collect->names && !name_in(collect->names, name)) {
        return;
    }
    for (size_t i = 0; i < json_object_array_length(collect->pairs); i++) {
        json_object *part = json_member(json_object_array_get_idx(collect->pairs, i), direction);
        part = group ? json_member(part, group) : part;
        json_object *value = json_member(part, key);
        sum += value ? json_object_get_uint64(value) : 0;
    }
    Stats *stats = g_new0(Stats, 1);
    stats->name = g_strdup(name);
    stats->value = g_new0(StatsValue, 1);
    stats->value->type = STATS_VALUE_KIND_SCALAR;
    stats->value->u.scalar = sum;
    QAPI_LIST_APPEND(collect->tail, stats);
}

/* Adds the result of the device @obj, a virtio-net. */
static void add_device(Object *obj, const strList *names, StatsResultList ***tail)
{
    json_object *pairs = object_get_property(obj, "x-queue-stats", NULL);
    StatsResult *result = g_new0(StatsResult, 1);
    Collect collect = {pairs, names, &result->stats};

    if (!pairs) {
        g_free(result);
        return;
    }
    result->provider = STATS_PROVIDER_VIRTIO_NET;
    result->qom_path = object_canonical_path(obj);
    foreach_counter(collect_counter, &collect);
    QAPI_LIST_APPEND(*tail, result);
    json_object_put(pairs);
}

static bool is_net_device(Object *obj)
{
    return IS_VIRTIO_DEVICE(obj) && DEVICE(obj)->realized &&
           VIRTIO_DEVICE(obj)->device_id == VIRTIO_ID_NET;
}

static void add_all(Object *obj, const strList *names, StatsResultList ***tail)
{
    if (is_net_device(obj)) {
        add_device(obj, names, tail);
    }
    for (unsigned i = 0; obj->children && i < obj->children->len; i++) {
        add_all(g_ptr_array_index(obj->children, i), names, tail);
    }
}

/* Adds the devices that @wanted names by id, by path, or by the path of what carries them. */
static gboolean add_named(const strList *wanted, const strList *names, StatsResultList ***tail,
                          GError **errp)
{
    for (; wanted; wanted = wanted->next) {
        Object *obj = qom_resolve_path(wanted->value, NULL);
        if (obj && !is_net_device(obj)) {
            obj = object_child(obj, "virtio-backend");
        }
        if (!obj || !is_net_device(obj)) {
            return error_set_class(errp, ERROR_DEVICE_NOT_FOUND,
                                   "Device '%s' is no virtio-net device", wanted->value);
        }
        add_device(obj, names, tail);
    }
    return TRUE;
}

/* The names asked of our provider; *asked: it was asked at all. */
static const strList *requested_names(const StatsRequestList *providers, bool *asked)
{
    *asked = !providers;
    for (; providers; providers = providers->next) {
        if (providers->value->provider == STATS_PROVIDER_VIRTIO_NET) {
            *asked = true;
            return providers->value->names;
        }
    }
    return NULL;
}

StatsResultList *qmp_query_stats(StatsFilter *filter, GError **errp)
{
    StatsResultList *list = NULL, **tail = &list;
    bool asked;
    const strList *names = requested_names(filter->providers, &asked);

    if (!asked || filter->target != STATS_TARGET_DEVICE) {
        return NULL;
    }
    if (!filter->u.device.devices) {
        add_all(qom_container("/machine"), names, &tail);
    } else if (!add_named(filter->u.device.devices, names, &tail, errp)) {
        qapi_free_StatsResultList(list);
        return NULL;
    }
    return list;
}

/* ---- schemas ---- */

static void describe_counter(const char *name, bool is_bytes, const char *direction,
                             const char *group, const char *key, void *opaque)
{
    StatsSchemaValueList ***tail = opaque;
    StatsSchemaValue *value = g_new0(StatsSchemaValue, 1);

    value->name = g_strdup(name);
    value->type = STATS_TYPE_CUMULATIVE;
    if (is_bytes) {
        value->has_unit = value->has_base = true;
        value->unit = STATS_UNIT_BYTES;
        value->base = 2;
    }
    QAPI_LIST_APPEND(*tail, value);
}

StatsSchemaList *qmp_query_stats_schemas(bool has_provider, StatsProvider provider, GError **errp)
{
    StatsSchemaList *list = NULL;
    StatsSchema *schema = g_new0(StatsSchema, 1);
    StatsSchemaValueList **tail = &schema->stats;

    schema->provider = STATS_PROVIDER_VIRTIO_NET; /* the only one */
    schema->target = STATS_TARGET_DEVICE;
    foreach_counter(describe_counter, &tail);
    QAPI_LIST_PREPEND(list, schema);
    return list;
}

void hmp_info_stats(const char *args, GString *out)
{
    StatsResultList *list = NULL, **tail = &list;

    add_all(qom_container("/machine"), NULL, &tail);
    for (StatsResultList *l = list; l; l = l->next) {
        g_string_append_printf(out, "%s:\r\n", l->value->qom_path);
        for (StatsList *s = l->value->stats; s; s = s->next) {
            g_string_append_printf(out, "  %-24s %" PRIu64 "\r\n", s->value->name,
                                   s->value->value->u.scalar);
        }
    }
    qapi_free_StatsResultList(list);
}
