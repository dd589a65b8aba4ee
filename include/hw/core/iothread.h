/* -object iothread,id=…: a thread with an event loop of its own. */
#ifndef HW_CORE_IOTHREAD_H
#define HW_CORE_IOTHREAD_H

#include "qom/object.h"
#include "util/event-loop.h"

typedef struct IOThread {
    Object parent_obj;
    EventLoop *loop;
    int64_t poll_max_ns, poll_grow, poll_shrink, aio_max_batch;
    unsigned users; /* devices that use it: it cannot be deleted then */
} IOThread;
typedef struct IOThreadClass {
    ObjectClass parent_class;
} IOThreadClass;

QOM_DECLARE_TYPE(IOThread, IOThreadClass, iothread, IOTHREAD)
#define TYPE_IOTHREAD (iothread_get_type())

void iothread_register_types(void);

#endif
