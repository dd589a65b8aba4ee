/*
 * virtio-net lends a back end its receive buffers: which memory it is, what becomes of frames read
 * into it, and when it lends none.
 */
#include <string.h>

#include "tests/lib/frame-builder.h"
#include "tests/unit/virtio-net-rig.h"
#include "util/clock.h"
#include "util/iov.h"

#define BUFFER     2000
#define NEEDED     35 /* buffers for NET_MAX_FRAME bytes */
#define HDR        12
#define MRG        (RIG_MODERN | RIG_MRG)
#define FEATURE(f) VIRTIO_FEATURE(VIRTIO_NET_F_##f)

static const uint8_t to[6] = {0x02, 0, 0, 0, 0, 1};

/* With a peer that has vnet headers, and @posted buffers. */
static void start(Rig *rig, VirtioFeatures features, unsigned posted)
{
    rig_init(rig);
    rig->caps = (NetCaps){.vnet_hdr = true, .offloads = {.csum = true, .tso4 = true}};
    rig_start(rig, NULL, features, 256);
    memset(rig->ram + RIG_DATA, 0xcc, 256 * 0x1000);
    rig_post(rig, posted, BUFFER);
}

/* How many frames the peer can send by the other way before it has to wait. */
static unsigned count_room(Rig *rig)
{
    uint8_t frame[HDR + 60] = {0};
    unsigned count = 0;

    while (rig_receive_frame(rig, 0, frame, sizeof(frame))) {
        count++;
    }
    return count;
}

/* One frame of @size bytes, header included, as a back end would read it. */
static void lend_and_send(Rig *rig, const void *bytes, size_t size)
{
    struct iovec iov[64];
    unsigned pieces = net_borrow_buffers(rig->peer, iov, G_N_ELEMENTS(iov));

    g_assert_cmpuint(pieces, ==, NEEDED);
    iov_from_buf(iov, pieces, 0, bytes, size);
    net_send_borrowed(rig->peer, iov, pieces, size);
}

static void test_in_place(void)
{
    Rig rig;
    struct iovec iov[64];
    uint8_t frame[5000] = {0};
    unsigned head, len;
    static const unsigned lengths[] = {BUFFER, BUFFER, 1000, 72};

    start(&rig, MRG | FEATURE(GUEST_CSUM), 40);
    g_assert_cmpuint(net_borrow_buffers(rig.peer, iov, G_N_ELEMENTS(iov)), ==, NEEDED);
    for (unsigned i = 0; i < NEEDED; i++) {
        g_assert_true(iov[i].iov_base == rig.ram + RIG_DATA + i * 0x1000);
        g_assert_cmpuint(iov[i].iov_len, ==, BUFFER);
    }
    memset(frame + HDR, 0x5a, sizeof(frame) - HDR);
    frame[0] = VIRTIO_NET_HDR_F_DATA_VALID;
    lend_and_send(&rig, frame, sizeof(frame));
    lend_and_send(&rig, frame, 72);
    g_assert_cmpint(rig.interrupts[RIG_RX], ==, 0); /* one for the batch */
    net_return_buffers(rig.peer);
    g_assert_cmpint(rig.interrupts[RIG_RX], ==, 1);
    for (unsigned i = 0; i < G_N_ELEMENTS(lengths); i++) {
        const uint8_t *buffer = rig.ram + RIG_DATA + i * 0x1000;

        g_assert_true(rig_used(&rig, RIG_RX, &head, &len));
        g_assert_cmpuint(head, ==, i);
        g_assert_cmpuint(len, ==, lengths[i]);
        if (i == 0 || i == 3) {
            g_assert_cmpint(buffer[0], ==, VIRTIO_NET_HDR_F_DATA_VALID);
            g_assert_cmpint(buffer[10], ==, i == 0 ? 3 : 1); /* num_buffers */
            buffer += HDR;
            len -= HDR;
        }
        rig_assert_filled(buffer, len, 0x5a);
        rig_assert_filled(buffer + len, 50, 0xcc);
    }
    g_assert_false(rig_used(&rig, RIG_RX, &head, &len));
    g_assert_false(rig_wants_notify(&rig, RIG_RX));
    g_assert_cmpuint(rig.peer->stats.tx_packets, ==, 2);
    g_assert_cmpuint(rig.peer->stats.tx_bytes, ==, sizeof(frame) + 72);
    g_assert_cmpuint(rig.n->queues[0].rx_stats.packets, ==, 2);
    g_assert_cmpuint(rig.n->queues[0].rx_stats.buffers, ==, 4);
    /* What was lent and not used is the ring's again. */
    g_assert_cmpuint(count_room(&rig), ==, 36);
    rig_cleanup(&rig);
}

