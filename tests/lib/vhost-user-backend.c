/*
 * A vhost-user back end for tests: see vhost-user-backend.h.
 *
 * One thread: waits for a connection, then for messages and kicks.  Everything is under one lock,
 * which the test takes to look; what it waits for is signalled after each message and frame.
 */
#include "tests/lib/vhost-user-backend.h"

#include <errno.h>
#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define HDR_SIZE       12 /* of struct virtio_net_hdr_v1 */
#define FRAME_MAX      65562
#define RETRY_MS       20
#define INFLIGHT_BYTES 4096
#define PAGE           4096

const uint64_t VU_FEATURES = (1ull << VIRTIO_F_VERSION_1) | (1ull << VIRTIO_NET_F_MRG_RXBUF) |
                             (1ull << VHOST_USER_F_PROTOCOL_FEATURES) | (1ull << VHOST_F_LOG_ALL);

struct VuBackend {
    char *path;
    VuConfig config;
    pthread_t thread; /* pthread's locks: ThreadSanitizer does not know GLib's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    VuState state;
    GQueue frames; /* of GBytes, from the guest */
    int listen_fd, fd, request_fd;
    int wake; /* eventfd: look at the flags below */
    bool stop, drop, available, link_up;
};

VuState *vu_lock(VuBackend *vu)
{
    pthread_mutex_lock(&vu->lock);
    return &vu->state;
}

void vu_unlock(VuBackend *vu)
{
    pthread_mutex_unlock(&vu->lock);
}

static void signal_eventfd(int fd)
{
    uint64_t one = 1;

    if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) {
        g_error("eventfd: %s", g_strerror(errno));
    }
}

static VuMode current_mode(const VuBackend *vu)
{
    const VuMode *mode = vu->config.modes;

    for (unsigned i = 1; mode && *mode != VU_NORMAL && i < vu->state.connections; i++) {
        mode++;
    }
    return mode ? *mode : VU_NORMAL;
}

/* --- memory --- */

static void unmap_memory(VuState *s)
{
    for (unsigned i = 0; i < s->num_regions; i++) {
        munmap(s->mapped[i] - s->regions[i].mmap_offset,
               s->regions[i].size + s->regions[i].mmap_offset);
    }
    s->num_regions = 0;
}

static void map_region(VuState *s, const VhostUserRegion *region, int fd)
{
    void *at =
        mmap(NULL, region->size + region->mmap_offset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    g_assert_true(at != MAP_FAILED);
    g_assert_cmpuint(s->num_regions, <, VHOST_USER_MAX_REGIONS);
    s->regions[s->num_regions] = *region;
    s->mapped[s->num_regions++] = (uint8_t *)at + region->mmap_offset;
}

static void remove_region(VuState *s, const VhostUserRegion *region)
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

static void *from_user(VuState *s, uint64_t addr)
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
    struct vring_avail *avail = from_user(s, v->addr.avail);
    uint16_t idx = __atomic_load_n(&avail->idx, __ATOMIC_ACQUIRE);

    if (idx == v->last_avail) {
        return false;
    }
    *head = avail->ring[v->last_avail++ % v->num];
    return true;
}

static void push_used(VuState *s, VuVring *v, uint16_t head, uint32_t len)
{
    struct vring_used *used = from_user(s, v->addr.used);

    used->ring[v->used % v->num] = (struct vring_used_elem){.id = head, .len = len};
    __atomic_store_n(&used->idx, ++v->used, __ATOMIC_RELEASE);
    if (v->addr.flags & 1u << VHOST_VRING_F_LOG) {
        log_write(s, v->addr.log, sizeof(*used) + v->num * sizeof(used->ring[0]));
    }
    signal_eventfd(v->call);
}

