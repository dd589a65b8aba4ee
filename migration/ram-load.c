/*
 * RAM, the loading side: pages go straight to their place; the VM does not run yet.  Every block
 * name, size and offset is checked against the RAM that is here.
 */
#include <inttypes.h>
#include <string.h>

#include "internal.h"
#include "ram-flags.h"

static RamBlock *find_block(RamState *ram, const char *name)
{
    for (unsigned i = 0; i < ram->blocks->len; i++) {
        RamBlock *block = &g_array_index(ram->blocks, RamBlock, i);

        if (!strcmp(block->name, name)) {
            return block;
        }
    }
    return NULL;
}

/* Host address of page @offset, which is inside the block. */
static uint8_t *page_at(RamState *ram, const RamBlock *block, uint64_t offset)
{
    for (unsigned i = block->first; i < block->first + block->count; i++) {
        const MigrationRamRange *range = &g_array_index(ram->ranges, MigrationRamRange, i);

        if (offset - range->offset < range->size) {
            return range->host + (offset - range->offset);
        }
    }
    return NULL;
}

/* One entry of the list of blocks; its size. */
static uint64_t load_size(RamState *ram, VmReader *r)
{
    char name[256];
    RamBlock *block;
    uint64_t size, addr;

    vm_read_name(r, name);
    size = vm_read_uint(r, 8);
    if (vm_reader_failed(r)) {
        return 0;
    }
    block = find_block(ram, name);
    if (!block) {
        vm_reader_fail(r, "block '%s' does not exist here", name);
        return 0;
    }
    if (size != block->size) {
        vm_reader_fail(r, "block '%s' has 0x%" PRIx64 " bytes, 0x%" PRIx64 " here", name, size,
                       block->size);
        return 0;
    }
    if (ram->ignore_shared) {
        uint64_t here = g_array_index(ram->ranges, MigrationRamRange, block->first).addr;

        addr = vm_read_uint(r, 8);
        if (block->ignored && addr != here) {
            vm_reader_fail(r, "block '%s' is at guest address 0x%" PRIx64 ", 0x%" PRIx64 " here",
                           name, addr, here);
        }
    }
    return size;
}

static void load_sizes(RamState *ram, VmReader *r, uint64_t total)
{
    unsigned seen = 0;

    while (total && !vm_reader_failed(r)) {
        uint64_t size = load_size(ram, r);

        if (size > total || ++seen > ram->blocks->len) {
            vm_reader_fail(r, "the blocks together are larger than is said in front of them");
            return;
        }
        total -= size;
    }
    if (seen < ram->blocks->len) {
        vm_reader_fail(r, "%u blocks came, there are %u here", seen, ram->blocks->len);
    }
}

static bool is_zero(const uint8_t *page)
{
    return page[0] == 0 && !memcmp(page, page + 1, MIGRATION_PAGE_SIZE - 1);
}

/* Where entry @entry's page goes; NULL: the stream is bad. */
static uint8_t *load_place(RamState *ram, VmReader *r, uint64_t entry)
{
    uint64_t offset = entry & ~(uint64_t)(MIGRATION_PAGE_SIZE - 1);
    char name[256];

    if (!(entry & RAM_FLAG_CONTINUE)) {
        vm_read_name(r, name);
        if (vm_reader_failed(r)) {
            return NULL;
        }
        ram->last_block = find_block(ram, name);
        if (!ram->last_block) {
            vm_reader_fail(r, "block '%s' does not exist here", name);
            return NULL;
        }
    }
    if (!ram->last_block) {
        vm_reader_fail(r, "an entry continues a block, and none came before");
        return NULL;
    }
    if (ram->last_block->ignored) {
        vm_reader_fail(r, "a page of block '%s' came, which is not transferred",
                       ram->last_block->name);
        return NULL;
    }
    if (offset >= ram->last_block->size) {
        vm_reader_fail(r, "offset 0x%" PRIx64 " of block '%s' >= its size 0x%" PRIx64, offset,
                       ram->last_block->name, ram->last_block->size);
        return NULL;
    }
    return page_at(ram, ram->last_block, offset);
}

static void load_page(RamState *ram, VmReader *r, uint64_t entry)
{
    uint8_t *place = load_place(ram, r, entry);

    if (!place) {
        return;
    }
    if (entry & RAM_FLAG_PAGE) {
        vm_read(r, place, MIGRATION_PAGE_SIZE);
        __atomic_fetch_add(&ram->normal, 1, __ATOMIC_RELAXED);
        return;
    }
    uint8_t fill = (uint8_t)vm_read_uint(r, 1);

    /* Memory that was never touched stays so. */
    if (!vm_reader_failed(r) && !(fill == 0 && is_zero(place))) {
        memset(place, fill, MIGRATION_PAGE_SIZE);
    }
    __atomic_fetch_add(&ram->zero, 1, __ATOMIC_RELAXED);
}

void ram_load_section(RamState *ram, VmReader *r)
{
    while (!vm_reader_failed(r)) {
        uint64_t entry = vm_read_uint(r, 8);
        unsigned flags = entry & (MIGRATION_PAGE_SIZE - 1);

        if (vm_reader_failed(r)) {
            return;
        }
        switch (flags & ~(unsigned)RAM_FLAG_CONTINUE) {
        case RAM_FLAG_EOS:
            return;
        case RAM_FLAG_MEM_SIZE:
            load_sizes(ram, r, entry & ~(uint64_t)(MIGRATION_PAGE_SIZE - 1));
            break;
        case RAM_FLAG_PAGE:
        case RAM_FLAG_ZERO:
            load_page(ram, r, entry);
            break;
        default:
            vm_reader_fail(r, "entry with flags 0x%x, which are not available here", flags);
        }
    }
}
