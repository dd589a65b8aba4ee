/*
 * No lost wake-up, no element twice or never: the real virtqueue code, compiled with the accessors
 * of a memory model (ring-model.h), against a driver, over random interleavings of single
 * accesses.
 *
 * The driver adds a few chains, collects what was used, and sleeps when there is nothing to do;
 * the device sleeps between notifications.  Each chain carries its number, in its address and in
 * the length that the device returns, so whatever is lost, doubled, reordered or read too early
 * shows.  A schedule in which both sides sleep before all is done has lost a wake-up.
 *
 * Then the same with one ordering taken out of the device's code, for each of them: each time a
 * fault must be found.  A million schedules take a few seconds; SWNIC_TEST_FULL=1 runs ten million.
 */
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <string.h>

#include "hw/virtio/ring-access.h"
#include "hw/virtio/virtqueue.h"
#include "ring-model.h"
#include "util/clock.h"

#define DESC       0u
#define AVAIL      512u
#define USED       1024u
#define RAM_SIZE   0x10000u
#define BUFFER     0x4000u
#define MAX_NUM    5
#define MAX_PARTS  3
#define MAX_CHAINS 9
#define P_AVAIL    (1u << VRING_PACKED_DESC_F_AVAIL)
#define P_USED     (1u << VRING_PACKED_DESC_F_USED)
#define P_WRAP     (1u << VRING_PACKED_EVENT_F_WRAP_CTR)

typedef struct Case {
    bool packed, event_idx, in_order;
    unsigned num;

    /* the device */
    DmaSpace dma;
    uint8_t *ram; /* where buffers lie; the rings are in model_memory */
    VirtQueue *vq;
    unsigned popped; /* number of the next chain to come */

    /* the driver */
    unsigned total, submitted, returned;
    uint16_t next, used; /* split: indices; packed: slots */
    bool wrap, used_wrap;
    uint16_t published; /* where the last notification check was made */
    bool published_wrap;
    unsigned room; /* descriptors */
    uint16_t table_next;
    int number[MAX_NUM];      /* by id: of the chain in flight, -1 */
    unsigned length[MAX_NUM]; /* by id: descriptors */
    uint16_t order[MAX_NUM];  /* ids in flight, oldest first */
    unsigned in_flight;
} Case;

/* --- what a chain carries --- */

static uint64_t chain_addr(unsigned number)
{
    return BUFFER + number * 64;
}

static uint32_t chain_size(unsigned number)
{
    return 16 + number;
}

/* Bytes that the device says it has written. */
static uint32_t chain_written(unsigned number)
{
    return number % 3 ? chain_size(number) : number;
}

/* --- the device --- */

static void check_popped(Case *c, VirtQueueElement **elems, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const VirtQueueElement *elem = elems[i];
        unsigned number = c->popped++;

        model_check(number < MAX_CHAINS);
        model_check(elem->in_num == elem->ndescs && elem->out_num == 0);
        model_check(elem->gpa[0] == chain_addr(number));
        model_check(elem->sg[0].iov_len == chain_size(number));
        for (unsigned part = 1; part < elem->in_num; part++) {
            model_check(elem->gpa[part] == chain_addr(number) + part * 8);
        }
    }
}

static void device_interrupt(Case *c)
{
    if (virtqueue_should_interrupt(c->vq)) {
        model_signal();
    }
}

/* Uses @elems, the first of which has @number; in any order where that is allowed. */
static void device_use(Case *c, VirtQueueElement **elems, unsigned n, unsigned number)
{
    bool backwards = model_random(4) == 0;
    unsigned done = 0;

    while (done < n) {
        unsigned count = 1 + model_random(n - done);

        for (unsigned i = 0; i < count; i++) {
            unsigned k = backwards ? n - 1 - (done + i) : done + i;

            virtqueue_fill(c->vq, elems[k], chain_written(number + k), i);
        }
        virtqueue_flush(c->vq, count);
        device_interrupt(c);
        done += count;
    }
}

