/*
 * vfio-user on the wire (QEMU's docs/interop/vfio-user.rst, version 0.0), for the server and for
 * clients of it.  Everything is in the host's byte order.  Structures that the protocol takes from
 * VFIO (vfio_device_info, vfio_region_info, vfio_irq_info, vfio_irq_set, the feature payloads) are
 * the kernel's, from <linux/vfio.h>.
 */
#ifndef PROTOCOL_VFIO_USER_H
#define PROTOCOL_VFIO_USER_H

#include <linux/vfio.h>
#include <stdint.h>

/* Newer than Linux 6.1's header, where these states are enumerators. */
#ifndef VFIO_MIGRATION_PRE_COPY
#define VFIO_MIGRATION_PRE_COPY        (1 << 2)
#define VFIO_DEVICE_STATE_PRE_COPY     6
#define VFIO_DEVICE_STATE_PRE_COPY_P2P 7
#endif

#define VFIO_USER_MAJOR 0
#define VFIO_USER_MINOR 0

enum {
    VFIO_USER_VERSION = 1,
    VFIO_USER_DMA_MAP,
    VFIO_USER_DMA_UNMAP,
    VFIO_USER_DEVICE_GET_INFO,
    VFIO_USER_DEVICE_GET_REGION_INFO,
    VFIO_USER_DEVICE_GET_REGION_IO_FDS,
    VFIO_USER_DEVICE_GET_IRQ_INFO,
    VFIO_USER_DEVICE_SET_IRQS,
    VFIO_USER_REGION_READ,
    VFIO_USER_REGION_WRITE,
    VFIO_USER_DMA_READ,  /* server to client */
    VFIO_USER_DMA_WRITE, /* server to client */
    VFIO_USER_DEVICE_RESET,
    VFIO_USER_REGION_WRITE_MULTI = 15,
    VFIO_USER_DEVICE_FEATURE,
    VFIO_USER_MIG_DATA_READ,
    VFIO_USER_MIG_DATA_WRITE,
    VFIO_USER_COMMAND_END
};

/* Flags of a header. */
#define VFIO_USER_TYPE_MASK 0xfu
#define VFIO_USER_COMMAND   0u
#define VFIO_USER_REPLY     1u
#define VFIO_USER_NO_REPLY  (1u << 4)
#define VFIO_USER_ERROR     (1u << 5)

/* Defaults where a peer does not say ("Capabilities" of VFIO_USER_VERSION). */
#define VFIO_USER_DEFAULT_MAX_FDS      1
#define VFIO_USER_DEFAULT_MAX_XFER     1048576
#define VFIO_USER_DEFAULT_MAX_DMA_MAPS 65535

typedef struct VfioUserHeader {
    uint16_t id;
    uint16_t command;
    uint32_t size; /* of the message, this header included */
    uint32_t flags;
    uint32_t error; /* errno, in a reply with VFIO_USER_ERROR */
} VfioUserHeader;

typedef struct VfioUserVersion {
    uint16_t major, minor;
    char data[]; /* JSON, with its NUL */
} VfioUserVersion;

#define VFIO_USER_DMA_READABLE (1u << 0)
#define VFIO_USER_DMA_WRITABLE (1u << 1)

typedef struct VfioUserDmaMap {
    uint32_t argsz, flags;
    uint64_t offset, address, size;
} VfioUserDmaMap;

typedef struct VfioUserDmaUnmap {
    uint32_t argsz, flags;
    uint64_t address, size;
} VfioUserDmaUnmap;

typedef struct VfioUserRegionAccess {
    uint64_t offset;
    uint32_t region, count;
    uint8_t data[];
} VfioUserRegionAccess;

typedef struct VfioUserDmaAccess {
    uint64_t address, count;
    uint8_t data[];
} VfioUserDmaAccess;

typedef struct VfioUserRegionIoFds {
    uint32_t argsz, flags, index, count;
    /* VfioUserIoEventfd entries */
} VfioUserRegionIoFds;

#define VFIO_USER_IO_FD_TYPE_IOEVENTFD  0
#define VFIO_USER_IO_FD_TYPE_IOREGIONFD 1
/* KVM_IOEVENTFD_FLAG_DATAMATCH and _PIO of <linux/kvm.h>. */
#define VFIO_USER_IOEVENTFD_DATAMATCH (1u << 0)
#define VFIO_USER_IOEVENTFD_PIO       (1u << 1)

typedef struct VfioUserIoEventfd {
    uint64_t offset, size;
    uint32_t fd_index, type, flags, padding;
    uint64_t datamatch;
} VfioUserIoEventfd;

typedef struct VfioUserWrite {
    uint64_t offset;
    uint32_t region, count; /* at most 8 bytes */
    uint8_t data[8];
} VfioUserWrite;

typedef struct VfioUserWriteMulti {
    uint64_t count;
    VfioUserWrite writes[];
} VfioUserWriteMulti;

/* VFIO_USER_MIG_DATA_READ (a request without data) and VFIO_USER_MIG_DATA_WRITE. */
typedef struct VfioUserMigData {
    uint32_t argsz, size; /* @size: bytes of data, in a request to read those wanted */
    uint8_t data[];
} VfioUserMigData;

#endif
