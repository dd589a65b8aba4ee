/*
 * Memory of the client that is not mapped here: DMA_READ and DMA_WRITE messages.
 *
 * The reply is waited for in the main thread; meanwhile commands of the client are kept, so the
 * device is never entered from its own middle.  A client that does not answer in time loses its
 * connection, and until that is noticed every access fails at once.  Queues of other threads
 * cannot use such memory.
 */
#include <string.h>

#include "util/log.h"
#include "vfio-user-internal.h"

#define CALL_TIMEOUT_MS 5000

/* Bytes from @address, at most @size, that one region allows to read or write. */
static uint64_t allowed(VfioUserServer *server, uint64_t address, uint64_t size, uint32_t flag)
{
    VfioUserDma *region = vfio_user_dma_at(server, vfio_user_dma_position(server, address));

    if (!region || region->address > address || !(region->flags & flag) ||
        __atomic_load_n(&region->dead, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    return MIN(size, region->size - (address - region->address));
}

/* One message and its reply. */
static bool exchange(VfioUserServer *server, uint16_t command, uint64_t address, void *buf,
                     size_t size)
{
    VfioUserChannel *channel = server->reverse ? server->reverse : server->client;
    bool writing = command == VFIO_USER_DMA_WRITE;
    size_t length = sizeof(VfioUserDmaAccess) + (writing ? size : 0);
    g_autofree VfioUserDmaAccess *request = NULL;
    VfioUserMessage *reply;
    bool ok;

    if (!channel || !event_loop_is_current(event_loop_main())) {
        return false;
    }
    request = g_malloc(length);
    request->address = address;
    request->count = size;
    if (writing) {
        memcpy(request->data, buf, size);
    }
    const VfioUserHeader header = {
        .id = server->next_id++,
        .command = command,
        .size = (uint32_t)(sizeof(header) + length),
        .flags = VFIO_USER_COMMAND,
    };
    reply = vfio_user_channel_call(channel, &header, request, length, CALL_TIMEOUT_MS);
    ok = reply && !(reply->header.flags & VFIO_USER_ERROR) &&
         (writing || reply->size >= sizeof(VfioUserDmaAccess) + size);
    if (ok && !writing) {
        memcpy(buf, reply->payload + sizeof(VfioUserDmaAccess), size);
    }
    vfio_user_message_free(reply);
    return ok;
}

static bool access_memory(VfioUserServer *server, uint16_t command, uint64_t address, uint8_t *buf,
                          size_t size)
{
    uint32_t flag = command == VFIO_USER_DMA_READ ? VFIO_USER_DMA_READABLE : VFIO_USER_DMA_WRITABLE;

    while (size) {
        uint64_t step = allowed(server, address, MIN(size, server->peer_max_xfer), flag);

        if (!step || !exchange(server, command, address, buf, step)) {
            guest_error("vfio-user: no access to %zu bytes at 0x%" PRIx64, size, address);
            return false;
        }
        address += step;
        buf += step;
        size -= step;
    }
    return true;
}

static bool op_read(void *opaque, uint64_t address, void *buf, size_t size)
{
    return access_memory(opaque, VFIO_USER_DMA_READ, address, buf, size);
}

static bool op_write(void *opaque, uint64_t address, const void *buf, size_t size)
{
    VfioUserServer *server = opaque;

    if (!access_memory(server, VFIO_USER_DMA_WRITE, address, (void *)buf, size)) {
        return false;
    }
    dma_mark_dirty(&server->pci->dma, address, size);
    return true;
}

static bool op_reachable(void *opaque, uint64_t address, uint64_t size, bool writing)
{
    uint32_t flag = writing ? VFIO_USER_DMA_WRITABLE : VFIO_USER_DMA_READABLE;

    if (!event_loop_is_current(event_loop_main())) {
        return false;
    }
    while (size) {
        uint64_t step = allowed(opaque, address, size, flag);

        if (!step) {
            return false;
        }
        address += step;
        size -= step;
    }
    return true;
}

const DmaSpaceOps vfio_user_dma_ops = {
    .read = op_read,
    .write = op_write,
    .reachable = op_reachable,
};
