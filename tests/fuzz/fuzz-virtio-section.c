/*
 * libFuzzer target: what a virtio section has around the device's own fields, read by the real
 * tables: PCI device, queues, and all subsections.  An input is the payload as it is in a stream.
 */
#include "hw/virtio/virtio-vmstate.h"
#include "migration/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void prepare(void *state, void *parent)
{
    static PCIDevice pci;
    static uint8_t config[4][PCI_CONFIG_SIZE];
    VirtioSaved *s = state;

    memset(config[2], 0xff, PCI_CONFIG_SIZE); /* everything may differ */
    pci.config_size = PCI_CONFIG_SIZE;
    pci.config = config[0];
    pci.cmask = config[1];
    pci.wmask = config[2];
    pci.w1cmask = config[3];
    pci_saved_prepare(&s->pci, &pci);
    s->has_msix = true;
    s->msix.table_size = 4 * PCI_MSIX_ENTRY_SIZE;
    s->msix.pba_size = 1;
    for (unsigned i = 0; i < VIRTIO_QUEUE_MAX; i++) {
        s->queues[i].has_vector = true;
    }
}

static const VMStateDescription root = {
    .name = "virtio",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(VirtioSaved),
    .prepare = prepare,
    .fields =
        (const VMStateField[]){
            VMS_PART("head", vmstate_virtio_head),
            VMS_PART("virtio", vmstate_virtio),
            VMS_END,
        },
};
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    VmReader *r = vm_reader_new_bytes(data, size);

    vmstate_free(vmstate_load(r, &root, 1, NULL, NULL));
    vm_reader_free(r);
    return 0;
}
