/*
 * A vhost-user back end for tests, in a thread of the test program: it speaks the protocol
 * (include/protocol/vhost-user.h), maps the guest's memory, and moves frames between its rings and
 * queues that the test reads and fills.  Split rings, direct descriptors.
 *
 * It says what it was told, and misbehaves on order: per connection, VuMode says how.
 */
#ifndef TESTS_LIB_VHOST_USER_BACKEND_H
#define TESTS_LIB_VHOST_USER_BACKEND_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol/vhost-user.h"

#define VU_MAX_VRINGS 16
#define VU_TIMEOUT_MS 10000

typedef enum VuMode {
    VU_NORMAL,
    VU_CLOSE_AT_ONCE,  /* closes when the first message comes */
    VU_NO_FEATURES,    /* GET_FEATURES says 0 */
    VU_FEWER_FEATURES, /* … less than before: no MRG_RXBUF */
    VU_WRONG_ANSWER,   /* answers another request */
    VU_HUGE_ANSWER,    /* an answer of 2 GiB */
    VU_HALF_ANSWER,    /* half an answer, then closes */
    VU_SILENT,         /* never answers */
    VU_UNASKED,        /* sends what nobody asked for, once it is set up */
    VU_REFUSE_MEMORY,  /* SET_MEM_TABLE fails (REPLY_ACK) */
} VuMode;

typedef struct VuConfig {
    bool client;                /* connects (again and again) to the emulator's socket */
    uint64_t features;          /* 0: VU_FEATURES */
    uint64_t protocol_features; /* used with features bit 30 */
    unsigned queues;            /* pairs that it says it has; 0: 1 */
    const VuMode *modes;        /* of the first connections; ended by VU_NORMAL */
} VuConfig;

extern const uint64_t VU_FEATURES;

typedef struct VuVring {
    uint32_t num, base;
    VhostUserVringAddr addr;
    int kick, call, err;
    bool started, enabled;
    uint16_t last_avail, used;
} VuVring;

/* What the test may look at, with vu_lock(). */
typedef struct VuState {
    unsigned connections;
    bool connected;
    unsigned messages[64];                /* by request, of all connections */
    uint64_t features, protocol_features; /* as the front end accepted them */
    VuVring vrings[VU_MAX_VRINGS];
    VhostUserRegion regions[VHOST_USER_MAX_REGIONS];
    uint8_t *mapped[VHOST_USER_MAX_REGIONS]; /* where region i begins */
    unsigned num_regions;
    uint64_t mtu, status;
    uint8_t rarp_mac[6];
    uint64_t log_size;
    uint8_t *log;            /* one bit a page */
    uint64_t inflight_inode; /* of the region that SET_INFLIGHT_FD gave */
    unsigned frames;         /* from the guest */
} VuState;

typedef struct VuBackend VuBackend;

VuBackend *vu_backend_new(const char *path, const VuConfig *config);
void vu_backend_free(VuBackend *vu);

VuState *vu_lock(VuBackend *vu);
void vu_unlock(VuBackend *vu);
/* Waits until @fn says true of the state, with it locked; false when it never did. */
bool vu_wait(VuBackend *vu, bool (*fn)(const VuState *state, uint64_t arg), uint64_t arg);
bool vu_is_started(const VuState *state, uint64_t vrings); /* all bits of @vrings, none else */
bool vu_is_enabled(const VuState *state, uint64_t vrings);
bool vu_has_connections(const VuState *state, uint64_t count); /* and is connected */

/* Closes the connection; a server then waits for the next, a client connects again. */
void vu_disconnect(VuBackend *vu);
/* Whether a connection is accepted, or made, while there is none (true at first). */
void vu_set_available(VuBackend *vu, bool available);

/* The next frame of the guest's (without its header), and its size; 0: none within @ms. */
size_t vu_receive(VuBackend *vu, void *frame, size_t size, unsigned ms);
/* Puts a frame into the guest's ring @index; false: no buffer. */
bool vu_send(VuBackend *vu, unsigned index, const void *frame, size_t size);
/* The configuration space that GET_CONFIG shows, and the message that it changed. */
void vu_set_link(VuBackend *vu, bool up);
/* Signals the err eventfd of a ring. */
void vu_break_vring(VuBackend *vu, unsigned index);

#endif
