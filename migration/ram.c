/*
 * RAM, the saving side: which pages are dirty, and how they go into the stream.
 *
 * The dirty log has a byte for each page of guest addresses.  At first all RAM is dirty; a pass
 * walks over it, takes each page's mark away and writes the page.  Who writes memory marks the
 * page after its write, so a write that the copy missed leaves a mark, for the next pass to find.
 * The last pass runs with the VM stopped.
 *
 * What another process writes through its own mapping of a shared back end leaves no mark: the
 * last pass sends such RAM again, whole.
 */
#include <inttypes.h>
#include <string.h>

#include "internal.h"
#include "ram-flags.h"
#include "util/error.h"

static MigrationRamRange *range_at(RamState *ram, unsigned i)
{
    return &g_array_index(ram->ranges, MigrationRamRange, i);
}

static RamBlock *block_at(RamState *ram, unsigned i)
{
    return &g_array_index(ram->blocks, RamBlock, i);
}

static RamBlock *block_of_range(RamState *ram, unsigned range)
{
    for (unsigned i = 0; i < ram->blocks->len; i++) {
        RamBlock *block = block_at(ram, i);

        if (range - block->first < block->count) {
            return block;
        }
    }
    return NULL;
}

/* --- making --- */

static gboolean check_range(const MigrationRamRange *range, GError **errp)
{
    if ((range->addr | range->size | range->offset) % MIGRATION_PAGE_SIZE) {
        return error_set(errp,
                         "RAM block '%s': address 0x%" PRIx64 " or size 0x%" PRIx64
                         " is not a multiple of %u bytes, such RAM cannot be migrated",
                         range->block, range->addr, range->size, MIGRATION_PAGE_SIZE);
    }
    if (strlen(range->block) > 255) {
        return error_set(errp, "RAM block name '%s' has more than 255 bytes", range->block);
    }
    return TRUE;
}

static void collect_blocks(RamState *ram)
{
    for (unsigned i = 0; i < ram->ranges->len; i++) {
        const MigrationRamRange *range = range_at(ram, i);
        RamBlock *last = ram->blocks->len ? block_at(ram, ram->blocks->len - 1) : NULL;

        if (!last || strcmp(last->name, range->block)) {
            RamBlock block = {
                .name = range->block,
                .first = i,
                .ignored = range->readonly || (ram->ignore_shared && range->shared),
            };

            g_array_append_val(ram->blocks, block);
            last = block_at(ram, ram->blocks->len - 1);
        }
        last->size += range->size;
        last->count++;
        ram->total += range->size;
    }
}

RamState *ram_state_new(bool ignore_shared, GError **errp)
{
    RamState *ram = g_new0(RamState, 1);

    ram->ignore_shared = ignore_shared;
    ram->ranges = migration_host->ram();
    ram->blocks = g_array_new(FALSE, TRUE, sizeof(RamBlock));
    for (unsigned i = 0; i < ram->ranges->len; i++) {
        const MigrationRamRange *range = range_at(ram, i);

        if (!check_range(range, errp)) {
            ram_state_free(ram);
            return NULL;
        }
        ram->log_pages = MAX(ram->log_pages, (range->addr + range->size) >> MIGRATION_PAGE_SHIFT);
    }
    collect_blocks(ram);
    return ram;
}

void ram_state_free(RamState *ram)
{
    if (ram) {
        g_array_unref(ram->ranges);
        g_array_unref(ram->blocks);
        g_free(ram->log);
        g_free(ram);
    }
}

/* --- the dirty log --- */

static uint8_t *log_of(RamState *ram, const MigrationRamRange *range)
{
    return ram->log + (range->addr >> MIGRATION_PAGE_SHIFT);
}

static void mark_range(RamState *ram, const MigrationRamRange *range)
{
    uint8_t *log = log_of(ram, range);

    for (uint64_t i = 0; i < range->size >> MIGRATION_PAGE_SHIFT; i++) {
        __atomic_store_n(&log[i], 1, __ATOMIC_RELAXED);
    }
}

void ram_log_start(RamState *ram)
{
    ram->log = g_malloc0(MAX(ram->log_pages, 1));
    for (unsigned i = 0; i < ram->ranges->len; i++) {
        if (!block_of_range(ram, i)->ignored) {
            mark_range(ram, range_at(ram, i));
        }
    }
    migration_host->set_dirty_log(ram->log, ram->log_pages);
}

void ram_log_stop(RamState *ram)
{
    if (ram->log) {
        migration_host->set_dirty_log(NULL, 0);
    }
}

