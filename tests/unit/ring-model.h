/*
 * A memory model for two sides of a ring, and the scheduler that interleaves them.
 *
 * Each side is a coroutine.  Before each single access to the model's memory the scheduler may
 * let a pending store of either side reach memory, and may go on with the other side.
 *
 * MODEL_X86: a side's stores wait in a buffer and reach memory in order; its own loads see them;
 * loads happen in order.  What can go wrong is a load that passes an earlier store.
 *
 * MODEL_RELAXED: what the C language lets compilers and machines do to relaxed accesses.  Stores
 * to different places reach memory in any order, except that a release store comes after all
 * before it.  A load may have happened earlier, back to the side's last acquire load or full
 * barrier, but never before another load of the same place.
 *
 * A signal (doorbell, interrupt) is a full barrier to who sends it and to who waits for it.
 */
#ifndef TESTS_UNIT_RING_MODEL_H
#define TESTS_UNIT_RING_MODEL_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define MODEL_MEMORY 2048 /* bytes, at model_memory */

typedef enum ModelSide { MODEL_DRIVER, MODEL_DEVICE } ModelSide;
typedef enum ModelKind { MODEL_X86, MODEL_RELAXED } ModelKind;

/* A place of the device's code that orders accesses. */
typedef struct ModelSite {
    const char *function;
    const char *what;
} ModelSite;
#define MODEL_SITES_MAX 32

/* Those that were executed so far. */
extern ModelSite model_sites[MODEL_SITES_MAX];
extern unsigned model_site_count;

typedef struct ModelConfig {
    ModelKind kind;
    const ModelSite *without; /* has no effect in this run; NULL: all have */
} ModelConfig;

extern ModelConfig model_config;
extern uint8_t model_memory[MODEL_MEMORY];

void model_seed(uint64_t seed);
uint32_t model_random(uint32_t below);

/* Runs both sides until @driver returns or one of them fails.  NULL, or why it failed. */
const char *model_run(void (*driver)(void *), void (*device)(void *), void *opaque);
/* In a side: the schedule has failed.  Does not return. */
void model_fail(const char *why) G_GNUC_NORETURN;
/* Wakes the other side, now or when it waits next. */
void model_signal(void);
/* Sleeps until the other side has signalled.  The schedule fails if nobody ever will. */
void model_wait(void);
/* Fails the schedule if @condition does not hold. */
#define model_check(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            model_fail(#condition);                                                                \
        }                                                                                          \
    } while (0)

/* The driver's orderings; the other accessors are those of ring-access-model.h. */
uint16_t model_load16_acquire(const void *p);
void model_store16_release(void *p, uint16_t value);
void model_full_barrier(void);

#endif
