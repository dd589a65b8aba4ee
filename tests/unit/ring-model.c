/*
 * The memory model and the scheduler of ring-model.h.
 *
 * Memory is real memory.  Each store that reaches it is one tick of a clock and is logged with
 * what it replaced, so that a load can be given the value of an earlier tick.  A side's `floor` is
 * the tick before which its next loads cannot have happened; `seen` holds the same for each two
 * bytes (a load never goes back behind an earlier one of the same place).
 *
 * Outside model_run() accesses are plain, for setting up.
 */
#include "ring-model.h"

#include <string.h>

#include "hw/virtio/ring-access.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

#define STACK_SIZE  (128 * 1024)
#define BUFFER_SIZE 12
#define LOG_SIZE    4096
#define STEPS_MAX   20000 /* accesses of a schedule; good ones end after a few hundred */
#define CELL        2     /* bytes */

typedef struct PendingStore {
    uint16_t at, size;
    bool release;
    uint64_t value;
} PendingStore;

typedef struct LogEntry {
    uint16_t at, size;
    uint64_t old;
} LogEntry;

typedef struct Side {
    PendingStore pending[BUFFER_SIZE];
    unsigned count;
    uint64_t floor;
    uint64_t seen[MODEL_MEMORY / CELL];
    bool signalled, waiting;
    void (*run)(void *opaque);
    uint8_t *stack;
#ifdef OWN_SWITCH
    void *sp;
#else
    ucontext_t context;
#endif
} Side;

ModelConfig model_config;
ModelSite model_sites[MODEL_SITES_MAX];
unsigned model_site_count;
uint8_t model_memory[MODEL_MEMORY] __attribute__((aligned(64)));

static Side sides[2];
static ModelSide current;
static bool running;
static const char *failure;
static void *run_opaque;
static uint64_t now = 1; /* ticks; goes on from schedule to schedule */
static uint64_t log_start;
static LogEntry history[LOG_SIZE];
static unsigned steps;
static unsigned switch_chance, drain_chance, stale_chance; /* of 256 */
static uint64_t random_state = 1;

/* --- randomness --- */

void model_seed(uint64_t seed)
{
    random_state = seed * 0x9e3779b97f4a7c15ull | 1;
}

static inline uint32_t random32(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)(random_state * 0x2545f4914f6cdd1dull >> 32);
}

uint32_t model_random(uint32_t below)
{
    return (uint32_t)((uint64_t)random32() * below >> 32);
}

static inline bool chance(unsigned of_256)
{
    return (random32() & 255) < of_256;
}

/* --- coroutines --- */

#ifdef OWN_SWITCH

static void *main_sp;

/* Saves what a call preserves on the old stack, and goes on with the new one. */
void model_switch_stack(void **old_sp, void *new_sp);
__asm__(".text\n"
        ".type model_switch_stack, @function\n"
        "model_switch_stack:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size model_switch_stack, . - model_switch_stack\n");

static void side_main(void)
{
    sides[current].run(run_opaque);
    model_switch_stack(&sides[current].sp, main_sp);
    g_assert_not_reached();
}

static void side_prepare(Side *side)
{
    void **top = (void **)(side->stack + STACK_SIZE);

    *--top = NULL; /* side_main() sees the alignment that a call leaves */
    *--top = (void *)side_main;
    top -= 6;
    side->sp = top;
}

static void switch_to(ModelSide next)
{
    Side *old = &sides[current];

    current = next;
    model_switch_stack(&old->sp, sides[next].sp);
}

static void leave(void)
{
    model_switch_stack(&sides[current].sp, main_sp);
}

static void enter(ModelSide side)
{
    current = side;
    model_switch_stack(&main_sp, sides[side].sp);
}

#else

static ucontext_t main_context;

static void side_main(void)
{
    sides[current].run(run_opaque);
    setcontext(&main_context);
}

static void side_prepare(Side *side)
{
    getcontext(&side->context);
    side->context.uc_stack.ss_sp = side->stack;
    side->context.uc_stack.ss_size = STACK_SIZE;
    side->context.uc_link = &main_context;
    makecontext(&side->context, side_main, 0);
}

static void switch_to(ModelSide next)
{
    Side *old = &sides[current];

    current = next;
    swapcontext(&old->context, &sides[next].context);
}

static void leave(void)
{
    setcontext(&main_context);
}

static void enter(ModelSide side)
{
    current = side;
    swapcontext(&main_context, &sides[side].context);
}

#endif

void model_fail(const char *why)
{
    failure = why;
    leave();
    g_assert_not_reached();
}