static void assert_lends_none(Rig *rig, unsigned receivable)
{
    struct iovec iov[64];

    g_assert_cmpuint(net_borrow_buffers(rig->peer, iov, G_N_ELEMENTS(iov)), ==, 0);
    g_assert_cmpuint(count_room(rig), ==, receivable);
    rig_cleanup(rig);
}

static void test_too_few(void)
{
    Rig rig;

    start(&rig, MRG, NEEDED - 1);
    assert_lends_none(&rig, NEEDED - 1);
}

/* A buffer that can hold nothing goes back to the driver, also when none is lent. */
static void test_bad_buffer(void)
{
    const RigPart tiny = {RIG_DATA, HDR - 1, true};
    struct iovec iov[64];
    unsigned head, len;
    Rig rig;

    start(&rig, MRG, 0);
    g_assert_cmpuint(rig_add(&rig, RIG_RX, &tiny, 1, 0), ==, 0);
    rig_post(&rig, 2, BUFFER);
    g_assert_cmpuint(net_borrow_buffers(rig.peer, iov, G_N_ELEMENTS(iov)), ==, 0);
    g_assert_true(rig_used(&rig, RIG_RX, &head, &len));
    g_assert_cmpuint(head, ==, 0);
    g_assert_cmpuint(len, ==, 0);
    g_assert_false(rig_used(&rig, RIG_RX, &head, &len));
    g_assert_cmpuint(rig.n->queues[0].rx_stats.bad_buffers, ==, 1);
    rig_cleanup(&rig);
}

static void test_too_many_pieces(void)
{
    Rig rig;
    struct iovec iov[NEEDED - 1];

    start(&rig, MRG, NEEDED);
    g_assert_cmpuint(net_borrow_buffers(rig.peer, iov, G_N_ELEMENTS(iov)), ==, 0);
    g_assert_cmpuint(count_room(&rig), ==, NEEDED);
    rig_cleanup(&rig);
}

static void test_plain_buffers(void)
{
    Rig rig;

    start(&rig, RIG_MODERN, 64);
    assert_lends_none(&rig, 64);
}

static void test_other_header(void)
{
    Rig rig;

    rig_init(&rig); /* no vnet header */
    rig_start(&rig, NULL, MRG, 256);
    rig_post(&rig, 64, BUFFER);
    assert_lends_none(&rig, 64);
}

static void test_link_down(void)
{
    Rig rig;
    struct iovec iov[64];

    start(&rig, MRG, 64);
    rig.peer->link_down = true;
    g_assert_cmpuint(net_borrow_buffers(rig.peer, iov, G_N_ELEMENTS(iov)), ==, 0);
    rig.peer->link_down = false;
    g_assert_cmpuint(net_borrow_buffers(rig.peer, iov, G_N_ELEMENTS(iov)), ==, NEEDED);
    net_return_buffers(rig.peer);
    g_assert_cmpint(rig.interrupts[RIG_RX], ==, 0);
    rig_cleanup(&rig);
}

/* A frame for somebody else leaves its buffers for the next one. */
static void test_filtered(void)
{
    static const uint8_t promiscuous_off[] = {VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, 0};
    uint8_t other[HDR + 60] = {0}, own[HDR + 60] = {0};
    unsigned head, len;
    Rig rig;

    start(&rig, MRG | FEATURE(CTRL_VQ) | FEATURE(CTRL_RX), 40);
    g_assert_cmpint(rig_command(&rig, promiscuous_off, sizeof(promiscuous_off)), ==, VIRTIO_NET_OK);
    memcpy(other + HDR, to, sizeof(to));
    memset(own + HDR, 0xff, 6);
    lend_and_send(&rig, other, sizeof(other));
    lend_and_send(&rig, own, sizeof(own));
    net_return_buffers(rig.peer);
    g_assert_true(rig_used(&rig, RIG_RX, &head, &len));
    g_assert_cmpuint(head, ==, 0);
    g_assert_cmpmem(rig.ram + RIG_DATA + HDR, 60, own + HDR, 60);
    g_assert_false(rig_used(&rig, RIG_RX, &head, &len));
    g_assert_cmpuint(rig.n->queues[0].rx_stats.drops[NET_DROP_FILTERED], ==, 1);
    rig_cleanup(&rig);
}

