/*
 * How notifications reach queue handlers: directly, by eventfd, in another thread, and from within
 * an interrupt that a guest aimed at our own registers.
 */
#include "tests/unit/virtio-pci-rig.h"

/* --- ioeventfds and threads --- */

static unsigned handled(Rig *rig, unsigned n)
{
    return __atomic_load_n(&rig->dummy->handled[n], __ATOMIC_SEQ_CST);
}

static void wait_handled(Rig *rig, unsigned n, unsigned count)
{
    for (unsigned i = 0; i < 5000 && handled(rig, n) < count; i++) {
        spin(1);
        g_usleep(1000);
    }
    g_assert_cmpuint(handled(rig, n), ==, count);
}

static unsigned eventfds(const IoRegion *region)
{
    return region->eventfds ? region->eventfds->len : 0;
}

static void test_host_notifiers(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");

    drive(rig, BASIC);
    g_assert_cmpuint(eventfds(&rig->proxy->notify), ==, 0);
    virtio_pci_set_host_notifiers(rig->proxy, true);
    g_assert_cmpuint(eventfds(&rig->proxy->notify), ==, DUMMY_QUEUES);
    g_assert_cmpuint(eventfds(&rig->proxy->legacy_bar), ==, DUMMY_QUEUES);
    kick(rig, 1);
    g_assert_cmpuint(handled(rig, 1), ==, 0); /* not by the write */
    wait_handled(rig, 1, 1);
    lwr(rig, VIRTIO_PCI_QUEUE_NOTIFY, 2, 2);
    wait_handled(rig, 2, 1);
    /* Stopped: nothing runs, nothing is registered; what came before is served after. */
    kick(rig, 1);
    vm_stop(VM_PAUSED);
    g_assert_cmpuint(eventfds(&rig->proxy->notify), ==, 0);
    spin(3);
    g_assert_cmpuint(handled(rig, 1), ==, 1);
    vm_start();
    wait_handled(rig, 1, 2);
    virtio_pci_set_host_notifiers(rig->proxy, false);
    g_assert_cmpuint(eventfds(&rig->proxy->notify), ==, 0);
    kick(rig, 1);
    g_assert_cmpuint(handled(rig, 1), ==, 3);
    rig_free(rig);

    rig = rig_new("dummy-pci", "{'ioeventfd': false}");
    virtio_pci_set_host_notifiers(rig->proxy, true);
    drive(rig, BASIC);
    g_assert_cmpuint(eventfds(&rig->proxy->notify), ==, 0);
    rig_free(rig);
}

/* What one iteration of the main loop hands to poll(). */
static int polled_fds(void)
{
    GMainContext *context = g_main_context_default();
    int priority, timeout, count;

    g_assert_true(g_main_context_acquire(context));
    g_main_context_prepare(context, &priority);
    count = g_main_context_query(context, G_MAXINT, &timeout, NULL, 0);
    g_main_context_release(context);
    return count;
}

/* 64 queue pairs and a control queue: an eventfd each, which all wait behind the one descriptor
 * that a single one waits behind, and only the queues that were notified are looked at. */
static void test_many_eventfds(void)
{
    enum { QUEUES = DUMMY_QUEUES_MAX };
    Rig *rig = rig_new("dummy-pci", "{'queues': 129, 'vectors': 130, 'page-per-vq': true}");
    const GArray *list;
    int before;

    drive(rig, BASIC);
    before = polled_fds();
    for (unsigned n = DUMMY_QUEUES; n < QUEUES; n++) {
        wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, n, 2);
        wr(rig, VIRTIO_PCI_COMMON_Q_DESCLO, RING(0), 8);
        wr(rig, VIRTIO_PCI_COMMON_Q_AVAILLO, AVAIL(0), 8);
        wr(rig, VIRTIO_PCI_COMMON_Q_USEDLO, USED(0), 8);
        wr(rig, VIRTIO_PCI_COMMON_Q_ENABLE, 1, 2);
    }
    virtio_pci_set_host_notifiers(rig->proxy, true);
    list = rig->proxy->notify.eventfds;
    g_assert_cmpuint(list->len, ==, QUEUES);
    g_assert_cmpint(polled_fds(), ==, before);
    for (unsigned i = 0; i < QUEUES; i++) {
        const IoEventfd *eventfd = &g_array_index(list, IoEventfd, i);

        g_assert_cmphex(eventfd->offset % 0x1000, ==, 0);
        g_assert_cmphex(eventfd->offset / 0x1000, <, QUEUES);
    }
    for (unsigned round = 1; round <= 3; round++) {
        for (unsigned i = 0; i < QUEUES; i += round) { /* as a host does for the guest's write */
            event_notifier_set(g_array_index(list, IoEventfd, QUEUES - 1 - i).notifier);
        }
        spin(QUEUES);
        for (unsigned i = 0; i < QUEUES; i++) {
            unsigned queue =
                (unsigned)(g_array_index(list, IoEventfd, QUEUES - 1 - i).offset / 0x1000);
            unsigned times = 0;

            for (unsigned r = 1; r <= round; r++) {
                times += i % r == 0;
            }
            g_assert_cmpuint(handled(rig, queue), ==, times);
        }
        g_assert_cmpint(polled_fds(), ==, before);
    }
    rig_free(rig);
}