/* --- memory --- */

static inline bool overlap(unsigned a, unsigned a_size, unsigned b, unsigned b_size)
{
    return a < b + b_size && b < a + a_size;
}

static void memory_write(const PendingStore *store)
{
    LogEntry *entry = &history[(now - log_start) % LOG_SIZE];

    *entry = (LogEntry){.at = store->at, .size = store->size};
    memcpy(&entry->old, model_memory + store->at, store->size);
    memcpy(model_memory + store->at, &store->value, store->size);
    now++;
}

/* May entry @i of the buffer reach memory now? */
static bool may_drain(const Side *side, unsigned i)
{
    if (i == 0) {
        return true;
    }
    if (model_config.kind == MODEL_X86 || side->pending[i].release) {
        return false;
    }
    for (unsigned n = 0; n < i; n++) {
        if (overlap(side->pending[n].at, side->pending[n].size, side->pending[i].at,
                    side->pending[i].size)) {
            return false;
        }
    }
    return true;
}

static void drain_one(Side *side)
{
    unsigned i = model_config.kind == MODEL_RELAXED ? model_random(side->count) : 0;

    while (!may_drain(side, i)) {
        i--;
    }
    memory_write(&side->pending[i]);
    /* Its own next loads of the place see this store or a later one. */
    for (unsigned at = side->pending[i].at; at < side->pending[i].at + side->pending[i].size;
         at += CELL) {
        side->seen[at / CELL] = now;
    }
    memmove(side->pending + i, side->pending + i + 1,
            (side->count - i - 1) * sizeof(side->pending[0]));
    side->count--;
}

static void full_barrier(Side *side)
{
    while (side->count) {
        drain_one(side);
    }
    side->floor = now;
}

static bool may_go_on(const Side *side)
{
    return !side->waiting || side->signalled;
}

/* Between two accesses anything can happen. */
static void point(void)
{
    if (++steps > STEPS_MAX || now - log_start > LOG_SIZE - BUFFER_SIZE) {
        model_fail("the schedule does not end");
    }
    for (unsigned i = 0; i < 2; i++) {
        if (sides[i].count && chance(drain_chance)) {
            drain_one(&sides[i]);
        }
    }
    if (chance(switch_chance) && may_go_on(&sides[!current])) {
        switch_to(!current);
    }
}

static unsigned place_of(const void *p)
{
    size_t at = (size_t)((const uint8_t *)p - model_memory);

    g_assert_cmpuint(at, <, MODEL_MEMORY);
    return (unsigned)at;
}

/* When a load of [@at, @at + @size) happens. */
static uint64_t load_time(Side *side, unsigned at, unsigned size)
{
    uint64_t oldest = side->floor;

    if (model_config.kind == MODEL_X86) {
        return now;
    }
    for (unsigned i = at; i < at + size; i += CELL) {
        oldest = MAX(oldest, side->seen[i / CELL]);
    }
    return oldest < now && chance(stale_chance)
               ? oldest + model_random((uint32_t)(now - oldest) + 1)
               : now;
}

static uint64_t load(const void *p, unsigned size, bool acquire)
{
    Side *side = &sides[current];
    unsigned at = place_of(p);
    uint64_t time, value = 0;
    uint8_t bytes[8];

    if (!running) {
        memcpy(&value, p, size);
        return value;
    }
    point();
    memcpy(bytes, p, size);
    time = load_time(side, at, size);
    for (uint64_t tick = now; tick > time; tick--) {
        const LogEntry *entry = &history[(tick - 1 - log_start) % LOG_SIZE];

        for (unsigned i = 0; i < entry->size; i++) {
            if (entry->at + i >= at && entry->at + i < at + size) {
                bytes[entry->at + i - at] = (uint8_t)(entry->old >> (8 * i));
            }
        }
    }
    for (unsigned n = 0; n < side->count; n++) {
        const PendingStore *store = &side->pending[n];

        for (unsigned i = 0; i < store->size; i++) {
            if (store->at + i >= at && store->at + i < at + size) {
                bytes[store->at + i - at] = (uint8_t)(store->value >> (8 * i));
            }
        }
    }
    for (unsigned i = at; i < at + size; i += CELL) {
        side->seen[i / CELL] = time;
    }
    if (acquire) {
        side->floor = MAX(side->floor, time);
    }
    memcpy(&value, bytes, size);
    return value;
}

