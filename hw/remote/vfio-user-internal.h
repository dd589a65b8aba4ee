/* What the files of the vfio-user server share; hw/remote/vfio-user-server.c tells the whole. */
#ifndef HW_REMOTE_VFIO_USER_INTERNAL_H
#define HW_REMOTE_VFIO_USER_INTERNAL_H

#include <pthread.h>

#include "hw/pci/pci.h"
#include "protocol/vfio-user.h"
#include "hw/remote/vfio-user.h"
#include "migration/vmstate.h"
#include "util/event-loop.h"
#include "util/runstate.h"

/* What we announce.  QEMU's client refuses to send more than 16 fds a message. */
#define SERVER_MAX_FDS   16
#define SERVER_MAX_XFER  VFIO_USER_DEFAULT_MAX_XFER
#define SERVER_PAGE_SIZE 4096
/* Each change of the client's memory makes a new map of all regions, and each mapped one has a
 * place in the table of the SIGBUS handler: what a VMM needs is a few dozen. */
#define SERVER_MAX_DMA_MAPS 4096
/* The longest message we take: a region write of SERVER_MAX_XFER and its head. */
#define SERVER_MAX_PAYLOAD (SERVER_MAX_XFER + 64)

#define MESSAGE_MAX_FDS 253 /* SCM_MAX_FD of the kernel: what one sendmsg can carry */

/* A message, received or to be sent.  Fds that nobody took (set to -1) are closed with it. */
typedef struct VfioUserMessage {
    VfioUserHeader header;
    uint8_t *payload;
    size_t size; /* of @payload */
    int *fds;    /* NULL when none came */
    unsigned nfds;
    bool fds_lost; /* we were out of descriptors: some did not arrive */
} VfioUserMessage;

void vfio_user_message_free(VfioUserMessage *message);
/* The @i-th fd becomes the caller's; -1 if there is none. */
int vfio_user_message_take_fd(VfioUserMessage *message, unsigned i);

/*
 * One end of a socket, for either direction: cuts messages out of the stream, queues what the other
 * side does not take.  Main thread.
 */
typedef struct VfioUserChannel VfioUserChannel;
typedef struct VfioUserChannelOps {
    void (*message)(void *opaque, VfioUserMessage *message); /* takes it */
    /* From a bottom half: nothing else of the channel is running.  @why NULL: end of stream. */
    void (*closed)(void *opaque, const char *why);
} VfioUserChannelOps;

/* Takes @fd. */
VfioUserChannel *vfio_user_channel_new(int fd, const VfioUserChannelOps *ops, void *opaque);
void vfio_user_channel_free(VfioUserChannel *channel); /* safe from within its own callbacks */
/* Sends or queues a copy.  @fds stay the caller's. */
void vfio_user_channel_send(VfioUserChannel *channel, const VfioUserHeader *header,
                            const void *payload, size_t size, const int *fds, unsigned nfds);
/* Ends the connection: closed() follows with this reason. */
void vfio_user_channel_fail(VfioUserChannel *channel, const char *why);
/* Nothing that the client sends is read, not even its end, until it goes on. */
void vfio_user_channel_hold(VfioUserChannel *channel);
void vfio_user_channel_go_on(VfioUserChannel *channel);
/*
 * Sends @header and waits for the reply with its id.  Commands that arrive meanwhile are kept for
 * the loop.  NULL when there is none in @timeout_ms: the connection then ends.
 */
VfioUserMessage *vfio_user_channel_call(VfioUserChannel *channel, const VfioUserHeader *header,
                                        const void *payload, size_t size, int timeout_ms);

/* A DMA region of the client. */
typedef struct VfioUserDma {
    uint64_t address, size, offset;
    uint32_t flags;
    int fd;        /* -1: by messages only */
    uint8_t *host; /* of @address; NULL: by messages only */
    void *mapping; /* what was mapped: in pages of the file, so perhaps more than the region */
    size_t mapping_size;
    bool dead; /* its file shrank under us; set by the SIGBUS handler */
} VfioUserDma;

/* One interrupt vector as the client set it up. */
typedef struct VfioUserIrq {
    int trigger_fd, mask_fd, unmask_fd; /* -1: none */
    bool masked, pending;
} VfioUserIrq;

typedef struct VfioUserIrqSet {
    VfioUserIrq *irqs;
    unsigned count;
} VfioUserIrqSet;