static void run_in_thread(bool ioeventfd)
{
    EventLoop *loop = event_loop_new_thread("test", NULL);
    Rig *rig;

    dummy_next_loop = loop;
    rig = rig_new("dummy-pci", ioeventfd ? "{}" : "{'ioeventfd': false}");
    dummy_next_loop = NULL;
    rig->dummy->push = true;
    for (unsigned turn = 0; turn < 20; turn++) {
        unsigned before = handled(rig, 2);

        drive(rig, BASIC);
        g_assert_cmpuint(eventfds(&rig->proxy->notify), ==, ioeventfd ? 1 : 0);
        offer(rig, 2);
        kick(rig, 2);
        wait_handled(rig, 2, before + 1);
        g_assert_true(rig->dummy->handler_loop == loop);
        g_assert_cmphex(rd(rig, ISR, 1), ==, VIRTIO_ISR_QUEUE);
        g_assert_cmpint(rig->host.irq[0], ==, 0);
        /* Kicked and stopped at once: whatever ran has ended. */
        kick(rig, 2);
        vm_stop(VM_PAUSED);
        before = handled(rig, 2);
        g_usleep(500);
        g_assert_cmpuint(handled(rig, 2), ==, before);
        vm_start();
        wr(rig, VIRTIO_PCI_COMMON_STATUS, 0, 1);
    }
    rig_free(rig);
    event_loop_free(loop);
}

static void test_thread_ioeventfd(void)
{
    run_in_thread(true);
}

static void test_thread_direct(void)
{
    run_in_thread(false);
}

/* A queue of another thread breaks: the main thread tells the driver. */
static void test_thread_broken(void)
{
    EventLoop *loop = event_loop_new_thread("test", NULL);
    Rig *rig;

    dummy_next_loop = loop;
    rig = rig_new("dummy-pci", "{}");
    dummy_next_loop = NULL;
    rig->dummy->push = true;
    drive(rig, BASIC);
    ((struct vring_avail *)(rig->ram + AVAIL(2)))->idx = 0x8000;
    kick(rig, 2);
    for (unsigned i = 0; i < 5000 && rig->dummy->running; i++) {
        spin(1);
        g_usleep(1000);
    }
    g_assert_false(rig->dummy->running);
    g_assert_cmphex(rd(rig, VIRTIO_PCI_COMMON_STATUS, 1) & VIRTIO_CONFIG_S_NEEDS_RESET, !=, 0);
    rig_free(rig);
    event_loop_free(loop);
}

/* --- messages aimed at ourselves --- */

static Rig *nested_rig;
static unsigned nested_offset;

static void nested_msi(PciHost *host, PCIDevice *dev, unsigned vector, uint64_t addr, uint32_t data)
{
    (void)dev;
    (void)vector;
    (void)addr;
    ((TestHost *)host)->messages++;
    wr(nested_rig, nested_offset, data, 4);
}

static void test_nested(void)
{
    PciHostOps ops = test_host_ops;
    Rig *rig = rig_new("dummy-pci", "{}");

    ops.msi_notify = nested_msi;
    rig->host.pci.ops = &ops;
    nested_rig = rig;
    rig->dummy->push = true;
    drive(rig, BASIC);
    enable_msix(rig);
    wr(rig, VIRTIO_PCI_COMMON_Q_SELECT, 0, 2);
    wr(rig, VIRTIO_PCI_COMMON_Q_MSIX, 0, 2);

    /* The interrupt of queue 0 notifies queue 0: again, but not from within. */
    nested_offset = NOTIFY;
    offer(rig, 0);
    offer(rig, 0);
    kick(rig, 0);
    g_assert_cmpuint(rig->host.messages, ==, 2);
    spin(3);
    g_assert_cmpuint(rig->dummy->handled[0], ==, 2);
    g_assert_cmpuint(rig->dummy->max_depth, ==, 1);

    /* The interrupt resets the device: it does not. */
    nested_offset = COMMON + VIRTIO_PCI_COMMON_STATUS;
    io_region_write(&rig->pci->msix.bar, PCI_MSIX_ENTRY_DATA, 0, 4);
    offer(rig, 0);
    kick(rig, 0);
    g_assert_cmpuint(rig->host.messages, ==, 3);
    g_assert_true(rig->dummy->running);
    rig_free(rig);
}

/* --- speed: register write to handler --- */

static void test_notify_speed(void)
{
    enum { ROUNDS = 1000000 };
    Rig *rig = rig_new("dummy-pci", "{}");
    int64_t start;

    drive(rig, BASIC);
    start = clock_get_ns(CLOCK_HOST);
    for (unsigned i = 0; i < ROUNDS; i++) {
        kick(rig, 1);
    }
    g_test_message("%.1f ns a notification", (double)(clock_get_ns(CLOCK_HOST) - start) / ROUNDS);
    g_assert_cmpuint(rig->dummy->handled[1], ==, ROUNDS);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    rig_register_types();
    g_test_add_func("/virtio-pci/ioeventfd/host", test_host_notifiers);
    g_test_add_func("/virtio-pci/ioeventfd/64-pairs-wait-as-one", test_many_eventfds);
    g_test_add_func("/virtio-pci/thread/ioeventfd", test_thread_ioeventfd);
    g_test_add_func("/virtio-pci/thread/direct", test_thread_direct);
    g_test_add_func("/virtio-pci/thread/broken", test_thread_broken);
    g_test_add_func("/virtio-pci/nested-messages", test_nested);
    g_test_add_func("/virtio-pci/notify-speed", test_notify_speed);
    return g_test_run();
}
