/*
 * The vhost-user protocol on the wire, as QEMU's docs/interop/vhost-user.rst specifies it: the
 * front end (the device) asks, the back end (the other process) moves the packets.  Numbers are
 * in the machine's byte order.  Shared by the front end and by the back end of the tests.
 */
#ifndef PROTOCOL_VHOST_USER_H
#define PROTOCOL_VHOST_USER_H

#include <stdint.h>

#define VHOST_USER_MAX_FDS     8
#define VHOST_USER_CONFIG_MAX  256
#define VHOST_USER_MAX_REGIONS 8 /* of one SET_MEM_TABLE */

/* Among the virtio features: the back end knows protocol features. */
#define VHOST_USER_F_PROTOCOL_FEATURES 30

enum {
    VHOST_USER_PROTOCOL_F_MQ = 0,
    VHOST_USER_PROTOCOL_F_LOG_SHMFD = 1,
    VHOST_USER_PROTOCOL_F_RARP = 2,
    VHOST_USER_PROTOCOL_F_REPLY_ACK = 3,
    VHOST_USER_PROTOCOL_F_NET_MTU = 4,
    VHOST_USER_PROTOCOL_F_BACKEND_REQ = 5,
    VHOST_USER_PROTOCOL_F_CONFIG = 9,
    VHOST_USER_PROTOCOL_F_BACKEND_SEND_FD = 10,
    VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD = 12,
    VHOST_USER_PROTOCOL_F_RESET_DEVICE = 13,
    VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS = 15,
    VHOST_USER_PROTOCOL_F_STATUS = 16,
};

/* Requests of the front end. */
enum {
    VHOST_USER_GET_FEATURES = 1,
    VHOST_USER_SET_FEATURES = 2,
    VHOST_USER_SET_OWNER = 3,
    VHOST_USER_SET_MEM_TABLE = 5,
    VHOST_USER_SET_LOG_BASE = 6,
    VHOST_USER_SET_LOG_FD = 7,
    VHOST_USER_SET_VRING_NUM = 8,
    VHOST_USER_SET_VRING_ADDR = 9,
    VHOST_USER_SET_VRING_BASE = 10,
    VHOST_USER_GET_VRING_BASE = 11,
    VHOST_USER_SET_VRING_KICK = 12,
    VHOST_USER_SET_VRING_CALL = 13,
    VHOST_USER_SET_VRING_ERR = 14,
    VHOST_USER_GET_PROTOCOL_FEATURES = 15,
    VHOST_USER_SET_PROTOCOL_FEATURES = 16,
    VHOST_USER_GET_QUEUE_NUM = 17,
    VHOST_USER_SET_VRING_ENABLE = 18,
    VHOST_USER_SEND_RARP = 19,
    VHOST_USER_NET_SET_MTU = 20,
    VHOST_USER_SET_BACKEND_REQ_FD = 21,
    VHOST_USER_GET_CONFIG = 24,
    VHOST_USER_SET_CONFIG = 25,
    VHOST_USER_GET_INFLIGHT_FD = 31,
    VHOST_USER_SET_INFLIGHT_FD = 32,
    VHOST_USER_RESET_DEVICE = 34,
    VHOST_USER_GET_MAX_MEM_SLOTS = 36,
    VHOST_USER_ADD_MEM_REG = 37,
    VHOST_USER_REM_MEM_REG = 38,
    VHOST_USER_SET_STATUS = 39,
    VHOST_USER_GET_STATUS = 40,
};

/* Requests of the back end, on the socket that SET_BACKEND_REQ_FD passes. */
enum {
    VHOST_USER_BACKEND_CONFIG_CHANGE_MSG = 2,
};

#define VHOST_USER_VERSION         1u
#define VHOST_USER_VERSION_MASK    3u
#define VHOST_USER_FLAG_REPLY      (1u << 2)
#define VHOST_USER_FLAG_NEED_REPLY (1u << 3)

typedef struct VhostUserHeader {
    uint32_t request, flags, size; /* size: of the payload */
} VhostUserHeader;

#define VHOST_USER_VRING_INDEX_MASK 0xffu
#define VHOST_USER_VRING_NO_FD      (1u << 8) /* SET_VRING_KICK, _CALL, _ERR without an fd */

typedef struct VhostUserVringState {
    uint32_t index, num;
} VhostUserVringState;

typedef struct VhostUserVringAddr {
    uint32_t index, flags; /* VHOST_VRING_F_LOG */
    uint64_t desc, used, avail, log;
} VhostUserVringAddr;

typedef struct VhostUserRegion {
    uint64_t guest_addr, size, user_addr, mmap_offset;
} VhostUserRegion;

typedef struct VhostUserMemory {
    uint32_t count, padding;
    VhostUserRegion regions[VHOST_USER_MAX_REGIONS];
} VhostUserMemory;

typedef struct VhostUserOneRegion {
    uint64_t padding;
    VhostUserRegion region;
} VhostUserOneRegion;

typedef struct VhostUserLog {
    uint64_t mmap_size, mmap_offset;
} VhostUserLog;

typedef struct VhostUserConfig {
    uint32_t offset, size, flags;
    uint8_t data[VHOST_USER_CONFIG_MAX];
} VhostUserConfig;

typedef struct VhostUserInflight {
    uint64_t mmap_size, mmap_offset;
    uint16_t num_queues, queue_size;
    uint32_t padding; /* others send it too: nobody packs the structure */
} VhostUserInflight;

typedef union VhostUserPayload {
    uint64_t u64;
    VhostUserVringState state;
    VhostUserVringAddr addr;
    VhostUserMemory memory;
    VhostUserOneRegion region;
    VhostUserLog log;
    VhostUserConfig config;
    VhostUserInflight inflight;
} VhostUserPayload;

#define VHOST_USER_CONFIG_HEAD 12u /* bytes of VhostUserConfig before its data */
#define VHOST_USER_MEMORY_HEAD 8u

_Static_assert(sizeof(VhostUserHeader) == 12, "wire format");
_Static_assert(sizeof(VhostUserVringAddr) == 40, "wire format");
_Static_assert(sizeof(VhostUserRegion) == 32, "wire format");

#endif