/* Device state: vfio-user-migration.c. */
typedef struct VfioUserMigration {
    uint32_t state;  /* enum vfio_device_mig_state */
    bool halted;     /* the device stands still */
    bool restored;   /* its state came with -incoming, and no client has taken it over */
    GByteArray *out; /* saving: what the client has to read, from byte @out_done on */
    size_t out_done;
    GByteArray *in;    /* resuming: what came and is no whole block yet */
    GByteArray *final; /* resuming: the state that counts; NULL: it did not come yet */
    bool headed, bad;  /* resuming: the stream's head was there; it cannot be used */
} VfioUserMigration;

struct VfioUserServer {
    Object parent_obj;
    /* properties */
    char *device_id;
    char *socket_type, *socket_path, *socket_fd;
    /* state */
    PCIDevice *pci; /* NULL before complete(), and when the device is gone */
    int listen_fd;
    bool bound;               /* we made socket_path: */
    dev_t socket_dev;         /* this one; */
    ino_t socket_ino;         /* a process that takes over makes another of the same name */
    Timer accept_timer;       /* tries again after running out of descriptors */
    VfioUserChannel *client;  /* commands of the client, or NULL */
    VfioUserChannel *reverse; /* twin socket: our commands; NULL: the same channel */
    bool negotiated;
    uint32_t peer_max_fds, peer_max_xfer;
    uint16_t next_id;
    bool unplug_requested; /* the device is removed when the client has gone */
    BottomHalf *unplug_bh;
    int rom_fd;               /* sealed memfd with the expansion ROM; -1: not made */
    GArray *dma;              /* VfioUserDma*, sorted by address */
    pthread_mutex_t irq_lock; /* irqs are raised by any thread that runs a queue */
    VfioUserIrqSet irqs[VFIO_PCI_NUM_IRQS];
    bool intx_level;
    bool irqs_held;              /* those of the device wait */
    EventNotifier dead_notifier; /* a region died */
    bool logging;                /* dirty pages are logged */
    VfioUserMigration migration;
    bool saved; /* the machine's state was saved: it may run elsewhere, so nothing is answered */
    VmStateNotifier *vm_notifier;
};

/* vfio-user-version.c: answers the first message.  NULL, or why the connection cannot go on. */
const char *vfio_user_negotiate(VfioUserServer *server, VfioUserMessage *message);

/* vfio-user-device.c: runs one command of the client.  Returns 0 or an errno for the reply, whose
 * payload goes to @reply and fds (borrowed, sent after return) to @fds/@nfds. */
typedef struct VfioUserReply {
    GByteArray *data;
    int fds[MESSAGE_MAX_FDS];
    unsigned nfds;
} VfioUserReply;
int vfio_user_run_command(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);

/* vfio-user-region.c */
PciBar *vfio_user_region_bar(VfioUserServer *server, uint32_t index); /* NULL: no such BAR */
int vfio_user_get_region_info(VfioUserServer *server, VfioUserMessage *message,
                              VfioUserReply *reply);
int vfio_user_get_region_io_fds(VfioUserServer *server, VfioUserMessage *message,
                                VfioUserReply *reply);
