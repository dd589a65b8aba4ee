/* Types of memory back ends that other files of hw/core make.  Not for other folders. */
#ifndef HW_CORE_MEMORY_BACKEND_INTERNAL_H
#define HW_CORE_MEMORY_BACKEND_INTERNAL_H

#include "hw/core/memory-backend.h"

GType memory_backend_file_get_type(void);
GType memory_backend_ram_get_type(void);

#endif
