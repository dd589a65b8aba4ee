/*
 * fw_cfg: how QEMU's firmware, and clients that play one, learn about the machine.
 *
 * A 16-bit write to port 0x510 selects an item and goes to its start; each 8-bit read of 0x511
 * gives its next byte, zeros after the end.  Items are bytes; numbers in them are little-endian.
 * Not here: writing items, and the DMA interface (item 1 says that there is none).
 */
#include <string.h>

#include "hw/i386/pc.h"

#define FW_CFG_PORT 0x510

/* fw_cfg items: QEMU's docs/specs/fw_cfg.rst and what clients read. */
enum {
    FW_CFG_SIGNATURE = 0x00,
    FW_CFG_ID = 0x01,
    FW_CFG_RAM_SIZE = 0x03,
    FW_CFG_NB_CPUS = 0x05,
    FW_CFG_MAX_CPUS = 0x0f,
    FW_CFG_FILE_DIR = 0x19,
};
#define FW_CFG_ID_TRADITIONAL 1 /* the two ports, without DMA */

typedef struct FwCfgItem {
    uint16_t key;
    uint32_t size;
    uint8_t *data;
} FwCfgItem;

static void item_clear(gpointer item)
{
    g_free(((FwCfgItem *)item)->data);
}

static FwCfgItem *item_find(FwCfg *fw_cfg, uint16_t key)
{
    for (guint i = 0; i < fw_cfg->items->len; i++) {
        FwCfgItem *item = &g_array_index(fw_cfg->items, FwCfgItem, i);

        if (item->key == key) {
            return item;
        }
    }
    return NULL;
}

void fw_cfg_add(FwCfg *fw_cfg, uint16_t key, const void *data, size_t size)
{
    FwCfgItem *item = item_find(fw_cfg, key);
    FwCfgItem fresh = {.key = key};

    if (!item) {
        g_array_append_val(fw_cfg->items, fresh);
        item = &g_array_index(fw_cfg->items, FwCfgItem, fw_cfg->items->len - 1);
    }
    g_free(item->data);
    item->data = g_memdup2(data, size);
    item->size = (uint32_t)size;
}

static uint64_t fw_cfg_read(void *opaque, uint64_t offset, unsigned size)
{
    FwCfg *fw_cfg = opaque;
    FwCfgItem *item = item_find(fw_cfg, fw_cfg->selected);

    if (size != 1 || !item || fw_cfg->offset >= item->size) {
        return 0;
    }
    return item->data[fw_cfg->offset++];
}

static void fw_cfg_write(void *opaque, uint64_t offset, uint64_t value, unsigned size)
{
    FwCfg *fw_cfg = opaque;

    if (offset == 0 && size == 2) {
        fw_cfg->selected = (uint16_t)value;
        fw_cfg->offset = 0;
    }
}

static const IoOps fw_cfg_ops = {.read = fw_cfg_read, .write = fw_cfg_write, .max_access = 2};

void fw_cfg_init(FwCfg *fw_cfg, IoSpace *ports)
{
    fw_cfg->items = g_array_new(FALSE, TRUE, sizeof(FwCfgItem));
    g_array_set_clear_func(fw_cfg->items, item_clear);
    io_region_init(&fw_cfg->region, "fwcfg", 2, &fw_cfg_ops, fw_cfg);
    io_space_map(ports, FW_CFG_PORT, &fw_cfg->region, 0);
}

void fw_cfg_cleanup(FwCfg *fw_cfg, IoSpace *ports)
{
    io_space_unmap(ports, &fw_cfg->region);
    io_region_cleanup(&fw_cfg->region);
    g_clear_pointer(&fw_cfg->items, g_array_unref);
}

static void put_le64(uint8_t *bytes, uint64_t value)
{
    pci_set_long(bytes, (uint32_t)value);
    pci_set_long(bytes + 4, (uint32_t)(value >> 32));
}

void fw_cfg_add_machine(FwCfg *fw_cfg, const MachineState *machine)
{
    static const uint8_t no_files[4];
    uint8_t bytes[8];

    fw_cfg_add(fw_cfg, FW_CFG_SIGNATURE, "QEMU", 4);
    pci_set_long(bytes, FW_CFG_ID_TRADITIONAL);
    fw_cfg_add(fw_cfg, FW_CFG_ID, bytes, 4);
    put_le64(bytes, machine->ram_size);
    fw_cfg_add(fw_cfg, FW_CFG_RAM_SIZE, bytes, 8);
    pci_set_word(bytes, 1);
    fw_cfg_add(fw_cfg, FW_CFG_NB_CPUS, bytes, 2);
    fw_cfg_add(fw_cfg, FW_CFG_MAX_CPUS, bytes, 2);
    fw_cfg_add(fw_cfg, FW_CFG_FILE_DIR, no_files, sizeof(no_files));
}