int vfio_user_region_read(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
int vfio_user_region_write(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
int vfio_user_region_write_multi(VfioUserServer *server, VfioUserMessage *message,
                                 VfioUserReply *reply);

/* vfio-user-irq.c */
void vfio_user_irqs_init(VfioUserServer *server);
void vfio_user_irqs_release(VfioUserServer *server); /* closes all fds, unmasks */
void vfio_user_irqs_device_reset(VfioUserServer *server);
void vfio_user_irqs_cleanup(VfioUserServer *server);
int vfio_user_get_irq_info(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
int vfio_user_set_irqs(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
/* Any thread. */
void vfio_user_irq_trigger(VfioUserServer *server, unsigned index, unsigned vector);
void vfio_user_intx_level(VfioUserServer *server, bool level);
/* Asks the client to let the device go; false: it did not say how. */
bool vfio_user_irq_request_release(VfioUserServer *server);
/* 8 pending bits of MSI-X vectors from @first. */
uint8_t vfio_user_irq_pending_byte(VfioUserServer *server, unsigned first);
void vfio_user_irq_set_pending_byte(VfioUserServer *server, unsigned first, uint8_t bits);
/* What the device raises stays pending, and leaves when they go on. */
void vfio_user_irqs_hold(VfioUserServer *server);
void vfio_user_irqs_go_on(VfioUserServer *server);

/* vfio-user-dma.c */
void vfio_user_dma_init(VfioUserServer *server);
void vfio_user_dma_cleanup(VfioUserServer *server);
/* Unmaps everything; the device is drained if it still exists. */
void vfio_user_dma_release(VfioUserServer *server);
int vfio_user_dma_map(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
int vfio_user_dma_unmap(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
/* Index of the first region that ends beyond @address. */
guint vfio_user_dma_position(VfioUserServer *server, uint64_t address);
static inline VfioUserDma *vfio_user_dma_at(VfioUserServer *server, guint i)
{
    return i < server->dma->len ? g_array_index(server->dma, VfioUserDma *, i) : NULL;
}

/* vfio-user-dma-message.c: memory that is not mapped here. */
extern const DmaSpaceOps vfio_user_dma_ops; /* opaque: the server */

/* vfio-user-feature.c */
int vfio_user_feature(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
/* The data behind the head of a feature request: its size, and where. */
static inline size_t vfio_user_feature_data(VfioUserMessage *message, uint8_t **data)
{
    *data = message->payload + sizeof(struct vfio_device_feature);
    return message->size - sizeof(struct vfio_device_feature);
}

/* vfio-user-log.c: dirty pages. */
int vfio_user_log_run_start(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
int vfio_user_log_run_stop(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply);
int vfio_user_log_run_report(VfioUserServer *server, VfioUserMessage *message,
                             VfioUserReply *reply);
void vfio_user_log_resize(VfioUserServer *server); /* the device is drained */
void vfio_user_log_stop(VfioUserServer *server);

/* vfio-user-migration.c: device state. */
void vfio_user_migration_init(VfioUserServer *server);
/* As after a reset: the device runs, no data is being transferred. */
void vfio_user_migration_reset(VfioUserServer *server);
/* The device's state came from elsewhere (or was none that can run: @failed); it stands still
 * until the client says RUNNING. */
void vfio_user_migration_restored(VfioUserServer *server, bool failed);
bool vfio_user_migration_available(VfioUserServer *server);
int vfio_user_migration_run_flags(VfioUserServer *server, VfioUserMessage *message,
                                  VfioUserReply *reply);
int vfio_user_migration_run_state(VfioUserServer *server, VfioUserMessage *message,
                                  VfioUserReply *reply);
int vfio_user_migration_read(VfioUserServer *server, VfioUserMessage *message,
                             VfioUserReply *reply);
int vfio_user_migration_write(VfioUserServer *server, VfioUserMessage *message,
                              VfioUserReply *reply);
const char *vfio_user_migration_state_name(uint32_t state);

/* vfio-user-vmstate.c: a server's state, and the whole machine's migration. */
extern const VMStateDescription vfio_user_vmstate_irqs; /* of a server: what is pending */
void vfio_user_register_migration(void);

/*
 * vfio-user-sigbus.c: memory whose file may shrink.  On SIGBUS within a guarded range, zero pages
 * take its place, *@dead is set and @notify is woken.  False: the table is full.
 */
bool sigbus_guard_add(void *host, size_t size, bool *dead, EventNotifier *notify);
void sigbus_guard_remove(void *host);

/* vfio-user-server.c */
GType x_vfio_user_server_get_type(void);
void vfio_user_reply(VfioUserServer *server, const VfioUserHeader *command, int error,
                     const void *payload, size_t size, const int *fds, unsigned nfds);
extern const VfioUserChannelOps vfio_user_reverse_ops;
/* The device asks to be removed; TRUE: once the client has let go. */
gboolean vfio_user_server_unplug(VfioUserServer *server);
/* The device has been unrealized. */
void vfio_user_server_device_gone(VfioUserServer *server);
/* The machine's state was saved; or that came to nothing. */
void vfio_user_server_saved(VfioUserServer *server);
void vfio_user_server_go_on(VfioUserServer *server);
/* The state has arrived that -incoming waits for: clients may come. */
void vfio_user_server_arrived(VfioUserServer *server);

/* machine-vfio-user.c: which server a device of this machine has. */
bool vfio_user_host_owns(PCIDevice *dev);
VfioUserServer *vfio_user_host_server(PCIDevice *dev);
void vfio_user_host_set_server(PCIDevice *dev, VfioUserServer *server); /* device drained */
void vfio_user_host_foreach_server(void (*fn)(VfioUserServer *server, void *opaque), void *opaque);

#endif
