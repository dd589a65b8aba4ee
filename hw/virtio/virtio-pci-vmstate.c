/* virtio-pci's part of a migration section: the PCI function, vectors, the modern registers. */
#include <string.h>

#include "hw/virtio/virtio-pci-internal.h"
#include "hw/virtio/virtio-vmstate.h"

static void pci_prepare(VirtioSaved *s, void *opaque)
{
    PCIDevice *pci = &((VirtIOPCIProxy *)opaque)->pci;

    pci_saved_prepare(&s->pci, pci);
    msix_saved_prepare(&s->msix, pci);
    s->has_msix = msix_present(pci);
    s->possible_vectors = pci->msix.vectors;
}

static void pci_fill(VirtioSaved *s, void *opaque)
{
    VirtIOPCIProxy *proxy = opaque;

    pci_saved_fill(&s->pci, &proxy->pci);
    msix_saved_fill(&s->msix, &proxy->pci);
    s->dfselect = proxy->dfselect;
    s->gfselect = proxy->gfselect;
    memcpy(s->modern_features, proxy->guest_features_sel, sizeof(s->modern_features));
    memcpy(s->modern_features128, proxy->guest_features_sel + 2, sizeof(s->modern_features128));
    s->has_modern = proxy->modern;
}

static void pci_reset(const VirtioSaved *s, void *opaque)
{
    VirtIOPCIProxy *proxy = opaque;

    virtio_pci_reset(proxy);
    msix_saved_apply(&s->msix, &proxy->pci);
    pci_saved_apply(&s->pci, &proxy->pci);
}

static void pci_apply(const VirtioSaved *s, void *opaque)
{
    VirtIOPCIProxy *proxy = opaque;
    VirtIODevice *vdev = proxy->vdev;

    virtio_pci_set_vector(proxy, &vdev->config_vector, s->config_vector);
    for (unsigned i = 0; i < s->num_queues; i++) {
        if (vdev->queues[i].vq) {
            virtio_pci_set_vector(proxy, &vdev->queues[i].vector, s->queues[i].vector);
        }
    }
    if (s->has_modern) {
        proxy->dfselect = s->dfselect;
        proxy->gfselect = s->gfselect;
        memcpy(proxy->guest_features_sel, s->modern_features, sizeof(s->modern_features));
        memcpy(proxy->guest_features_sel + 2, s->modern_features128, sizeof(s->modern_features128));
    }
}

const VirtioSavedOps virtio_pci_saved_ops = {
    .prepare = pci_prepare,
    .fill = pci_fill,
    .reset = pci_reset,
    .apply = pci_apply,
};
