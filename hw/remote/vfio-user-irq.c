/*
 * Interrupts over vfio-user: what VFIO_USER_DEVICE_SET_IRQS sets up, and how they leave.
 *
 * INTx is a level: its eventfd is written when the line rises, and it then masks itself until the
 * client unmasks it (VFIO_IRQ_INFO_AUTOMASKED); if the line is still high it fires again.  MSI-X is
 * an edge a vector; one that is masked, or has no eventfd, stays pending.  The client keeps the
 * MSI-X table: whatever our own copy of the table says, a vector is live when it has an eventfd.
 * MSI is not offered; the request index asks the client to let the device go (device_del).
 *
 * Eventfds for MASK and UNMASK are written when that happens, as the protocol says.  The one
 * exception is an UNMASK eventfd of INTx, which is listened to, as <linux/vfio.h> says: a client
 * with KVM has the guest's end-of-interrupt written to it, and one that unmasks by message needs
 * no word of it.
 *
 * While the device stands still (vfio-user-migration.c) what it raises is held back: it is pending
 * as if it were masked.
 *
 * Queues in other threads raise interrupts while the main thread changes them: irq_lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vfio-user-internal.h"

#define INTX VFIO_PCI_INTX_IRQ_INDEX
#define MSIX VFIO_PCI_MSIX_IRQ_INDEX

static void signal_fd(int fd)
{
    uint64_t one = 1;

    /* A full counter is as good as a write: the reader is woken already. */
    if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) {
        return;
    }
}

static void replace_fd(int *slot, int fd)
{
    if (*slot >= 0) {
        close(*slot);
    }
    *slot = fd;
}

/* --- firing, with irq_lock held --- */

static void irq_mask(VfioUserServer *server, unsigned index, VfioUserIrq *irq)
{
    irq->masked = true;
    signal_fd(irq->mask_fd);
}

static void irq_fire(VfioUserServer *server, unsigned index, VfioUserIrq *irq)
{
    bool held = server->irqs_held && index != VFIO_PCI_REQ_IRQ_INDEX;

    if (irq->masked || irq->trigger_fd < 0 || held) {
        irq->pending = true;
        return;
    }
    irq->pending = false;
    signal_fd(irq->trigger_fd);
    if (index == INTX) {
        irq_mask(server, index, irq);
    }
}

/* Fires what was held back, if it still stands. */
static void irq_fire_pending(VfioUserServer *server, unsigned index, VfioUserIrq *irq)
{
    if (irq->pending || (index == INTX && server->intx_level)) {
        irq_fire(server, index, irq);
    }
}

static void irq_unmask(VfioUserServer *server, unsigned index, VfioUserIrq *irq)
{
    irq->masked = false;
    if (index != INTX) {
        signal_fd(irq->unmask_fd);
    }
    irq_fire_pending(server, index, irq);
}

/* --- the device's side, any thread --- */

void vfio_user_irq_trigger(VfioUserServer *server, unsigned index, unsigned vector)
{
    pthread_mutex_lock(&server->irq_lock);
    if (vector < server->irqs[index].count) {
        irq_fire(server, index, &server->irqs[index].irqs[vector]);
    }
    pthread_mutex_unlock(&server->irq_lock);
}

void vfio_user_intx_level(VfioUserServer *server, bool level)
{
    VfioUserIrqSet *set = &server->irqs[INTX];

    pthread_mutex_lock(&server->irq_lock);
    if (set->count && level && !server->intx_level) {
        irq_fire(server, INTX, set->irqs);
    } else if (set->count && !level) {
        set->irqs->pending = false;
    }
    server->intx_level = level;
    pthread_mutex_unlock(&server->irq_lock);
}

uint8_t vfio_user_irq_pending_byte(VfioUserServer *server, unsigned first)
{
    VfioUserIrqSet *set = &server->irqs[MSIX];
    uint8_t bits = 0;

    pthread_mutex_lock(&server->irq_lock);
    for (unsigned i = 0; i < 8 && first + i < set->count; i++) {
        bits |= (uint8_t)(set->irqs[first + i].pending << i);
    }
    pthread_mutex_unlock(&server->irq_lock);
    return bits;
}

void vfio_user_irq_set_pending_byte(VfioUserServer *server, unsigned first, uint8_t bits)
{
    VfioUserIrqSet *set = &server->irqs[MSIX];

    pthread_mutex_lock(&server->irq_lock);
    for (unsigned i = 0; i < 8 && first + i < set->count; i++) {
        set->irqs[first + i].pending = bits >> i & 1;
    }
    pthread_mutex_unlock(&server->irq_lock);
}

void vfio_user_irqs_hold(VfioUserServer *server)
{
    pthread_mutex_lock(&server->irq_lock);
    server->irqs_held = true;
    pthread_mutex_unlock(&server->irq_lock);
}