/* Copies between a chain and @data; returns the bytes of the chain that there were. */
static size_t copy_chain(VuState *s, VuVring *v, uint16_t head, uint8_t *data, size_t size,
                         bool writing)
{
    struct vring_desc *desc = from_user(s, v->addr.desc);
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

static void take_frames(VuBackend *vu, VuVring *v)
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

/* Waits for a change until @end (monotonic, µs); false at the end of the time. */
static bool wait_changed(VuBackend *vu, gint64 end)
{
    gint64 left = end - g_get_monotonic_time();
    gint64 until = g_get_real_time() + left;
    struct timespec time = {until / G_USEC_PER_SEC, until % G_USEC_PER_SEC * 1000};

    return left > 0 && pthread_cond_timedwait(&vu->changed, &vu->lock, &time) == 0;
}

size_t vu_receive(VuBackend *vu, void *frame, size_t size, unsigned ms)
{
    gint64 end = g_get_monotonic_time() + (gint64)ms * 1000;
    GBytes *bytes;
    size_t got = 0;

    vu_lock(vu);
    while (!(bytes = g_queue_pop_head(&vu->frames)) && wait_changed(vu, end)) {
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
    signal_eventfd(vu_lock(vu)->vrings[index].err);
    vu_unlock(vu);
}

/* --- messages --- */

static void answer(VuBackend *vu, const VhostUserHeader *to, const void *payload, uint32_t size,
                   int fd)
{
    VhostUserHeader header = {to->request, VHOST_USER_VERSION | VHOST_USER_FLAG_REPLY, size};
    struct iovec iov[] = {{&header, sizeof(header)}, {(void *)payload, size}};
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

    switch (current_mode(vu)) {
    case VU_WRONG_ANSWER:
        header.request = 63;
        break;
    case VU_HUGE_ANSWER:
        header.size = 0x80000000u;
        break;
    case VU_HALF_ANSWER:
        iov[1].iov_len = size / 2;
        vu->drop = true;
        break;
    case VU_SILENT:
        return;
    default:
        break;
    }
    if (fd >= 0) {
        msg.msg_control = control;
        msg.msg_controllen = sizeof(control);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    sendmsg(vu->fd, &msg, MSG_NOSIGNAL);
}

static void answer_u64(VuBackend *vu, const VhostUserHeader *to, uint64_t value)
{
    answer(vu, to, &value, sizeof(value), -1);
}

static uint64_t offered_features(const VuBackend *vu)
{
    uint64_t features = vu->config.features ? vu->config.features : VU_FEATURES;

    switch (current_mode(vu)) {
    case VU_NO_FEATURES:
        return 0;
    case VU_FEWER_FEATURES:
        return features & ~(1ull << VIRTIO_NET_F_MRG_RXBUF);
    default:
        return features;
    }
}

static void get_config(VuBackend *vu, const VhostUserHeader *header, VhostUserPayload *p)
{
    struct virtio_net_config config = {.status = vu->link_up ? VIRTIO_NET_S_LINK_UP : 0};

    if (p->config.offset > sizeof(config) || p->config.size > sizeof(config) - p->config.offset) {
        answer(vu, header, NULL, 0, -1);
        return;
    }
    memcpy(p->config.data, (char *)&config + p->config.offset, p->config.size);
    answer(vu, header, p, VHOST_USER_CONFIG_HEAD + p->config.size, -1);
}

static void get_inflight(VuBackend *vu, const VhostUserHeader *header, VhostUserPayload *p)
{
    int fd = memfd_create("inflight", MFD_CLOEXEC);

    g_assert_cmpint(ftruncate(fd, INFLIGHT_BYTES), ==, 0);
    p->inflight.mmap_size = INFLIGHT_BYTES;
    answer(vu, header, p, sizeof(p->inflight), fd);
    close(fd);
}

static void set_inflight(VuState *s, int fd)
{
    struct stat st;

    g_assert_cmpint(fstat(fd, &st), ==, 0);
    s->inflight_inode = st.st_ino;
}

static void unmap_log(VuState *s)
{
    if (s->log) {
        munmap(s->log, s->log_size);
        s->log = NULL;
    }
}

static void set_log(VuBackend *vu, const VhostUserHeader *header, const VhostUserPayload *p, int fd)
{
    VuState *s = &vu->state;

    unmap_log(s);
    s->log_size = p->log.mmap_size;
    s->log =
        mmap(NULL, s->log_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)p->log.mmap_offset);
    g_assert_true(s->log != MAP_FAILED);
    if (s->protocol_features >> VHOST_USER_PROTOCOL_F_LOG_SHMFD & 1) {
        answer_u64(vu, header, 0);
    }
}

static void replace_fd(int *place, int fd)
{
    if (*place >= 0) {
        close(*place);
    }
    *place = fd;
}

static VuVring *vring_at(VuBackend *vu, uint64_t index)
{
    g_assert_cmpuint(index, <, VU_MAX_VRINGS);
    return &vu->state.vrings[index];
}

static void get_vring_base(VuBackend *vu, const VhostUserHeader *header, VhostUserPayload *p)
{
    VuVring *v = vring_at(vu, p->state.index);

    p->state.num = v->last_avail;
    v->started = false;
    replace_fd(&v->kick, -1);
    replace_fd(&v->call, -1);
    replace_fd(&v->err, -1);
    answer(vu, header, p, sizeof(p->state), -1);
}

static void set_vring_base(VuBackend *vu, const VhostUserPayload *p)
{
    VuVring *v = vring_at(vu, p->state.index);

    v->base = p->state.num;
    v->last_avail = (uint16_t)p->state.num;
    v->started = true;
}

static void set_vring_addr(VuBackend *vu, const VhostUserPayload *p)
{
    VuVring *v = vring_at(vu, p->addr.index);
    struct vring_used *used = from_user(&vu->state, p->addr.used);

    v->addr = p->addr;
    v->used = used->idx;
    from_user(&vu->state, p->addr.desc);
    from_user(&vu->state, p->addr.avail);
}

/* True: *result is what a confirmation says; false: the request has its own answer. */
static bool handle(VuBackend *vu, const VhostUserHeader *header, VhostUserPayload *p, int *fds,
                   unsigned nfds, uint64_t *result)
{
    VuState *s = &vu->state;
    VuVring *v;

    switch (header->request) {
    case VHOST_USER_GET_FEATURES:
        answer_u64(vu, header, offered_features(vu));
        return false;
    case VHOST_USER_SET_FEATURES:
        s->features = p->u64;
        /* Without protocol features rings are enabled as they come. */
        for (unsigned i = 0; !(p->u64 >> VHOST_USER_F_PROTOCOL_FEATURES & 1) && i < VU_MAX_VRINGS;
             i++) {
            s->vrings[i].enabled = true;
        }
        break;
    case VHOST_USER_GET_PROTOCOL_FEATURES:
        answer_u64(vu, header, vu->config.protocol_features);
        return false;
    case VHOST_USER_SET_PROTOCOL_FEATURES:
        s->protocol_features = p->u64;
        return false;
    case VHOST_USER_GET_QUEUE_NUM:
        answer_u64(vu, header, MAX(vu->config.queues, 1));
        return false;
    case VHOST_USER_GET_MAX_MEM_SLOTS:
        answer_u64(vu, header, VHOST_USER_MAX_REGIONS);
        return false;
    case VHOST_USER_SET_MEM_TABLE:
        unmap_memory(s);
        g_assert_cmpuint(p->memory.count, ==, nfds);
        for (unsigned i = 0; i < p->memory.count; i++) {
            map_region(s, &p->memory.regions[i], fds[i]);
        }
        *result = current_mode(vu) == VU_REFUSE_MEMORY;
        break;
    case VHOST_USER_ADD_MEM_REG:
        g_assert_cmpuint(nfds, ==, 1);
        map_region(s, &p->region.region, fds[0]);
        break;
    case VHOST_USER_REM_MEM_REG:
        remove_region(s, &p->region.region);
        break;
    case VHOST_USER_SET_LOG_BASE:
        g_assert_cmpuint(nfds, ==, 1);
        set_log(vu, header, p, fds[0]);
        return false;
    case VHOST_USER_SET_VRING_NUM:
        vring_at(vu, p->state.index)->num = p->state.num;
        break;
    case VHOST_USER_SET_VRING_ADDR:
        set_vring_addr(vu, p);
        break;
    case VHOST_USER_SET_VRING_BASE:
        set_vring_base(vu, p);
        break;
    case VHOST_USER_GET_VRING_BASE:
        get_vring_base(vu, header, p);
        return false;
    case VHOST_USER_SET_VRING_KICK:
    case VHOST_USER_SET_VRING_CALL:
    case VHOST_USER_SET_VRING_ERR:
        g_assert_cmpuint(nfds, ==, p->u64 & VHOST_USER_VRING_NO_FD ? 0 : 1);
        v = vring_at(vu, p->u64 & VHOST_USER_VRING_INDEX_MASK);
        replace_fd(header->request == VHOST_USER_SET_VRING_KICK   ? &v->kick
                   : header->request == VHOST_USER_SET_VRING_CALL ? &v->call
                                                                  : &v->err,
                   nfds ? fds[0] : -1);
        if (nfds) {
            fds[0] = -1;
        }
        break;
    case VHOST_USER_SET_VRING_ENABLE:
        vring_at(vu, p->state.index)->enabled = p->state.num;
        break;
    case VHOST_USER_SEND_RARP:
        memcpy(s->rarp_mac, &p->u64, sizeof(s->rarp_mac));
        break;
    case VHOST_USER_NET_SET_MTU:
        s->mtu = p->u64;
        break;
    case VHOST_USER_SET_BACKEND_REQ_FD:
        g_assert_cmpuint(nfds, ==, 1);
        replace_fd(&vu->request_fd, fds[0]);
        fds[0] = -1;
        break;
    case VHOST_USER_GET_CONFIG:
        get_config(vu, header, p);
        return false;
    case VHOST_USER_GET_INFLIGHT_FD:
        get_inflight(vu, header, p);
        return false;
    case VHOST_USER_SET_INFLIGHT_FD:
        g_assert_cmpuint(nfds, ==, 1);
        set_inflight(s, fds[0]);
        break;
    case VHOST_USER_SET_STATUS:
        s->status = p->u64;
        break;
    }
    return true;
}

static bool read_all(int fd, void *buf, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, (char *)buf + done, size - done);

        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return false;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool receive_header(VuBackend *vu, VhostUserHeader *header, int *fds, unsigned *nfds)
{
    char control[CMSG_SPACE(sizeof(int) * VHOST_USER_MAX_FDS)];
    struct iovec iov = {header, sizeof(*header)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(vu->fd, &msg, MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

    *nfds = 0;
    if (c && c->cmsg_type == SCM_RIGHTS) {
        *nfds = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), *nfds * sizeof(int));
    }
    return n > 0 && read_all(vu->fd, (char *)header + n, sizeof(*header) - (size_t)n);
}

/* One message; false: the connection is over. */
static bool serve_message(VuBackend *vu)
{
    int fds[VHOST_USER_MAX_FDS];
    unsigned nfds;
    VhostUserHeader header;
    VhostUserPayload payload = {0};
    uint64_t result = 0;

    if (!receive_header(vu, &header, fds, &nfds)) {
        return false;
    }
    g_assert_cmpuint(header.flags & VHOST_USER_VERSION_MASK, ==, VHOST_USER_VERSION);
    g_assert_cmpuint(header.size, <=, sizeof(payload));
    if (!read_all(vu->fd, &payload, header.size)) {
        return false;
    }
    vu_lock(vu);
    if (current_mode(vu) == VU_CLOSE_AT_ONCE) {
        vu->drop = true;
    } else if (handle(vu, &header, &payload, fds, nfds, &result) &&
               header.flags & VHOST_USER_FLAG_NEED_REPLY) {
        answer_u64(vu, &header, result);
    }
    if (current_mode(vu) == VU_UNASKED && header.request == VHOST_USER_SET_OWNER) {
        answer_u64(vu, &header, 0);
    }
    for (unsigned i = 0; i < nfds; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    vu->state.messages[header.request % G_N_ELEMENTS(vu->state.messages)]++;
    pthread_cond_broadcast(&vu->changed);
    vu_unlock(vu);
    return true;
}

/* --- the thread --- */

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static void disconnected(VuBackend *vu)
{
    VuState *s = vu_lock(vu);

    close_fd(&vu->fd);
    close_fd(&vu->request_fd);
    unmap_memory(s);
    unmap_log(s);
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        close_fd(&s->vrings[i].kick);
        close_fd(&s->vrings[i].call);
        close_fd(&s->vrings[i].err);
        s->vrings[i] = (VuVring){.kick = -1, .call = -1, .err = -1};
    }
    s->connected = false;
    vu->drop = false;
    pthread_cond_broadcast(&vu->changed);
    vu_unlock(vu);
}

static struct sockaddr_un address(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    g_strlcpy(addr.sun_path, path, sizeof(addr.sun_path));
    return addr;
}

static int try_connect(VuBackend *vu)
{
    struct sockaddr_un addr = address(vu->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void wait_for_connection(VuBackend *vu, bool available)
{
    struct pollfd pfds[] = {{.fd = vu->wake, .events = POLLIN},
                            {.fd = available ? vu->listen_fd : -1, .events = POLLIN}};

    poll(pfds, 2, available && vu->config.client ? RETRY_MS : -1);
    if (pfds[0].revents) {
        return;
    }
    vu->fd = !available          ? -1
             : vu->config.client ? try_connect(vu)
             : pfds[1].revents   ? accept4(vu->listen_fd, NULL, NULL, SOCK_CLOEXEC)
                                 : -1;
    if (vu->fd >= 0) {
        VuState *s = vu_lock(vu);

        s->connections++;
        s->connected = true;
        pthread_cond_broadcast(&vu->changed);
        vu_unlock(vu);
    }
}

static void serve(VuBackend *vu)
{
    struct pollfd pfds[2 + VU_MAX_VRINGS] = {{.fd = vu->wake, .events = POLLIN},
                                             {.fd = vu->fd, .events = POLLIN}};
    uint64_t count;

    vu_lock(vu);
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        pfds[2 + i] = (struct pollfd){.fd = vu->state.vrings[i].kick, .events = POLLIN};
    }
    vu_unlock(vu);
    poll(pfds, G_N_ELEMENTS(pfds), -1);
    vu_lock(vu);
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        VuVring *v = &vu->state.vrings[i];

        if (pfds[2 + i].revents && v->enabled &&
            read(v->kick, &count, sizeof(count)) == sizeof(count) && i % 2) {
            take_frames(vu, v);
        } else if (pfds[2 + i].revents && !v->enabled) {
            /* Looked at when it is enabled: not kept spinning. */
            if (read(v->kick, &count, sizeof(count)) < 0) {
                g_error("kick: %s", g_strerror(errno));
            }
            signal_eventfd(vu->wake);
            g_usleep(1000);
            signal_eventfd(v->kick);
        }
    }
    pthread_cond_broadcast(&vu->changed);
    vu_unlock(vu);

    bool over = pfds[1].revents && !serve_message(vu);

    vu_lock(vu);
    over = over || vu->drop;
    vu_unlock(vu);
    if (over) {
        disconnected(vu);
    }
}

static void *run(void *opaque)
{
    VuBackend *vu = opaque;
    uint64_t count;

    for (;;) {
        bool available;
        struct pollfd pfd = {.fd = vu->wake, .events = POLLIN};

        vu_lock(vu);
        if (poll(&pfd, 1, 0) > 0 && read(vu->wake, &count, sizeof(count)) < 0) {
            g_error("wake: %s", g_strerror(errno));
        }
        bool stop = vu->stop, drop = vu->drop;
        available = vu->available;
        vu_unlock(vu);
        if (vu->fd >= 0 && (stop || drop)) {
            disconnected(vu);
        }
        if (stop) {
            return NULL;
        }
        if (vu->fd >= 0) {
            serve(vu);
        } else {
            wait_for_connection(vu, available);
        }
    }
}

/* --- for tests --- */

VuBackend *vu_backend_new(const char *path, const VuConfig *config)
{
    VuBackend *vu = g_new0(VuBackend, 1);
    struct sockaddr_un addr = address(path);

    vu->path = g_strdup(path);
    if (config) {
        vu->config = *config;
    }
    pthread_mutex_init(&vu->lock, NULL);
    pthread_cond_init(&vu->changed, NULL);
    g_queue_init(&vu->frames);
    vu->listen_fd = vu->fd = vu->request_fd = -1;
    vu->available = vu->link_up = true;
    vu->wake = eventfd(0, EFD_CLOEXEC);
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        vu->state.vrings[i].kick = vu->state.vrings[i].call = vu->state.vrings[i].err = -1;
    }
    if (!vu->config.client) {
        vu->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        unlink(path);
        if (bind(vu->listen_fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
            listen(vu->listen_fd, 4) < 0) {
            g_error("%s: %s", path, g_strerror(errno));
        }
    }
    g_assert_cmpint(pthread_create(&vu->thread, NULL, run, vu), ==, 0);
    return vu;
}

void vu_backend_free(VuBackend *vu)
{
    GBytes *bytes;

    vu_lock(vu);
    vu->stop = true;
    vu_unlock(vu);
    signal_eventfd(vu->wake);
    pthread_join(vu->thread, NULL);
    while ((bytes = g_queue_pop_head(&vu->frames))) {
        g_bytes_unref(bytes);
    }
    if (vu->listen_fd >= 0) {
        close(vu->listen_fd);
        unlink(vu->path);
    }
    close(vu->wake);
    pthread_cond_destroy(&vu->changed);
    pthread_mutex_destroy(&vu->lock);
    g_free(vu->path);
    g_free(vu);
}

bool vu_wait(VuBackend *vu, bool (*fn)(const VuState *state, uint64_t arg), uint64_t arg)
{
    gint64 end = g_get_monotonic_time() + VU_TIMEOUT_MS * G_TIME_SPAN_MILLISECOND;
    bool ok;

    vu_lock(vu);
    while (!(ok = fn(&vu->state, arg)) && wait_changed(vu, end)) {
    }
    vu_unlock(vu);
    return ok;
}

bool vu_is_started(const VuState *state, uint64_t vrings)
{
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        /* The err eventfd is what a front end sends last. */
        if ((state->vrings[i].started && state->vrings[i].err >= 0) != (vrings >> i & 1)) {
            return false;
        }
    }
    return true;
}

bool vu_is_enabled(const VuState *state, uint64_t vrings)
{
    for (unsigned i = 0; i < VU_MAX_VRINGS; i++) {
        if (state->vrings[i].enabled != (vrings >> i & 1)) {
            return false;
        }
    }
    return true;
}

bool vu_has_connections(const VuState *state, uint64_t count)
{
    return state->connected && state->connections >= count;
}

void vu_disconnect(VuBackend *vu)
{
    vu_lock(vu);
    vu->drop = vu->state.connected;
    vu_unlock(vu);
    signal_eventfd(vu->wake);
}

void vu_set_available(VuBackend *vu, bool available)
{
    vu_lock(vu);
    vu->available = available;
    vu_unlock(vu);
    signal_eventfd(vu->wake);
}

void vu_set_link(VuBackend *vu, bool up)
{
    VhostUserHeader header = {VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, VHOST_USER_VERSION, 0};

    vu_lock(vu);
    vu->link_up = up;
    if (vu->request_fd >= 0) {
        send(vu->request_fd, &header, sizeof(header), MSG_NOSIGNAL);
    }
    vu_unlock(vu);
}