/* One look, as devices do it.  False: there was nothing. */
static bool device_look(Case *c)
{
    VirtQueueElement *elems[MAX_NUM];
    unsigned number = c->popped;
    unsigned n = virtqueue_pop_batch(c->vq, elems, 1 + model_random(c->num));

    check_popped(c, elems, n);
    if (n && model_random(4) == 0) {
        /* Given back, and popped again later. */
        unsigned keep = model_random(n);

        while (n > keep) {
            virtqueue_unpop(c->vq, elems[--n]);
            c->popped--;
        }
        if (keep == 0) {
            return true;
        }
    }
    device_use(c, elems, n, number);
    return n > 0;
}

/* As virtqueue.h says: off, drain, on, look again. */
static void device_drain(Case *c)
{
    virtqueue_disable_notify(c->vq);
    do {
        while (device_look(c)) {
        }
    } while (virtqueue_enable_notify(c->vq));
}

/* Notifications stay as they are: an empty ring arms itself. */
static void device_poll(Case *c)
{
    if (!virtqueue_notify_enabled(c->vq)) {
        device_drain(c);
        return;
    }
    while (device_look(c)) {
    }
}

/* As a receiver does: look whether there is something, off while there is. */
static void device_await(Case *c)
{
    for (;;) {
        if (virtqueue_empty(c->vq) && !virtqueue_enable_notify(c->vq)) {
            return;
        }
        virtqueue_disable_notify(c->vq);
        device_look(c);
    }
}

/* Waits until two chains are there, or all that the driver can give for now; it leaves them in
 * the ring meanwhile. */
static void device_gather(Case *c)
{
    VirtQueueElement *elems[MAX_NUM];
    unsigned available, number = c->popped;

    for (;;) {
        virtqueue_enable_notify(c->vq);
        available = virtqueue_available(c->vq);
        if (available >= 2 || c->room == 0 || c->submitted == c->total) {
            break;
        }
        model_wait();
    }
    model_check(virtqueue_pop_batch(c->vq, elems, available) == available);
    check_popped(c, elems, available);
    device_use(c, elems, available, number);
    device_drain(c);
}

static void device_main(void *opaque)
{
    static void (*const ways[])(Case *) = {device_drain, device_poll, device_await, device_gather};

    for (;;) {
        ways[model_random(G_N_ELEMENTS(ways))](opaque);
        model_wait();
    }
}

static void device_broken(VirtQueue *vq, void *opaque, const char *why)
{
    model_fail(why);
}

/* --- the driver, split --- */

static uint8_t *at(unsigned offset)
{
    return model_memory + offset;
}

static void write_desc(unsigned slot, uint64_t addr, uint32_t len, uint16_t third, uint16_t fourth)
{
    ring_store64(at(DESC + slot * 16), addr);
    ring_store64(at(DESC + slot * 16 + 8), (uint64_t)fourth << 48 | (uint64_t)third << 32 | len);
}

/* An id nobody uses; with IN_ORDER the table's next. */
static uint16_t pick_id(Case *c)
{
    uint16_t id = (uint16_t)(c->in_order ? c->table_next : model_random(c->num));

    while (c->number[id] >= 0 || c->length[id]) {
        id = (uint16_t)((id + 1) % c->num);
    }
    return id;
}

static void split_add(Case *c, unsigned parts)
{
    unsigned number = c->submitted;
    uint16_t head = pick_id(c), slot = head;

    c->number[head] = (int)number;
    c->length[head] = parts;
    for (unsigned i = 0; i < parts; i++) {
        bool more = i + 1 < parts;
        uint16_t next = 0;

        c->table_next = (uint16_t)((slot + 1) % c->num);
        if (more) {
            next = pick_id(c);
            c->length[next] = 1; /* taken; its number stays -1 */
        }
        write_desc(slot, chain_addr(number) + i * 8, i ? 8 : chain_size(number),
                   VRING_DESC_F_WRITE | (more ? VRING_DESC_F_NEXT : 0), next);
        slot = next;
    }
    ring_store16(at(AVAIL + 4 + c->next % c->num * 2), head);
    c->next++;
    c->order[c->in_flight++] = head;
}

