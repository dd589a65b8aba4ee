/*
 * Interrupts over vfio-user: every form of SET_IRQS, right and wrong, and the device behind them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/vfio-user-rig.h"

#define INTX    VFIO_PCI_INTX_IRQ_INDEX
#define MSIX    VFIO_PCI_MSIX_IRQ_INDEX
#define NONE    VFIO_IRQ_SET_DATA_NONE
#define BOOL    VFIO_IRQ_SET_DATA_BOOL
#define EVENTFD VFIO_IRQ_SET_DATA_EVENTFD
#define MASK    VFIO_IRQ_SET_ACTION_MASK
#define UNMASK  VFIO_IRQ_SET_ACTION_UNMASK
#define TRIGGER VFIO_IRQ_SET_ACTION_TRIGGER
#define VECTORS 4
#define PBA     0x800

typedef struct Fixture {
    VfioRig *rig;
    VfioUserClient *client;
    int fds[VECTORS];
} Fixture;

static void set(Fixture *f, uint32_t index, uint32_t flags, uint32_t start, uint32_t count,
                const uint8_t *bools, const int *fds, unsigned nfds)
{
    GError *err = NULL;

    vfio_user_client_set_irqs(f->client, index, flags, start, count, bools, fds, nfds, &err);
    vfio_check(err, "SET_IRQS");
}

static void set_refused(Fixture *f, uint32_t index, uint32_t flags, uint32_t start, uint32_t count,
                        const int *fds, unsigned nfds)
{
    struct vfio_irq_set request = {
        .argsz = 20, .flags = flags, .index = index, .start = start, .count = count};

    vfio_expect(f->client, VFIO_USER_DEVICE_SET_IRQS, &request, 20, fds, nfds, EINVAL);
}

static Fixture fixture_open(void)
{
    Fixture f = {.rig = vfio_rig_open(NULL)};

    f.client = vfio_rig_connect(f.rig);
    for (unsigned i = 0; i < VECTORS; i++) {
        f.fds[i] = vfio_eventfd();
    }
    return f;
}

static void fixture_close(Fixture *f)
{
    vfio_user_client_free(f->client);
    vfio_rig_free(f->rig);
    for (unsigned i = 0; i < VECTORS; i++) {
        close(f->fds[i]);
    }
}

/* Which eventfds were written, one bit each; all are taken. */
static unsigned fired(Fixture *f)
{
    unsigned bits = 0;

    for (unsigned i = 0; i < VECTORS; i++) {
        bits |= (vfio_eventfd_take(f->fds[i]) ? 1u : 0) << i;
    }
    return bits;
}

static unsigned pending(Fixture *f)
{
    uint8_t bits = 0;
    GError *err = NULL;

    vfio_user_client_read(f->client, 1, PBA, &bits, 1, &err);
    vfio_check(err, "PBA");
    return bits;
}

/* --- without the device --- */

static void test_info(void)
{
    Fixture f = fixture_open();
    const uint32_t counts[VFIO_PCI_NUM_IRQS] = {
        [INTX] = 1, [MSIX] = VECTORS, [VFIO_PCI_REQ_IRQ_INDEX] = 1};
    struct vfio_irq_info info;
    GError *err = NULL;

    for (uint32_t i = 0; i < VFIO_PCI_NUM_IRQS; i++) {
        if (i == VFIO_PCI_ERR_IRQ_INDEX) {
            continue;
        }
        vfio_user_client_irq_info(f.client, i, &info, &err);
        vfio_check(err, "irq info");
        g_assert_cmpuint(info.count, ==, counts[i]);
        g_assert_cmpint((info.flags & VFIO_IRQ_INFO_EVENTFD) != 0, ==, counts[i] != 0);
        g_assert_cmpint((info.flags & VFIO_IRQ_INFO_AUTOMASKED) != 0, ==, i == INTX);
    }
    info = (struct vfio_irq_info){.argsz = 16, .index = VFIO_PCI_ERR_IRQ_INDEX};
    vfio_expect(f.client, VFIO_USER_DEVICE_GET_IRQ_INFO, &info, 16, NULL, 0, EINVAL);
    info.index = VFIO_PCI_NUM_IRQS;
    vfio_expect(f.client, VFIO_USER_DEVICE_GET_IRQ_INFO, &info, 16, NULL, 0, EINVAL);
    info = (struct vfio_irq_info){.argsz = 15, .index = MSIX};
    vfio_expect(f.client, VFIO_USER_DEVICE_GET_IRQ_INFO, &info, 16, NULL, 0, EINVAL);
    fixture_close(&f);
}

