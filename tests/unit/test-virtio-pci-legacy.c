/* virtio-pci's legacy interface, as drivers from before the standard use it. */
#include "tests/unit/virtio-pci-rig.h"

/* --- legacy --- */

static void test_legacy(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");
    uint32_t features = lrd(rig, VIRTIO_PCI_HOST_FEATURES, 4);

    g_assert_true(features & (1u << DUMMY_GSO));
    g_assert_true(features & (1u << VIRTIO_F_NOTIFY_ON_EMPTY));
    g_assert_true(features & (1u << VIRTIO_F_ANY_LAYOUT));
    lwr(rig, VIRTIO_PCI_STATUS, S_ACK, 1);
    g_assert_false(rig->pci->dma.enabled);
    lwr(rig, VIRTIO_PCI_STATUS, S_ACK | S_DRIVER, 1);
    g_assert_true(rig->pci->dma.enabled); /* old Linux forgets */
    lwr(rig, VIRTIO_PCI_GUEST_FEATURES, 1u << DUMMY_GSO | 1u << VIRTIO_F_NOTIFY_ON_EMPTY, 4);
    g_assert_true(virtio_has_feature(rig->vdev, DUMMY_GSO));
    g_assert_false(virtio_is_modern(rig->vdev));
    lwr(rig, VIRTIO_PCI_QUEUE_SEL, 1, 2);
    g_assert_cmpuint(lrd(rig, VIRTIO_PCI_QUEUE_NUM, 2), ==, DUMMY_QUEUE_SIZE);
    g_assert_cmphex(lrd(rig, VIRTIO_PCI_QUEUE_PFN, 4), ==, 0);
    lwr(rig, VIRTIO_PCI_QUEUE_PFN, RING(1) >> 12, 4);
    g_assert_cmphex(lrd(rig, VIRTIO_PCI_QUEUE_PFN, 4), ==, RING(1) >> 12);
    g_assert_cmphex(rig->vdev->queues[1].avail, ==, RING(1) + DUMMY_QUEUE_SIZE * 16);
    g_assert_cmphex(rig->vdev->queues[1].used, ==, RING(1) + 0x1000);
    lwr(rig, VIRTIO_PCI_QUEUE_SEL, 7, 2);
    g_assert_cmpuint(lrd(rig, VIRTIO_PCI_QUEUE_NUM, 2), ==, 0);
    lwr(rig, VIRTIO_PCI_QUEUE_SEL, 2000, 2);
    g_assert_cmpuint(lrd(rig, VIRTIO_PCI_QUEUE_SEL, 2), ==, 7);
    lwr(rig, VIRTIO_PCI_STATUS, S_ACK | S_DRIVER | S_OK, 1);
    g_assert_true(rig->dummy->running);
    lwr(rig, VIRTIO_PCI_QUEUE_NOTIFY, 1, 2);
    g_assert_cmpuint(rig->dummy->handled[1], ==, 1);
    lwr(rig, VIRTIO_PCI_QUEUE_NOTIFY, 0, 2); /* has no page */
    g_assert_cmpuint(rig->dummy->handled[0], ==, 0);

    virtio_notify_now(rig->vdev, rig->vdev->queues[1].vq);
    g_assert_cmpint(rig->host.irq[0], ==, 1);
    g_assert_cmphex(lrd(rig, VIRTIO_PCI_ISR, 1), ==, VIRTIO_ISR_QUEUE);
    g_assert_cmpint(rig->host.irq[0], ==, 0);

    /* Page 0 resets the device. */
    lwr(rig, VIRTIO_PCI_QUEUE_SEL, 1, 2);
    lwr(rig, VIRTIO_PCI_QUEUE_PFN, 0, 4);
    g_assert_false(rig->dummy->running);
    g_assert_cmphex(lrd(rig, VIRTIO_PCI_STATUS, 1), ==, 0);
    rig_free(rig);
}

static void test_legacy_vectors(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");

    memcpy(rig->dummy->config, "\x01\x02\x03\x04\x05\x06\x07\x08", 8);
    g_assert_cmphex(lrd(rig, 20, 4), ==, 0x04030201);
    enable_msix(rig);
    g_assert_cmphex(lrd(rig, 24, 4), ==, 0x04030201);
    g_assert_cmphex(lrd(rig, VIRTIO_MSI_CONFIG_VECTOR, 2), ==, VIRTIO_NO_VECTOR);
    lwr(rig, VIRTIO_MSI_CONFIG_VECTOR, 3, 2);
    lwr(rig, VIRTIO_PCI_QUEUE_SEL, 2, 2);
    lwr(rig, VIRTIO_MSI_QUEUE_VECTOR, 4, 2);
    g_assert_cmphex(lrd(rig, VIRTIO_MSI_CONFIG_VECTOR, 2), ==, 3);
    g_assert_cmphex(lrd(rig, VIRTIO_MSI_QUEUE_VECTOR, 2), ==, VIRTIO_NO_VECTOR);
    lwr(rig, VIRTIO_MSI_QUEUE_VECTOR, 1, 2);
    virtio_notify_now(rig->vdev, rig->vdev->queues[2].vq);
    g_assert_cmpuint(rig->host.messages, ==, 1);
    g_assert_cmpuint(rig->host.last_vector, ==, 1);
    lwr(rig, 24, 0xdd, 1);
    g_assert_cmphex(rig->dummy->config[0], ==, 0xdd);
    rig_free(rig);
}

static void test_legacy_bad_feature(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");

    lwr(rig, VIRTIO_PCI_GUEST_FEATURES, lrd(rig, VIRTIO_PCI_HOST_FEATURES, 4), 4);
    g_assert_true(rig->vdev->guest_features == VIRTIO_FEATURE(DUMMY_OLD));
    rig_free(rig);
}

/* A legacy driver knows no NEEDS_RESET. */
static void test_legacy_broken(void)
{
    Rig *rig = rig_new("dummy-pci", "{}");

    rig->dummy->push = true;
    lwr(rig, VIRTIO_PCI_STATUS, S_ACK | S_DRIVER, 1);
    lwr(rig, VIRTIO_PCI_QUEUE_PFN, RING(0) >> 12, 4);
    ((struct vring_avail *)(rig->ram + RING(0) + DUMMY_QUEUE_SIZE * 16))->idx = 0x8000;
    lwr(rig, VIRTIO_PCI_STATUS, S_ACK | S_DRIVER | S_OK, 1);
    lwr(rig, VIRTIO_PCI_QUEUE_NOTIFY, 0, 2);
    g_assert_cmphex(lrd(rig, VIRTIO_PCI_STATUS, 1), ==, S_ACK | S_DRIVER | S_OK);
    g_assert_cmpint(rig->host.irq[0], ==, 0);
    spin(2);
    g_assert_false(rig->dummy->running);
    rig_free(rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    rig_register_types();
    g_test_add_func("/virtio-pci/legacy/driver", test_legacy);
    g_test_add_func("/virtio-pci/legacy/vectors", test_legacy_vectors);
    g_test_add_func("/virtio-pci/legacy/bad-feature", test_legacy_bad_feature);
    g_test_add_func("/virtio-pci/legacy/broken", test_legacy_broken);
    return g_test_run();
}