static bool split_publish(Case *c)
{
    uint16_t old = c->published;

    model_store16_release(at(AVAIL + 2), c->next);
    c->published = c->next;
    model_full_barrier();
    if (!c->event_idx) {
        return !(ring_load16(at(USED)) & VRING_USED_F_NO_NOTIFY);
    }
    return vring_need_event(ring_load16(at(USED + 4 + c->num * 8)), c->next, old);
}

static bool split_has_used(Case *c)
{
    return model_load16_acquire(at(USED + 2)) != c->used;
}

static void split_read_used(Case *c, uint32_t *id, uint32_t *len)
{
    unsigned entry = USED + 4 + c->used % c->num * 8;

    *id = ring_load32(at(entry));
    *len = ring_load32(at(entry + 4));
}

static void split_skip_used(Case *c, unsigned chains, unsigned slots)
{
    c->used = (uint16_t)(c->used + chains);
}

/* The descriptors behind @head, which only the driver writes. */
static void split_free_rest(Case *c, uint16_t head)
{
    RingDesc desc;

    ring_load_desc(at(DESC + head * 16), &desc);
    while (desc.flags & VRING_DESC_F_NEXT) {
        c->length[desc.next] = 0;
        ring_load_desc(at(DESC + desc.next * 16), &desc);
    }
}

static void split_set_interrupts(Case *c, bool on)
{
    if (!c->event_idx) {
        ring_store16(at(AVAIL), on ? 0 : VRING_AVAIL_F_NO_INTERRUPT);
    } else if (on) {
        ring_store16(at(AVAIL + 4 + c->num * 2), c->used);
    }
}

/* --- the driver, packed --- */

static void advance(const Case *c, uint16_t *slot, bool *wrap, unsigned slots)
{
    *slot = (uint16_t)(*slot + slots);
    if (*slot >= c->num) {
        *slot = (uint16_t)(*slot - c->num);
        *wrap = !*wrap;
    }
}

static void packed_add(Case *c, unsigned parts)
{
    unsigned number = c->submitted;
    uint16_t id = pick_id(c), first = c->next, first_flags = 0;

    c->number[id] = (int)number;
    c->length[id] = parts;
    c->table_next = (uint16_t)((id + 1) % c->num);
    for (unsigned i = 0; i < parts; i++) {
        uint8_t *desc = at(DESC + c->next * 16u);
        uint16_t flags = (uint16_t)(VRING_DESC_F_WRITE | (i + 1 < parts ? VRING_DESC_F_NEXT : 0) |
                                    (c->wrap ? P_AVAIL : P_USED));

        ring_store64(desc, chain_addr(number) + i * 8);
        ring_store32(desc + 8, i ? 8 : chain_size(number));
        ring_store16(desc + 12, id);
        if (i) {
            ring_store16(desc + 14, flags);
        } else {
            first_flags = flags;
        }
        advance(c, &c->next, &c->wrap, 1);
    }
    model_store16_release(at(DESC + first * 16u + 14), first_flags);
    c->order[c->in_flight++] = id;
}

static bool packed_publish(Case *c)
{
    uint16_t slot = c->published;
    bool wrap = c->published_wrap;
    uint32_t event;

    c->published = c->next;
    c->published_wrap = c->wrap;
    model_full_barrier();
    event = ring_load32(at(USED));
    if ((event >> 16 & 3) != VRING_PACKED_EVENT_FLAG_DESC) {
        return (event >> 16 & 3) == VRING_PACKED_EVENT_FLAG_ENABLE;
    }
    while (slot != c->next || wrap != c->wrap) {
        if ((event & 0xffff) == (slot | (wrap ? P_WRAP : 0))) {
            return true;
        }
        advance(c, &slot, &wrap, 1);
    }
    return false;
}