static void test_trigger(void)
{
    Fixture f = fixture_open();
    const uint8_t odd[VECTORS] = {0, 1, 0, 1}, two[2] = {1, 1};

    set(&f, MSIX, EVENTFD | TRIGGER, 0, VECTORS, NULL, f.fds, VECTORS);
    g_assert_cmphex(fired(&f), ==, 0);
    set(&f, MSIX, NONE | TRIGGER, 1, 2, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0x6);
    set(&f, MSIX, BOOL | TRIGGER, 0, VECTORS, odd, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0xa);
    set(&f, MSIX, BOOL | TRIGGER, 2, 2, two, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0xc);
    /* Without fds: that vector is heard no more, the others are. */
    set(&f, MSIX, EVENTFD | TRIGGER, 1, 1, NULL, NULL, 0);
    set(&f, MSIX, NONE | TRIGGER, 0, VECTORS, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0xd);
    /* What happened meanwhile is told when somebody listens again. */
    g_assert_cmphex(pending(&f), ==, 0x2);
    set(&f, MSIX, EVENTFD | TRIGGER, 1, 1, NULL, &f.fds[1], 1);
    g_assert_cmphex(fired(&f), ==, 0x2);
    g_assert_cmphex(pending(&f), ==, 0);
    /* All off. */
    set(&f, MSIX, NONE | TRIGGER, 0, 0, NULL, NULL, 0);
    set(&f, MSIX, NONE | TRIGGER, 0, VECTORS, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0);
    fixture_close(&f);
}

static void test_mask(void)
{
    Fixture f = fixture_open();
    const uint8_t first[VECTORS] = {1, 0, 0, 0};
    int masks = vfio_eventfd(), unmasks = vfio_eventfd();

    set(&f, MSIX, EVENTFD | TRIGGER, 0, VECTORS, NULL, f.fds, VECTORS);
    set(&f, MSIX, EVENTFD | MASK, 0, 1, NULL, &masks, 1);
    set(&f, MSIX, EVENTFD | UNMASK, 0, 1, NULL, &unmasks, 1);
    set(&f, MSIX, BOOL | MASK, 0, VECTORS, first, NULL, 0);
    set(&f, MSIX, NONE | MASK, 2, 1, NULL, NULL, 0);
    g_assert_cmpuint(vfio_eventfd_take(masks), ==, 1);
    set(&f, MSIX, NONE | TRIGGER, 0, VECTORS, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0xa);
    g_assert_cmphex(pending(&f), ==, 0x5);
    set(&f, MSIX, NONE | UNMASK, 0, 1, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0x1);
    g_assert_cmphex(pending(&f), ==, 0x4);
    g_assert_cmpuint(vfio_eventfd_take(unmasks), ==, 1);
    set(&f, MSIX, NONE | UNMASK, 0, VECTORS, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0x4); /* nothing else was held back */
    /* A device reset forgets what is pending. */
    set(&f, MSIX, NONE | MASK, 3, 1, NULL, NULL, 0);
    set(&f, MSIX, NONE | TRIGGER, 3, 1, NULL, NULL, 0);
    g_assert_cmphex(pending(&f), ==, 0x8);
    g_assert_true(vfio_user_client_reset(f.client, NULL));
    g_assert_cmphex(pending(&f), ==, 0);
    fixture_close(&f);
    close(masks);
    close(unmasks);
}