static void store(void *p, uint64_t value, unsigned size, bool release)
{
    Side *side = &sides[current];
    PendingStore entry = {
        .at = (uint16_t)place_of(p), .size = (uint16_t)size, .release = release, .value = value};

    if (!running) {
        memcpy(p, &value, size);
        return;
    }
    point();
    if (side->count == BUFFER_SIZE) {
        drain_one(side);
    }
    side->pending[side->count++] = entry;
}

/* Whether this place still orders. */
static bool orders(const char *function, const char *what)
{
    for (unsigned i = 0; i < model_site_count; i++) {
        const ModelSite *site = &model_sites[i];

        if (site->what == what && !strcmp(site->function, function)) {
            return site != model_config.without;
        }
    }
    if (running) {
        g_assert_cmpuint(model_site_count, <, MODEL_SITES_MAX);
        model_sites[model_site_count++] = (ModelSite){function, what};
    }
    return true;
}

uint16_t ring_load16(const void *p)
{
    return (uint16_t)load(p, 2, false);
}

uint32_t ring_load32(const void *p)
{
    return (uint32_t)load(p, 4, false);
}

void ring_store16(void *p, uint16_t value)
{
    store(p, value, 2, false);
}

void ring_store32(void *p, uint32_t value)
{
    store(p, value, 4, false);
}

void ring_store64(void *p, uint64_t value)
{
    store(p, value, 8, false);
}

void ring_load_desc(const void *p, RingDesc *desc)
{
    uint64_t halves[2];

    halves[0] = load(p, 8, false);
    halves[1] = load((const uint8_t *)p + 8, 8, false);
    ring_desc_decode(halves, desc);
}

static const char load_available[] = "load-acquire of what is available";
static const char store_used[] = "store-release of what is used";
static const char notify_enabled[] = "barrier after notifications were enabled";
static const char used_published[] = "barrier before the interrupt decision";

uint16_t model_load16_available(const void *p, const char *function)
{
    return (uint16_t)load(p, 2, orders(function, load_available));
}

void model_load_desc_available(const void *p, RingDesc *desc, const char *function)
{
    uint64_t halves[2];

    halves[1] = load((const uint8_t *)p + 8, 8, orders(function, load_available));
    halves[0] = load(p, 8, false);
    ring_desc_decode(halves, desc);
}

void model_store16_used(void *p, uint16_t value, const char *function)
{
    store(p, value, 2, orders(function, store_used));
}

void model_barrier_notify_enabled(const char *function)
{
    if (running && orders(function, notify_enabled)) {
        full_barrier(&sides[current]);
    }
}

void model_barrier_used_published(const char *function)
{
    if (running && orders(function, used_published)) {
        full_barrier(&sides[current]);
    }
}

uint16_t model_load16_acquire(const void *p)
{
    return (uint16_t)load(p, 2, true);
}

void model_store16_release(void *p, uint16_t value)
{
    store(p, value, 2, true);
}

void model_full_barrier(void)
{
    full_barrier(&sides[current]);
}

/* --- signals --- */

void model_signal(void)
{
    point();
    full_barrier(&sides[current]);
    sides[!current].signalled = true;
}

void model_wait(void)
{
    Side *side = &sides[current];

    side->waiting = true;
    while (!side->signalled) {
        if (!may_go_on(&sides[!current])) {
            model_fail("a wake-up was lost: both sides sleep");
        }
        switch_to(!current);
    }
    side->waiting = side->signalled = false;
    full_barrier(side);
}

/* --- a schedule --- */

const char *model_run(void (*driver)(void *), void (*device)(void *), void *opaque)
{
    static const unsigned switch_chances[] = {8, 32, 64, 128};
    static const unsigned drain_chances[] = {2, 16, 64, 128};
    static const unsigned stale_chances[] = {16, 64, 128};

    run_opaque = opaque;
    failure = NULL;
    steps = 0;
    log_start = now;
    switch_chance = switch_chances[model_random(G_N_ELEMENTS(switch_chances))];
    drain_chance = drain_chances[model_random(G_N_ELEMENTS(drain_chances))];
    stale_chance = stale_chances[model_random(G_N_ELEMENTS(stale_chances))];
    for (unsigned i = 0; i < 2; i++) {
        if (!sides[i].stack) {
            sides[i].stack = g_malloc(STACK_SIZE);
        }
        sides[i].count = 0;
        sides[i].floor = now;
        sides[i].signalled = sides[i].waiting = false;
        sides[i].run = i == MODEL_DRIVER ? driver : device;
        side_prepare(&sides[i]);
    }
    running = true;
    enter(model_random(2) ? MODEL_DRIVER : MODEL_DEVICE);
    running = false;
    return failure;
}