static bool packed_has_used(Case *c)
{
    uint16_t flags = model_load16_acquire(at(DESC + c->used * 16u + 14)) & (P_AVAIL | P_USED);

    return flags == (c->used_wrap ? P_AVAIL | P_USED : 0);
}

static void packed_read_used(Case *c, uint32_t *id, uint32_t *len)
{
    *id = ring_load16(at(DESC + c->used * 16u + 12));
    *len = ring_load32(at(DESC + c->used * 16u + 8));
}

static void packed_skip_used(Case *c, unsigned chains, unsigned slots)
{
    advance(c, &c->used, &c->used_wrap, slots);
}

static void packed_set_interrupts(Case *c, bool on)
{
    uint32_t flags = !on            ? VRING_PACKED_EVENT_FLAG_DISABLE
                     : c->event_idx ? VRING_PACKED_EVENT_FLAG_DESC
                                    : VRING_PACKED_EVENT_FLAG_ENABLE;

    ring_store32(at(AVAIL), flags << 16 | c->used | (c->used_wrap ? P_WRAP : 0));
}

/* --- the driver, both --- */

/* Chain @id has come back. */
static void driver_release(Case *c, uint32_t id, uint32_t len)
{
    unsigned number = (unsigned)c->number[id];
    unsigned i = 0;

    model_check(len == chain_written(number));
    while (c->order[i] != id) {
        i++;
    }
    memmove(c->order + i, c->order + i + 1, (c->in_flight - i - 1) * sizeof(c->order[0]));
    c->in_flight--;
    if (!c->packed) {
        split_free_rest(c, (uint16_t)id);
    }
    c->room += c->length[id];
    c->length[id] = 0;
    c->number[id] = -1;
    c->returned++;
}

/* One used entry; false: there is none. */
static bool driver_take(Case *c)
{
    unsigned chains = 1, slots;
    uint32_t id, len;

    if (!(c->packed ? packed_has_used : split_has_used)(c)) {
        return false;
    }
    (c->packed ? packed_read_used : split_read_used)(c, &id, &len);
    model_check(id < c->num);
    model_check(c->number[id] >= 0);
    slots = c->length[id];
    /* With IN_ORDER older ones have come with it, written whole. */
    while (c->in_order && c->order[0] != id) {
        uint16_t older = c->order[0];

        slots += c->length[older];
        chains++;
        driver_release(c, older, chain_size((unsigned)c->number[older]));
    }
    driver_release(c, id, len);
    (c->packed ? packed_skip_used : split_skip_used)(c, chains, slots);
    return true;
}

static void driver_submit(Case *c)
{
    unsigned added = 0, max = 1 + model_random(c->num);

    while (c->submitted < c->total && c->room && added < max) {
        unsigned parts = model_random(4) ? 1 : 1 + model_random(MIN(c->room, MAX_PARTS));

        (c->packed ? packed_add : split_add)(c, parts);
        c->room -= parts;
        c->submitted++;
        added++;
    }
    if (added && (c->packed ? packed_publish : split_publish)(c)) {
        model_signal();
    }
}

static void driver_main(void *opaque)
{
    Case *c = opaque;
    void (*set_interrupts)(Case *, bool) = c->packed ? packed_set_interrupts : split_set_interrupts;

    while (c->returned < c->total) {
        bool progress = false;

        if (model_random(2) || c->in_flight == 0) {
            driver_submit(c);
        }
        while (driver_take(c)) {
            progress = true;
        }
        if (progress || (c->submitted < c->total && c->room)) {
            continue;
        }
        set_interrupts(c, true);
        model_full_barrier();
        if ((c->packed ? packed_has_used : split_has_used)(c)) {
            continue;
        }
        model_wait();
        if (model_random(2)) {
            set_interrupts(c, false);
        }
    }
}

