/*
 * The vhost-user back end for tests: the guest's memory, and frames between its rings and the test.
 * Split rings, direct descriptors; what is written is logged when the front end asks for it.
 */
#include <linux/vhost_types.h>
#include <linux/virtio_ring.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/vhost-user-internal.h"

#define HDR_SIZE  12 /* of struct virtio_net_hdr_v1 */
#define FRAME_MAX 65562
#define PAGE      4096

/* --- memory --- */

void vu_unmap_memory(VuState *s)
{
    for (unsigned i = 0; i < s->num_regions; i++) {
        munmap(s->mapped[i] - s->regions[i].mmap_offset,
               s->regions[i].size + s->regions[i].mmap_offset);
    }
    s->num_regions = 0;
}

void vu_map_region(VuState *s, const VhostUserRegion *region, int fd)
{
    void *at =
        mmap(NULL, region->size + region->mmap_offset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    g_assert_true(at != MAP_FAILED);
    g_assert_cmpuint(s->num_regions, <, VHOST_USER_MAX_REGIONS);
    s->regions[s->num_regions] = *region;
    s->mapped[s->num_regions++] = (uint8_t *)at + region->mmap_offset;
}

void vu_remove_region(VuState *s, const VhostUserRegion *region)
{
    for (unsigned i = 0; i < s->num_regions; i++) {
        if (s->regions[i].guest_addr == region->guest_addr) {
            munmap(s->mapped[i] - s->regions[i].mmap_offset,
                   s->regions[i].size + s->regions[i].mmap_offset);
            s->regions[i] = s->regions[s->num_regions - 1];
            s->mapped[i] = s->mapped[--s->num_regions];
            return;
        }
    }
    g_error("REM_MEM_REG of a region that was never told");
}

void *vu_from_user(VuState *s, uint64_t addr)
{
    for (unsigned i = 0; i < s->num_regions; i++) {
        if (addr - s->regions[i].user_addr < s->regions[i].size) {
            return s->mapped[i] + (addr - s->regions[i].user_addr);
        }
    }
    g_error("address 0x%" G_GINT64_MODIFIER "x lies outside the memory table", addr);
}

static void *from_guest(VuState *s, uint64_t addr, uint64_t size)
{
    for (unsigned i = 0; i < s->num_regions; i++) {
        if (addr - s->regions[i].guest_addr < s->regions[i].size &&
            size <= s->regions[i].size - (addr - s->regions[i].guest_addr)) {
            return s->mapped[i] + (addr - s->regions[i].guest_addr);
        }
    }
    return NULL;
}

static void log_write(VuState *s, uint64_t addr, uint64_t size)
{
    if (!s->log || !(s->features >> VHOST_F_LOG_ALL & 1)) {
        return;
    }
    for (uint64_t page = addr / PAGE; page <= (addr + size - 1) / PAGE; page++) {
        g_assert_cmpuint(page / 8, <, s->log_size);
        __atomic_fetch_or(&s->log[page / 8], (uint8_t)(1u << page % 8), __ATOMIC_SEQ_CST);
    }
}

/* --- rings --- */

static bool pop_head(VuState *s, VuVring *v, uint16_t *head)
{
    struct vring_avail *avail = vu_from_user(s, v->addr.avail);
    uint16_t idx = __atomic_load_n(&avail->idx, __ATOMIC_ACQUIRE);

    if (idx == v->last_avail) {
        return false;
    }
    *head = avail->ring[v->last_avail++ % v->num];
    return true;
}

static void push_used(VuState *s, VuVring *v, uint16_t head, uint32_t len)
{
    struct vring_used *used = vu_from_user(s, v->addr.used);

    used->ring[v->used % v->num] = (struct vring_used_elem){.id = head, .len = len};
    __atomic_store_n(&used->idx, ++v->used, __ATOMIC_RELEASE);
    if (v->addr.flags & 1u << VHOST_VRING_F_LOG) {
        log_write(s, v->addr.log, sizeof(*used) + v->num * sizeof(used->ring[0]));
    }
    vu_signal(v->call);
}

/* Copies between a chain and @data; returns the bytes of the chain that there were. */
static size_t copy_chain(VuState *s, VuVring *v, uint16_t head, uint8_t *data, size_t size,
                         bool writing)
{
    struct vring_desc *desc = vu_from_user(s, v->addr.desc);
    size_t done = 0;

    for (;;) {
        struct vring_desc d = desc[head % v->num];
        size_t n = MIN(d.len, size - done);
        uint8_t *at = from_guest(s, d.addr, d.len);

        if (!at || !!(d.flags & VRING_DESC_F_WRITE) != writing) {
            return done;
        }
        if (writing && n) {
            memcpy(at, data + done, n);
            log_write(s, d.addr, n);
        } else {
            memcpy(data + done, at, n);
        }
        done += n;
        if (!(d.flags & VRING_DESC_F_NEXT)) {
            return done;
        }
        head = d.next;
    }
}

static bool runs(const VuVring *v)
{
    return v->started && v->enabled && v->kick >= 0;
}

void vu_take_frames(VuBackend *vu, VuVring *v)
{
    static uint8_t data[FRAME_MAX];
    VuState *s = &vu->state;
    uint16_t head;

    while (runs(v) && pop_head(s, v, &head)) {
        size_t size = copy_chain(s, v, head, data, sizeof(data), false);

        if (size >= HDR_SIZE) {
            g_queue_push_tail(&vu->frames, g_bytes_new(data + HDR_SIZE, size - HDR_SIZE));
            s->frames++;
        }
        push_used(s, v, head, 0);
    }
}

bool vu_send(VuBackend *vu, unsigned index, const void *frame, size_t size)
{
    VuState *s = vu_lock(vu);
    VuVring *v = &s->vrings[index];
    g_autofree uint8_t *data = g_malloc0(size + HDR_SIZE);
    uint16_t head;
    bool ok = s->connected && runs(v) && pop_head(s, v, &head);

    if (ok) {
        data[10] = 1; /* num_buffers */
        memcpy(data + HDR_SIZE, frame, size);
        push_used(s, v, head, (uint32_t)copy_chain(s, v, head, data, size + HDR_SIZE, true));
    }
    vu_unlock(vu);
    return ok;
}

size_t vu_receive(VuBackend *vu, void *frame, size_t size, unsigned ms)
{
    gint64 end = g_get_monotonic_time() + (gint64)ms * 1000;
    GBytes *bytes;
    size_t got = 0;

    vu_lock(vu);
    while (!(bytes = g_queue_pop_head(&vu->frames)) && vu_wait_changed(vu, end)) {
    }
    if (bytes) {
        got = g_bytes_get_size(bytes);
        memcpy(frame, g_bytes_get_data(bytes, NULL), MIN(got, size));
        g_bytes_unref(bytes);
    }
    vu_unlock(vu);
    return got;
}

void vu_break_vring(VuBackend *vu, unsigned index)
{
    vu_signal(vu_lock(vu)->vrings[index].err);
    vu_unlock(vu);
}