void vfio_user_irqs_go_on(VfioUserServer *server)
{
    pthread_mutex_lock(&server->irq_lock);
    server->irqs_held = false;
    for (unsigned index = INTX; index <= MSIX; index++) {
        for (unsigned i = 0; i < server->irqs[index].count; i++) {
            irq_fire_pending(server, index, &server->irqs[index].irqs[i]);
        }
    }
    pthread_mutex_unlock(&server->irq_lock);
}

bool vfio_user_irq_request_release(VfioUserServer *server)
{
    VfioUserIrq *irq = server->irqs[VFIO_PCI_REQ_IRQ_INDEX].irqs;

    if (irq->trigger_fd < 0) {
        return false;
    }
    vfio_user_irq_trigger(server, VFIO_PCI_REQ_IRQ_INDEX, 0);
    return true;
}

/* --- INTx unmasked by eventfd --- */

static void intx_unmask_written(void *opaque)
{
    VfioUserServer *server = opaque;
    VfioUserIrq *irq = server->irqs[INTX].irqs;
    uint64_t count;

    pthread_mutex_lock(&server->irq_lock);
    if (read(irq->unmask_fd, &count, sizeof(count)) == sizeof(count)) {
        irq_unmask(server, INTX, irq);
    }
    pthread_mutex_unlock(&server->irq_lock);
}

/* Around each change of INTx's unmask eventfd. */
static void intx_listen(VfioUserServer *server, bool on)
{
    VfioUserIrqSet *set = &server->irqs[INTX];

    if (set->count && set->irqs->unmask_fd >= 0) {
        event_loop_set_fd_handler(event_loop_main(), set->irqs->unmask_fd,
                                  on ? intx_unmask_written : NULL, NULL, server);
    }
}

/* --- the client's side --- */

int vfio_user_get_irq_info(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    struct vfio_irq_info info;

    memcpy(&info, message->payload, sizeof(info));
    /* The error index belongs to PCI Express: without it QEMU does not expect error recovery. */
    if (info.argsz < sizeof(info) || info.index >= VFIO_PCI_NUM_IRQS ||
        info.index == VFIO_PCI_ERR_IRQ_INDEX) {
        return EINVAL;
    }
    info.argsz = sizeof(info);
    info.count = server->irqs[info.index].count;
    info.flags = info.count ? VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_MASKABLE : 0;
    if (info.count && info.index == INTX) {
        info.flags |= VFIO_IRQ_INFO_AUTOMASKED;
    }
    g_byte_array_append(reply->data, (const guint8 *)&info, sizeof(info));
    return 0;
}

/* What each action does, and which eventfd of a vector belongs to it. */
static const struct IrqAction {
    uint32_t flag;
    void (*run)(VfioUserServer *server, unsigned index, VfioUserIrq *irq);
    size_t fd_offset;
} irq_actions[] = {
    {VFIO_IRQ_SET_ACTION_MASK, irq_mask, offsetof(VfioUserIrq, mask_fd)},
    {VFIO_IRQ_SET_ACTION_UNMASK, irq_unmask, offsetof(VfioUserIrq, unmask_fd)},
    {VFIO_IRQ_SET_ACTION_TRIGGER, irq_fire, offsetof(VfioUserIrq, trigger_fd)},
};

static const struct IrqAction *find_action(uint32_t flags)
{
    for (size_t i = 0; i < G_N_ELEMENTS(irq_actions); i++) {
        if ((flags & VFIO_IRQ_SET_ACTION_TYPE_MASK) == irq_actions[i].flag) {
            return &irq_actions[i];
        }
    }
    return NULL;
}

static void irqs_disable(VfioUserServer *server, unsigned index)
{
    VfioUserIrqSet *set = &server->irqs[index];

    if (index == INTX) {
        intx_listen(server, false);
    }
    for (unsigned i = 0; i < set->count; i++) {
        set->irqs[i].masked = set->irqs[i].pending = false;
        replace_fd(&set->irqs[i].trigger_fd, -1);
        replace_fd(&set->irqs[i].mask_fd, -1);
        replace_fd(&set->irqs[i].unmask_fd, -1);
    }
}

/* Writing to what is no eventfd could block: a pipe, a socket.  Those have a type, eventfds (and
 * what else lives in anonymous inodes, where our write fails at once) have none. */
