/*
 * The Toeplitz hash of receive-side scaling, and which of a frame's fields it is taken over
 * (virtio 1.4, 5.1.6.4.3).  Pure; knows no device.
 */
#ifndef HW_NET_TOEPLITZ_H
#define HW_NET_TOEPLITZ_H

#include <stddef.h>
#include <stdint.h>

#define TOEPLITZ_KEY_MAX   40
#define TOEPLITZ_INPUT_MAX 36 /* two IPv6 addresses and two ports */

/* A key, prepared: what each value of each half byte of input adds. */
typedef struct Toeplitz {
    uint32_t table[2 * TOEPLITZ_INPUT_MAX][16];
} Toeplitz;

/* @key: a shorter one than TOEPLITZ_KEY_MAX is continued with zeros. */
void toeplitz_init(Toeplitz *toeplitz, const uint8_t *key, size_t key_len);
uint32_t toeplitz_hash(const Toeplitz *toeplitz, const uint8_t *input, size_t size);

/*
 * Hashes a frame, whose first @size bytes are @head (private memory), over what @hash_types
 * (VIRTIO_NET_RSS_HASH_TYPE_*) and @tunnel_types (VIRTIO_NET_HASH_TUNNEL_TYPE_*) say.  Returns
 * VIRTIO_NET_HASH_REPORT_*; NONE: *hash is 0.
 */
unsigned frame_hash(const Toeplitz *toeplitz, uint32_t hash_types, uint32_t tunnel_types,
                    const uint8_t *head, size_t size, uint32_t *hash);

#endif