/* --- schedules --- */

static Case *case_new(bool packed, bool event_idx, bool in_order)
{
    Case *c = g_new0(Case, 1);
    MemoryMap *map;
    MemoryRange ranges[] = {
        {.addr = 0, .size = MODEL_MEMORY, .host = model_memory, .fd = -1},
        {.addr = BUFFER, .size = RAM_SIZE - BUFFER, .fd = -1},
    };

    c->packed = packed;
    c->event_idx = event_idx;
    c->in_order = in_order;
    c->ram = g_malloc0(RAM_SIZE);
    ranges[1].host = c->ram + BUFFER;
    dma_space_init(&c->dma, NULL, NULL);
    map = memory_map_new(ranges, G_N_ELEMENTS(ranges), NULL);
    dma_space_set_map(&c->dma, map);
    memory_map_unref(map);
    c->vq = virtqueue_new(0, &c->dma, device_broken, c);
    return c;
}

static void case_free(Case *c)
{
    virtqueue_free(c->vq);
    dma_space_cleanup(&c->dma);
    g_free(c->ram);
    g_free(c);
}

static void put16(unsigned offset, uint16_t value)
{
    memcpy(model_memory + offset, &value, 2);
}

static void case_start_split(Case *c)
{
    /* Half of them around the wrap of the 16-bit index. */
    uint16_t start = (uint16_t)(model_random(2) ? 65536 - model_random(8) : model_random(65536));

    put16(AVAIL + 2, start);
    put16(AVAIL + 4 + c->num * 2, start); /* used event */
    put16(USED + 2, start);
    put16(USED + 4 + c->num * 8, start); /* available event */
    c->next = c->used = c->published = start;
    virtqueue_set_indices(c->vq, start, start);
}

static void case_start_packed(Case *c)
{
    uint16_t slot = (uint16_t)model_random(c->num);
    bool wrap = model_random(2);
    uint16_t where = (uint16_t)(slot | (wrap ? P_WRAP : 0));

    /* As the lap before, or this one so far, has left them: used. */
    for (unsigned i = 0; i < c->num; i++) {
        put16(DESC + i * 16 + 14, (i < slot) == wrap ? P_AVAIL | P_USED : 0);
    }
    put16(AVAIL, where);
    put16(AVAIL + 2, c->event_idx ? VRING_PACKED_EVENT_FLAG_DESC : VRING_PACKED_EVENT_FLAG_ENABLE);
    c->next = c->used = c->published = slot;
    c->wrap = c->used_wrap = c->published_wrap = wrap;
    virtqueue_set_indices(c->vq, where, where);
}

static const char *case_run(Case *c)
{
    static const unsigned split_sizes[] = {1, 2, 4}, packed_sizes[] = {1, 2, 3, 4, 5};
    VirtQueueRules rules = {
        .packed = c->packed, .event_idx = c->event_idx, .in_order = c->in_order};

    memset(model_memory, 0, USED + 64);
    c->num = c->packed ? packed_sizes[model_random(5)] : split_sizes[model_random(3)];
    c->total = 1 + model_random(MAX_CHAINS);
    c->submitted = c->returned = c->popped = c->in_flight = 0;
    c->room = c->num;
    c->table_next = 0;
    for (unsigned i = 0; i < MAX_NUM; i++) {
        c->number[i] = -1;
        c->length[i] = 0;
    }
    virtqueue_reset(c->vq);
    virtqueue_set_num(c->vq, c->num);
    virtqueue_set_rules(c->vq, &rules);
    virtqueue_set_addresses(c->vq, DESC, AVAIL, USED);
    if (c->packed) {
        case_start_packed(c);
    } else {
        case_start_split(c);
    }
    virtqueue_should_interrupt(c->vq); /* the one for what is not known after a load */
    return model_run(driver_main, device_main, c);
}