static void test_wrong(void)
{
    Fixture f = fixture_open();
    int pipe_fds[2];

    set_refused(&f, MSIX, TRIGGER, 0, 1, NULL, 0);
    set_refused(&f, MSIX, EVENTFD, 0, 1, f.fds, 1);
    set_refused(&f, MSIX, EVENTFD | NONE | TRIGGER, 0, 1, f.fds, 1);
    set_refused(&f, MSIX, NONE | TRIGGER | MASK, 0, 1, NULL, 0);
    set_refused(&f, MSIX, NONE | TRIGGER | 1u << 8, 0, 1, NULL, 0);
    set_refused(&f, MSIX, NONE | TRIGGER, 0, VECTORS + 1, NULL, 0);
    set_refused(&f, MSIX, NONE | TRIGGER, VECTORS, 1, NULL, 0);
    set_refused(&f, MSIX, NONE | TRIGGER, VECTORS + 1, 0, NULL, 0);
    set_refused(&f, MSIX, NONE | TRIGGER, 1, UINT32_MAX, NULL, 0);
    set_refused(&f, MSIX, NONE | TRIGGER, UINT32_MAX, 2, NULL, 0);
    set_refused(&f, MSIX, NONE | TRIGGER, 1, 0, NULL, 0);
    set_refused(&f, MSIX, NONE | MASK, 0, 0, NULL, 0);
    set_refused(&f, VFIO_PCI_MSI_IRQ_INDEX, EVENTFD | TRIGGER, 0, 1, f.fds, 1);
    set_refused(&f, VFIO_PCI_ERR_IRQ_INDEX, EVENTFD | TRIGGER, 0, 1, f.fds, 1);
    set_refused(&f, VFIO_PCI_NUM_IRQS, NONE | TRIGGER, 0, 0, NULL, 0);
    set_refused(&f, MSIX, EVENTFD | TRIGGER, 0, 2, f.fds, 1);
    set_refused(&f, MSIX, EVENTFD | TRIGGER, 0, 1, f.fds, 2);
    set_refused(&f, MSIX, EVENTFD | TRIGGER, 0, 0, f.fds, 1);
    set_refused(&f, MSIX, NONE | TRIGGER, 0, 1, f.fds, 1);
    set_refused(&f, MSIX, BOOL | TRIGGER, 0, 1, NULL, 0); /* the array is missing */
    /* What is no eventfd could block us when it is full. */
    g_assert_cmpint(pipe2(pipe_fds, O_CLOEXEC), ==, 0);
    set_refused(&f, MSIX, EVENTFD | TRIGGER, 0, 1, &pipe_fds[1], 1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    /* Nothing of it was taken. */
    set(&f, MSIX, NONE | TRIGGER, 0, VECTORS, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0);
    fixture_close(&f);
}

/* An eventfd that nobody reads fills up; the server goes on. */
static void test_full_eventfd(void)
{
    Fixture f = fixture_open();
    uint64_t almost = UINT64_MAX - 1;

    set(&f, MSIX, EVENTFD | TRIGGER, 0, 1, NULL, f.fds, 1);
    g_assert_cmpint(write(f.fds[0], &almost, 8), ==, 8);
    for (unsigned i = 0; i < 5; i++) {
        set(&f, MSIX, NONE | TRIGGER, 0, 1, NULL, NULL, 0);
    }
    g_assert_cmpuint(vfio_eventfd_take(f.fds[0]), ==, almost);
    fixture_close(&f);
}

/* INTx masks itself, and is unmasked by message or, as a client with KVM does, by eventfd. */
static void test_intx_forms(void)
{
    Fixture f = fixture_open();
    int masks = vfio_eventfd(), unmasks = vfio_eventfd();

    set(&f, INTX, EVENTFD | TRIGGER, 0, 1, NULL, f.fds, 1);
    set(&f, INTX, EVENTFD | MASK, 0, 1, NULL, &masks, 1);
    set(&f, INTX, EVENTFD | UNMASK, 0, 1, NULL, &unmasks, 1);
    set(&f, INTX, NONE | TRIGGER, 0, 1, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 1);
    g_assert_cmpuint(vfio_eventfd_take(masks), ==, 1);
    set(&f, INTX, NONE | TRIGGER, 0, 1, NULL, NULL, 0); /* masked: waits */
    g_assert_cmphex(fired(&f), ==, 0);
    set(&f, INTX, NONE | UNMASK, 0, 1, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 1);
    set(&f, INTX, NONE | TRIGGER, 0, 1, NULL, NULL, 0);
    g_assert_cmphex(fired(&f), ==, 0);
    g_assert_cmpint(write(unmasks, &(uint64_t){1}, 8), ==, 8);
    g_assert_cmpuint(vfio_eventfd_wait(f.fds[0], RIG_TIMEOUT_MS), ==, 1);
    g_assert_cmpuint(vfio_eventfd_take(unmasks), ==, 0);
    /* Without that eventfd a write to it means nothing. */
    set(&f, INTX, EVENTFD | UNMASK, 0, 1, NULL, NULL, 0);
    set(&f, INTX, NONE | TRIGGER, 0, 1, NULL, NULL, 0);
    g_assert_cmpint(write(unmasks, &(uint64_t){1}, 8), ==, 8);
    g_assert_cmpuint(vfio_eventfd_wait(f.fds[0], RIG_QUIET_MS), ==, 0);
    fixture_close(&f);
    close(masks);
    close(unmasks);
}

/* --- with the device --- */

static void send_frame(VfioRig *rig, uint64_t addr)
{
    uint8_t frame[64];

    frame_fill(frame, sizeof(frame), 3);
    memcpy(rig_at(&rig->rig, addr + RIG_HDR, sizeof(frame)), frame, sizeof(frame));
    ring_set(rig->rig.tx, 0, addr, RIG_HDR + sizeof(frame), 0, 0);
    ring_send(&rig->rig, rig->rig.tx, 0);
    ring_take(&rig->rig, rig->rig.tx);
    rig_peer_expect(&rig->rig, frame, sizeof(frame));
}

static void test_intx_device(void)
{
    VfioRig *rig = vfio_rig_new(&(VfioRigConfig){.rig = {.intx = true}});
    uint64_t addr = rig_alloc(&rig->rig, 256);
    Fixture f = {.rig = rig, .client = rig->client};
    int fd = vfio_eventfd(), unmasks = vfio_eventfd();

    /* The line is high before anybody listens: the eventfd is told at once. */
    send_frame(rig, addr);
    set(&f, INTX, EVENTFD | TRIGGER, 0, 1, NULL, &fd, 1);
    g_assert_cmpuint(vfio_eventfd_take(fd), ==, 1);
    /* Unmasked while the line is high: once more.  Low: not. */
    set(&f, INTX, NONE | UNMASK, 0, 1, NULL, NULL, 0);
    g_assert_cmpuint(vfio_eventfd_take(fd), ==, 1);
    g_assert_cmphex(virtio_driver_read_isr(rig->rig.virtio), ==, 1);
    set(&f, INTX, NONE | UNMASK, 0, 1, NULL, NULL, 0);
    g_assert_cmpuint(vfio_eventfd_take(fd), ==, 0);
    /* And the way of a client with KVM: end of interrupt on the unmask eventfd. */
    set(&f, INTX, EVENTFD | UNMASK, 0, 1, NULL, &unmasks, 1);
    for (unsigned i = 0; i < 10; i++) {
        send_frame(rig, addr);
        g_assert_cmpuint(vfio_eventfd_wait(fd, RIG_TIMEOUT_MS), ==, 1);
        g_assert_cmphex(virtio_driver_read_isr(rig->rig.virtio), ==, 1);
        g_assert_cmpint(write(unmasks, &(uint64_t){1}, 8), ==, 8);
    }
    /* INTx Disable of the command register. */
    guest_pci_config_write(rig->rig.pci, 2, 4, 0x407);
    send_frame(rig, addr);
    g_assert_cmpuint(vfio_eventfd_wait(fd, RIG_QUIET_MS), ==, 0);
    vfio_rig_free(rig);
    close(fd);
    close(unmasks);
}

/* The device's vectors: masked by SET_IRQS they wait, and the guest's table does not matter. */
static void test_msix_device(void)
{
    VfioRig *rig = vfio_rig_new(NULL);
    uint64_t addr = rig_alloc(&rig->rig, 256);
    Fixture f = {.rig = rig, .client = rig->client};
    const unsigned vector = RIG_TX + 1;

    guest_pci_msix_set_mask(rig->rig.pci, vector, true);
    send_frame(rig, addr);
    g_assert_true(virtio_driver_sleep(rig->rig.virtio, vector, RIG_TIMEOUT_MS * 1000));
    g_assert_true(virtio_driver_take_interrupt(rig->rig.virtio, vector));
    set(&f, MSIX, NONE | MASK, vector, 1, NULL, NULL, 0);
    send_frame(rig, addr);
    send_frame(rig, addr);
    g_usleep(RIG_QUIET_MS * 1000);
    g_assert_false(virtio_driver_take_interrupt(rig->rig.virtio, vector));
    g_assert_true(guest_pci_msix_is_pending(rig->rig.pci, vector));
    set(&f, MSIX, NONE | UNMASK, vector, 1, NULL, NULL, 0);
    g_assert_true(virtio_driver_take_interrupt(rig->rig.virtio, vector));
    g_assert_false(guest_pci_msix_is_pending(rig->rig.pci, vector));
    rig_expect_working(&rig->rig);
    vfio_rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vfio-user/irq/info", test_info);
    g_test_add_func("/vfio-user/irq/trigger", test_trigger);
    g_test_add_func("/vfio-user/irq/mask", test_mask);
    g_test_add_func("/vfio-user/irq/wrong", test_wrong);
    g_test_add_func("/vfio-user/irq/full-eventfd", test_full_eventfd);
    g_test_add_func("/vfio-user/irq/intx-forms", test_intx_forms);
    g_test_add_func("/vfio-user/irq/intx-device", test_intx_device);
    g_test_add_func("/vfio-user/irq/msix-device", test_msix_device);
    return g_test_run();
}
