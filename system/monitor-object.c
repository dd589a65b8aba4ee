/*
 * -object monitor-qmp,id=…,chardev=… and monitor-hmp: monitors as objects, made and deleted like
 * others, also while the machine runs.
 */
#include "chardev/chardev.h"
#include "qapi/monitor.h"
#include "qom/object.h"
#include "system.h"
#include "util/error.h"

typedef struct MonitorObject {
    Object parent_obj;
    char *chardev;
    bool pretty, readline;
    Monitor *monitor; /* from complete() on */
} MonitorObject;
typedef struct MonitorObjectClass {
    ObjectClass parent_class;
} MonitorObjectClass;
typedef MonitorObject MonitorQmp;
typedef MonitorObjectClass MonitorQmpClass;
typedef MonitorObject MonitorHmp;
typedef MonitorObjectClass MonitorHmpClass;

GType monitor_object_get_type(void);
GType monitor_qmp_get_type(void);
GType monitor_hmp_get_type(void);
G_DEFINE_ABSTRACT_TYPE(MonitorObject, monitor_object, TYPE_OBJECT)
G_DEFINE_TYPE(MonitorQmp, monitor_qmp, monitor_object_get_type())
G_DEFINE_TYPE(MonitorHmp, monitor_hmp, monitor_object_get_type())

static gboolean monitor_object_complete(Object *obj, GError **errp)
{
    MonitorObject *m = (MonitorObject *)obj;
    Chardev *chr = m->chardev ? chardev_find(m->chardev) : NULL;

    if (!m->chardev) {
        return error_set(errp, "Parameter 'chardev' is missing");
    }
    if (!chr) {
        return error_set(errp, "chardev \"%s\" not found", m->chardev);
    }
    m->monitor = g_type_is_a(G_OBJECT_TYPE(obj), monitor_qmp_get_type())
                     ? monitor_new_qmp(chr, m->pretty, errp)
                     : monitor_new_hmp(chr, m->readline, errp);
    return m->monitor != NULL;
}

static void monitor_object_unparent(Object *obj)
{
    MonitorObject *m = (MonitorObject *)obj;

    if (m->monitor) {
        monitor_remove(m->monitor);
        m->monitor = NULL;
    }
}

static const Property common_props[] = {
    PROP_STRING("chardev", MonitorObject, chardev, "Id of the character device it is on"),
    PROP_END,
};
static const Property qmp_props[] = {
    PROP_BOOL("pretty", MonitorObject, pretty, false, "Answers are indented"),
    PROP_END,
};
static const Property hmp_props[] = {
    PROP_BOOL("readline", MonitorObject, readline, true, "Lines can be edited"),
    PROP_END,
};

static void monitor_object_init(MonitorObject *m) {}
static void monitor_qmp_init(MonitorQmp *m) {}
static void monitor_hmp_init(MonitorHmp *m) {}

static void monitor_object_class_init(MonitorObjectClass *klass)
{
    ObjectClass *object_class = &klass->parent_class;

    object_class->qom_name = "monitor";
    object_class->complete = monitor_object_complete;
    object_class->unparent = monitor_object_unparent;
    qom_class_set_props(klass, common_props);
}

static void monitor_qmp_class_init(MonitorQmpClass *klass)
{
    klass->parent_class.qom_name = "monitor-qmp";
    klass->parent_class.description = "QMP monitor on a character device";
    klass->parent_class.user_creatable = true;
    qom_class_set_props(klass, qmp_props);
}

static void monitor_hmp_class_init(MonitorHmpClass *klass)
{
    klass->parent_class.qom_name = "monitor-hmp";
    klass->parent_class.description = "Monitor for people on a character device";
    klass->parent_class.user_creatable = true;
    qom_class_set_props(klass, hmp_props);
}

void monitor_object_register_types(void)
{
    qom_register_type(monitor_object_get_type());
    qom_register_type(monitor_qmp_get_type());
    qom_register_type(monitor_hmp_get_type());
}