static bool is_full(void)
{
    return g_getenv("SWNIC_TEST_FULL") != NULL;
}

/* Under a sanitizer everything is many times slower. */
#ifdef __SANITIZE_ADDRESS__
#define SCHEDULES   40000u
#define FAULT_LIMIT 20000u
#else
#define SCHEDULES   1000000u
#define FAULT_LIMIT 20000u
#endif
#define VARIANTS 16 /* ring × EVENT_IDX × IN_ORDER × model */

static char *case_name(unsigned variant)
{
    return g_strdup_printf("%s%s%s, %s", variant & 1 ? "packed" : "split",
                           variant & 2 ? "+event_idx" : "", variant & 4 ? "+in_order" : "",
                           variant & 8 ? "relaxed" : "x86");
}

static void test_nothing_is_lost(void)
{
    unsigned each = (is_full() ? 10 : 1) * SCHEDULES / VARIANTS;
    int64_t start = clock_get_ns(CLOCK_HOST);

    for (unsigned variant = 0; variant < VARIANTS; variant++) {
        Case *c = case_new(variant & 1, variant & 2, variant & 4);
        g_autofree char *name = case_name(variant);

        model_config = (ModelConfig){.kind = variant & 8 ? MODEL_RELAXED : MODEL_X86};
        for (unsigned i = 0; i < each; i++) {
            uint64_t seed = (uint64_t)variant << 32 | i;
            const char *why;

            model_seed(seed + 1);
            why = case_run(c);
            if (why) {
                g_error("%s: schedule %u: %s", name, i, why);
            }
            g_assert_cmpuint(virtqueue_inuse(c->vq), ==, 0);
            g_assert_cmpuint(c->popped, ==, c->total);
        }
        case_free(c);
    }
    g_test_message("%u schedules in %.1f s", each * VARIANTS,
                   (double)(clock_get_ns(CLOCK_HOST) - start) / 1e9);
}

/* How many schedules it takes to find that @site is missing; 0: it was not found. */
static unsigned schedules_to_fault(unsigned variant, const ModelSite *site, const char **why)
{
    Case *c = case_new(variant & 1, variant & 2, variant & 4);
    unsigned found = 0;

    model_config = (ModelConfig){.kind = variant & 8 ? MODEL_RELAXED : MODEL_X86, .without = site};
    for (unsigned i = 1; i <= FAULT_LIMIT && !found; i++) {
        model_seed(i);
        *why = case_run(c);
        found = *why ? i : 0;
    }
    case_free(c);
    return found;
}

/* Every place that orders is needed: without it some variant fails.  The test before has met
 * them all. */
static void test_every_barrier_is_needed(void)
{
    for (unsigned i = 0; i < model_site_count; i++) {
        const ModelSite *site = &model_sites[i];
        const char *why = NULL;
        /* What orders a store before a load is needed on x86; the rest, where more is reordered. */
        unsigned first = g_str_has_prefix(site->what, "barrier") ? 0 : VARIANTS / 2;
        unsigned variant = first, found = 0;

        while (!found && variant < first + VARIANTS / 2) {
            found = schedules_to_fault(variant++, site, &why);
        }
        if (!found) {
            g_error("%s: nobody misses the %s", site->function, site->what);
        }
        g_autofree char *name = case_name(variant - 1);
        g_test_message("%s without the %s: %s: schedule %u: %s", site->function, site->what, name,
                       found, why);
    }
    g_assert_cmpuint(model_site_count, >=, 11);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#ifdef __SANITIZE_THREAD__ /* one thread that switches stacks, which TSan cannot follow */
    printf("1..0 # SKIP the model is one thread on several stacks\n");
    return 0;
#endif
    g_test_add_func("/virtio/ring-model/nothing-is-lost", test_nothing_is_lost);
    g_test_add_func("/virtio/ring-model/every-barrier-is-needed", test_every_barrier_is_needed);
    return g_test_run();
}
