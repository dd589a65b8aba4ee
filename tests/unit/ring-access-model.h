/* The accessors of hw/virtio/ring-access.h, as the memory model of ring-model.c has them. */
#ifndef TESTS_UNIT_RING_ACCESS_MODEL_H
#define TESTS_UNIT_RING_ACCESS_MODEL_H

uint16_t ring_load16(const void *p);
uint32_t ring_load32(const void *p);
void ring_store16(void *p, uint16_t value);
void ring_store32(void *p, uint32_t value);
void ring_store64(void *p, uint64_t value);
void ring_load_desc(const void *p, RingDesc *desc);

/* The four orderings of the device's side.  Each place in the code is known by its function, and
 * can be taken away on its own (model_config.without). */
uint16_t model_load16_available(const void *p, const char *function);
void model_load_desc_available(const void *p, RingDesc *desc, const char *function);
void model_store16_used(void *p, uint16_t value, const char *function);
void model_barrier_notify_enabled(const char *function);
void model_barrier_used_published(const char *function);

#define ring_load16_available(p)          model_load16_available(p, __func__)
#define ring_load_desc_available(p, desc) model_load_desc_available(p, desc, __func__)
#define ring_store16_used(p, value)       model_store16_used(p, value, __func__)
#define ring_barrier_notify_enabled()     model_barrier_notify_enabled(__func__)
#define ring_barrier_used_published()     model_barrier_used_published(__func__)

#endif