/* What the frame must become for a driver that takes no offloads, in one buffer each. */
static void expect_finished(Rig *rig, const BuiltFrame *built, unsigned segments)
{
    char *problem = NULL;
    g_autoptr(GPtrArray) want = frame_finish(&built->header, built->bytes, built->size, &problem);
    unsigned head, len;

    g_assert_cmpstr(problem, ==, NULL);
    g_assert_cmpuint(want->len, ==, segments);
    for (unsigned i = 0; i < want->len; i++) {
        const GByteArray *bytes = want->pdata[i];

        g_assert_true(rig_used(rig, RIG_RX, &head, &len));
        const uint8_t *buffer = rig->ram + RIG_DATA + head * 0x1000;
        g_assert_cmpint(buffer[10], ==, 1);
        g_assert_cmpint(buffer[0] | buffer[1], ==, 0);
        g_assert_cmpmem(buffer + HDR, len - HDR, bytes->data, bytes->len);
    }
    g_assert_false(rig_used(rig, RIG_RX, &head, &len));
}

static void send_built(Rig *rig, const BuiltFrame *built)
{
    g_autofree uint8_t *bytes = g_malloc(HDR + built->size);

    memcpy(bytes, &built->header, HDR);
    memcpy(bytes + HDR, built->bytes, built->size);
    lend_and_send(rig, bytes, HDR + built->size);
    net_return_buffers(rig->peer);
}

static void test_unfinished(gconstpointer data)
{
    const FrameSpec *spec = data;
    BuiltFrame built;
    Rig rig;

    start(&rig, MRG, 40);
    frame_build(&built, spec, to);
    send_built(&rig, &built);
    expect_finished(&rig, &built, spec->gso_size ? 4 : 1);
    frame_clear(&built);
    rig_cleanup(&rig);
}

/* More segments than buffers: what has no room is lost, and counted. */
static void test_split_without_room(void)
{
    static const FrameSpec spec = {.ip_version = 4,
                                   .protocol = 6,
                                   .payload = 1000,
                                   .gso_size = 20,
                                   .gso_type = VIRTIO_NET_HDR_GSO_TCPV4};
    BuiltFrame built;
    Rig rig;

    start(&rig, MRG, NEEDED);
    frame_build(&built, &spec, to);
    send_built(&rig, &built);
    g_assert_cmpuint(rig_drain_used(&rig, RIG_RX, HDR + 14 + 20 + 32 + 20), ==, NEEDED);
    g_assert_cmpuint(rig.n->queues[0].rx_stats.drops[NET_DROP_NO_BUFFER], ==, 1);
    g_assert_true(rig_wants_notify(&rig, RIG_RX));
    frame_clear(&built);
    rig_cleanup(&rig);
}

int main(int argc, char **argv)
{
    static const FrameSpec tso = {.ip_version = 4,
                                  .protocol = 6,
                                  .payload = 5000,
                                  .gso_size = 1448,
                                  .gso_type = VIRTIO_NET_HDR_GSO_TCPV4};
    static const FrameSpec csum = {
        .ip_version = 6, .protocol = 17, .payload = 801, .partial = true};

    g_test_init(&argc, &argv, NULL);
    clock_set_stepped();
    g_test_add_func("/rx-lent/in-place", test_in_place);
    g_test_add_func("/rx-lent/too-few-buffers", test_too_few);
    g_test_add_func("/rx-lent/bad-buffer", test_bad_buffer);
    g_test_add_func("/rx-lent/too-many-pieces", test_too_many_pieces);
    g_test_add_func("/rx-lent/plain-buffers", test_plain_buffers);
    g_test_add_func("/rx-lent/other-header", test_other_header);
    g_test_add_func("/rx-lent/link-down", test_link_down);
    g_test_add_func("/rx-lent/filtered", test_filtered);
    g_test_add_data_func("/rx-lent/segments-for-the-driver", &tso, test_unfinished);
    g_test_add_data_func("/rx-lent/checksum-for-the-driver", &csum, test_unfinished);
    g_test_add_func("/rx-lent/segments-without-room", test_split_without_room);
    return g_test_run();
}
