/*
 * The vhost-user back end for tests: messages of the protocol, answered well or as VuMode orders.
 */
#include <errno.h>
#include <linux/vhost_types.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/vhost-user-internal.h"

#define INFLIGHT_BYTES 4096

const uint64_t VU_FEATURES = (1ull << VIRTIO_F_VERSION_1) | (1ull << VIRTIO_NET_F_MRG_RXBUF) |
                             (1ull << VHOST_USER_F_PROTOCOL_FEATURES) | (1ull << VHOST_F_LOG_ALL);

static VuMode current_mode(const VuBackend *vu)
{
    const VuMode *mode = vu->config.modes;

    for (unsigned i = 1; mode && *mode != VU_NORMAL && i < vu->state.connections; i++) {
        mode++;
    }
    return mode ? *mode : VU_NORMAL;
}

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

void vu_unmap_log(VuState *s)
{
    if (s->log) {
        munmap(s->log, s->log_size);
        s->log = NULL;
    }
}

static void set_log(VuBackend *vu, const VhostUserHeader *header, const VhostUserPayload *p, int fd)
{
    VuState *s = &vu->state;

    vu_unmap_log(s);
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
    struct vring_used *used = vu_from_user(&vu->state, p->addr.used);

    v->addr = p->addr;
    v->used = used->idx;
    vu_from_user(&vu->state, p->addr.desc);
    vu_from_user(&vu->state, p->addr.avail);
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
        vu_unmap_memory(s);
        g_assert_cmpuint(p->memory.count, ==, nfds);
        for (unsigned i = 0; i < p->memory.count; i++) {
            vu_map_region(s, &p->memory.regions[i], fds[i]);
        }
        *result = current_mode(vu) == VU_REFUSE_MEMORY;
        break;
    case VHOST_USER_ADD_MEM_REG:
        g_assert_cmpuint(nfds, ==, 1);
        vu_map_region(s, &p->region.region, fds[0]);
        break;
    case VHOST_USER_REM_MEM_REG:
        vu_remove_region(s, &p->region.region);
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
bool vu_serve_message(VuBackend *vu)
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
