/*
 * QMP commands about the whole emulator: running, stopping, resetting, ending, its names, the
 * machines it has and its threads.
 */
#include "hw/core/iothread.h"
#include "hw/core/machine.h"
#include "migration/migration.h"
#include "qapi/qapi-commands.h"
#include "system.h"
#include "util/error.h"
#include "util/runstate.h"

StatusInfo *qmp_query_status(GError **errp)
{
    StatusInfo *info = g_new0(StatusInfo, 1);

    info->running = vm_is_running();
    info->status = (RunState)vm_state(); /* same order */
    return info;
}

void qmp_stop(GError **errp)
{
    vm_stop(VM_PAUSED);
}

void qmp_cont(GError **errp)
{
    if (migration_may_start(errp)) {
        vm_start();
    }
}

void qmp_system_reset(GError **errp)
{
    vm_request_reset(SHUTDOWN_HOST_QMP_SYSTEM_RESET);
}

void qmp_quit(GError **errp)
{
    vm_request_shutdown(SHUTDOWN_HOST_QMP_QUIT);
}

NameInfo *qmp_query_name(GError **errp)
{
    NameInfo *info = g_new0(NameInfo, 1);

    info->name = g_strdup(settings.name);
    return info;
}

UuidInfo *qmp_query_uuid(GError **errp)
{
    UuidInfo *info = g_new0(UuidInfo, 1);

    info->UUID = g_strdup(settings.uuid ? settings.uuid : "00000000-0000-0000-0000-000000000000");
    return info;
}

static void add_machine(GType type, void *opaque)
{
    MachineInfoList ***tail = opaque;
    MachineClass *mc = g_type_class_ref(type);
    MachineInfo *info = g_new0(MachineInfo, 1);

    info->name = g_strdup(mc->name);
    info->alias = g_strdup(mc->alias);
    info->has_is_default = info->is_default = mc->is_default;
    info->cpu_max = mc->max_cpus ? mc->max_cpus : 1;
    info->hotpluggable_cpus = mc->hotpluggable_cpus;
    info->numa_mem_supported = mc->numa_mem_supported;
    info->default_cpu_type = g_strdup(mc->default_cpu_type);
    info->default_ram_id = g_strdup(mc->default_ram_id);
    QAPI_LIST_APPEND(*tail, info);
    g_type_class_unref(mc);
}

MachineInfoList *qmp_query_machines(GError **errp)
{
    MachineInfoList *list = NULL, **tail = &list;

    qom_foreach_type(TYPE_MACHINE, false, add_machine, &tail);
    return list;
}

IOThreadInfoList *qmp_query_iothreads(GError **errp)
{
    IOThreadInfoList *list = NULL, **tail = &list;
    Object *objects = qom_container("/objects");

    for (unsigned i = 0; objects->children && i < objects->children->len; i++) {
        Object *obj = g_ptr_array_index(objects->children, i);
        if (!IS_IOTHREAD(obj)) {
            continue;
        }
        IOThread *iothread = IOTHREAD(obj);
        IOThreadInfo *info = g_new0(IOThreadInfo, 1);
        info->id = g_strdup(obj->name);
        info->thread_id = event_loop_thread_id(iothread->loop);
        info->poll_max_ns = iothread->poll_max_ns;
        info->poll_grow = iothread->poll_grow;
        info->poll_shrink = iothread->poll_shrink;
        info->aio_max_batch = iothread->aio_max_batch;
        QAPI_LIST_APPEND(tail, info);
    }
    return list;
}