uint64_t ram_count_dirty(RamState *ram)
{
    uint64_t pages = 0;

    for (unsigned i = 0; i < ram->ranges->len; i++) {
        const MigrationRamRange *range = range_at(ram, i);
        const uint8_t *log = log_of(ram, range);

        if (block_of_range(ram, i)->ignored) {
            continue;
        }
        for (uint64_t page = 0; page < range->size >> MIGRATION_PAGE_SHIFT; page++) {
            pages += __atomic_load_n(&log[page], __ATOMIC_RELAXED);
        }
    }
    __atomic_store_n(&ram->remaining, pages << MIGRATION_PAGE_SHIFT, __ATOMIC_RELAXED);
    return pages << MIGRATION_PAGE_SHIFT;
}

void ram_mark_shared(RamState *ram)
{
    for (unsigned i = 0; i < ram->ranges->len; i++) {
        if (range_at(ram, i)->shared && !block_of_range(ram, i)->ignored) {
            mark_range(ram, range_at(ram, i));
        }
    }
    ram->range = 0;
    ram->page = 0;
}

/* --- writing --- */

void ram_write_setup(RamState *ram, VmWriter *w)
{
    vm_write_uint(w, ram->total | RAM_FLAG_MEM_SIZE, 8);
    for (unsigned i = 0; i < ram->blocks->len; i++) {
        const RamBlock *block = block_at(ram, i);

        vm_write_uint(w, strlen(block->name), 1);
        vm_write(w, block->name, strlen(block->name));
        vm_write_uint(w, block->size, 8);
        if (ram->ignore_shared) {
            vm_write_uint(w, range_at(ram, block->first)->addr, 8);
        }
    }
    ram_write_eos(w);
}

void ram_write_eos(VmWriter *w)
{
    vm_write_uint(w, RAM_FLAG_EOS, 8);
}

/* A copy of a page that somebody may be writing: what is torn is marked dirty, and sent again. */
__attribute__((no_sanitize("thread"))) static bool copy_page(uint64_t *to, const uint8_t *from)
{
    const volatile uint64_t *words = (const volatile uint64_t *)(const void *)from;
    uint64_t any = 0;

    for (unsigned i = 0; i < MIGRATION_PAGE_SIZE / sizeof(uint64_t); i++) {
        to[i] = words[i];
        any |= to[i];
    }
    return any != 0;
}

static void write_page(RamState *ram, VmWriter *w, RamBlock *block, const MigrationRamRange *range,
                       uint64_t page)
{
    uint64_t at = page << MIGRATION_PAGE_SHIFT;
    uint64_t copy[MIGRATION_PAGE_SIZE / sizeof(uint64_t)];
    bool data = copy_page(copy, range->host + at);
    uint64_t flags = data ? RAM_FLAG_PAGE : RAM_FLAG_ZERO;

    if (block == ram->last_block) {
        flags |= RAM_FLAG_CONTINUE;
    }
    vm_write_uint(w, (range->offset + at) | flags, 8);
    if (block != ram->last_block) {
        vm_write_uint(w, strlen(block->name), 1);
        vm_write(w, block->name, strlen(block->name));
        ram->last_block = block;
    }
    if (data) {
        vm_write(w, copy, sizeof(copy));
        __atomic_fetch_add(&ram->normal, 1, __ATOMIC_RELAXED);
    } else {
        vm_write_uint(w, 0, 1);
        __atomic_fetch_add(&ram->zero, 1, __ATOMIC_RELAXED);
    }
}

gboolean ram_write_pages(RamState *ram, VmWriter *w, size_t bytes)
{
    guint begin = w->out->len;

    for (; ram->range < ram->ranges->len; ram->range++, ram->page = 0) {
        const MigrationRamRange *range = range_at(ram, ram->range);
        uint64_t pages = range->size >> MIGRATION_PAGE_SHIFT;
        RamBlock *block = block_of_range(ram, ram->range);
        uint8_t *log = log_of(ram, range);

        for (; !block->ignored && ram->page < pages; ram->page++) {
            if (!__atomic_load_n(&log[ram->page], __ATOMIC_RELAXED)) {
                continue;
            }
            if (w->out->len - begin >= bytes) {
                return TRUE;
            }
            /* Whose mark this takes away has written already (acquire); who writes from now on
             * leaves a new one. */
            __atomic_exchange_n(&log[ram->page], 0, __ATOMIC_SEQ_CST);
            write_page(ram, w, block, range, ram->page);
        }
    }
    ram->range = 0;
    return FALSE;
}