static bool make_eventfd_safe(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    struct stat st;

    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == 0 && flags >= 0 &&
           fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* Eventfds for the vectors of the request: as many as vectors, or none, which takes them away. */
static int set_eventfds(VfioUserServer *server, const struct vfio_irq_set *request,
                        const struct IrqAction *action, VfioUserMessage *message)
{
    VfioUserIrq *irqs = server->irqs[request->index].irqs + request->start;

    if (message->nfds && message->nfds != request->count) {
        return EINVAL;
    }
    for (unsigned i = 0; i < message->nfds; i++) {
        if (!make_eventfd_safe(message->fds[i])) {
            return EINVAL;
        }
    }
    intx_listen(server, false);
    for (unsigned i = 0; i < request->count; i++) {
        replace_fd((int *)((char *)&irqs[i] + action->fd_offset),
                   vfio_user_message_take_fd(message, i));
        if (action->flag == VFIO_IRQ_SET_ACTION_TRIGGER && message->nfds) {
            irq_fire_pending(server, request->index, &irqs[i]); /* before anybody listened */
        }
    }
    intx_listen(server, true);
    return 0;
}

/* The request's action, for the vectors that @chosen (NULL: all) names. */
static void run_action(VfioUserServer *server, const struct vfio_irq_set *request,
                       const struct IrqAction *action, const uint8_t *chosen)
{
    VfioUserIrq *irqs = server->irqs[request->index].irqs + request->start;

    for (unsigned i = 0; i < request->count; i++) {
        if (!chosen || chosen[i]) {
            action->run(server, request->index, &irqs[i]);
        }
    }
}

int vfio_user_set_irqs(VfioUserServer *server, VfioUserMessage *message, VfioUserReply *reply)
{
    const size_t head = offsetof(struct vfio_irq_set, data);
    const uint32_t known = VFIO_IRQ_SET_DATA_TYPE_MASK | VFIO_IRQ_SET_ACTION_TYPE_MASK;
    struct vfio_irq_set request;
    const struct IrqAction *action;
    uint32_t data;
    int result = 0;

    memcpy(&request, message->payload, head);
    action = find_action(request.flags);
    data = request.flags & VFIO_IRQ_SET_DATA_TYPE_MASK;
    if (!action || request.flags & ~known || request.argsz < head ||
        request.index >= VFIO_PCI_NUM_IRQS ||
        (message->nfds && data != VFIO_IRQ_SET_DATA_EVENTFD)) {
        return EINVAL;
    }

    VfioUserIrqSet *set = &server->irqs[request.index];

    if (request.start > set->count || request.count > set->count - request.start) {
        return EINVAL;
    }
    pthread_mutex_lock(&server->irq_lock);
    if (data == VFIO_IRQ_SET_DATA_EVENTFD && request.count) {
        result = set_eventfds(server, &request, action, message);
    } else if (data == VFIO_IRQ_SET_DATA_BOOL && message->size - head >= request.count) {
        run_action(server, &request, action, message->payload + head);
    } else if (data == VFIO_IRQ_SET_DATA_NONE && request.count) {
        run_action(server, &request, action, NULL);
    } else if (data == VFIO_IRQ_SET_DATA_NONE && request.start == 0 &&
               action->flag == VFIO_IRQ_SET_ACTION_TRIGGER) {
        irqs_disable(server, request.index);
    } else {
        result = EINVAL;
    }
    pthread_mutex_unlock(&server->irq_lock);
    return result;
}

/* --- life --- */

void vfio_user_irqs_init(VfioUserServer *server)
{
    const unsigned counts[VFIO_PCI_NUM_IRQS] = {
        [INTX] = server->pci->config[PCI_INTERRUPT_PIN] ? 1 : 0,
        [MSIX] = server->pci->msix.vectors,
        [VFIO_PCI_REQ_IRQ_INDEX] = 1,
    };

    for (unsigned index = 0; index < VFIO_PCI_NUM_IRQS; index++) {
        VfioUserIrqSet *set = &server->irqs[index];

        set->count = counts[index];
        set->irqs = g_new0(VfioUserIrq, set->count);
        for (unsigned i = 0; i < set->count; i++) {
            set->irqs[i].trigger_fd = set->irqs[i].mask_fd = set->irqs[i].unmask_fd = -1;
        }
    }
    server->intx_level = server->pci->irq_asserted;
}

void vfio_user_irqs_device_reset(VfioUserServer *server)
{
    pthread_mutex_lock(&server->irq_lock);
    for (unsigned index = 0; index < VFIO_PCI_NUM_IRQS; index++) {
        for (unsigned i = 0; i < server->irqs[index].count; i++) {
            server->irqs[index].irqs[i].pending = false;
        }
    }
    pthread_mutex_unlock(&server->irq_lock);
}

void vfio_user_irqs_release(VfioUserServer *server)
{
    pthread_mutex_lock(&server->irq_lock);
    for (unsigned index = 0; index < VFIO_PCI_NUM_IRQS; index++) {
        irqs_disable(server, index);
    }
    pthread_mutex_unlock(&server->irq_lock);
}

void vfio_user_irqs_cleanup(VfioUserServer *server)
{
    vfio_user_irqs_release(server);
    for (unsigned index = 0; index < VFIO_PCI_NUM_IRQS; index++) {
        g_clear_pointer(&server->irqs[index].irqs, g_free);
        server->irqs[index].count = 0;
    }
}
