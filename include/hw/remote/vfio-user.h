/*
 * A PCI device served to a VMM over a UNIX socket: `-machine vfio-user` and
 * `-object vfio-user-server,id=…,device=…,socket.type=unix,socket.path=…`.  Main thread.
 */
#ifndef HW_REMOTE_VFIO_USER_H
#define HW_REMOTE_VFIO_USER_H

#include "qom/object.h"

typedef struct VfioUserServer VfioUserServer;

typedef struct VfioUserServerClass {
    ObjectClass parent_class;
} VfioUserServerClass;

QOM_DECLARE_TYPE(VfioUserServer, VfioUserServerClass, vfio_user_server, VFIO_USER_SERVER)
#define TYPE_VFIO_USER_SERVER (vfio_user_server_get_type())

void hw_remote_register_types(void);

#endif
