/*
 * The guest driver's queue against a device played here, its RAM, its checksum completion, and
 * the head parser of its HTTP client.
 */
#include "guest/driver-queue.h"
#include "guest/http-head.h"
#include "guest/net-driver.h"
#include <glib.h>
#include <string.h>

#define RAM_SIZE (4u << 20)

typedef struct Fixture {
    GuestRam *ram;
    DriverQueue *queue;
    uint16_t seen; /* the device's position in the available ring */
} Fixture;

static void set_up(Fixture *f, uint16_t size, bool event_idx, bool indirect)
{
    f->ram = guest_ram_new(RAM_SIZE, NULL);
    g_assert_nonnull(f->ram);
    f->queue = driver_queue_new(f->ram, 0, size, event_idx, indirect, NULL);
    g_assert_nonnull(f->queue);
    f->seen = 0;
}

static void tear_down(Fixture *f)
{
    driver_queue_free(f->queue);
    guest_ram_free(f->ram);
}

/* The device: takes the next available head; -1: there is none. */
static int device_pop(Fixture *f)
{
    DriverQueue *q = f->queue;
    return f->seen == q->avail->idx ? -1 : q->avail->ring[f->seen++ % q->size];
}

static void device_push(Fixture *f, uint32_t id, uint32_t len)
{
    DriverQueue *q = f->queue;
    q->used->ring[q->used->idx % q->size] = (struct vring_used_elem){id, len};
    q->used->idx++;
}

static const DriverSegment segments[3] = {{0x200000, 12}, {0x201000, 100}, {0x202000, 200}};

static void test_round_trip(void)
{
    Fixture f;
    set_up(&f, 4, false, false);
    int token;
    uint32_t len;
    int head = driver_queue_add(f.queue, segments, 2, 1, &token);
    g_assert_cmpint(head, >=, 0);
    g_assert_cmpint(device_pop(&f), ==, -1); /* not published yet */
    g_assert_true(driver_queue_publish(f.queue));
    g_assert_false(driver_queue_publish(f.queue)); /* nothing new */
    g_assert_cmpint(device_pop(&f), ==, head);
    struct vring_desc *desc = f.queue->desc;
    g_assert_cmphex(desc[head].addr, ==, 0x200000);
    g_assert_cmpuint(desc[head].flags, ==, VRING_DESC_F_NEXT);
    uint16_t last = desc[desc[head].next].next;
    g_assert_cmpuint(desc[last].flags, ==, VRING_DESC_F_WRITE);
    g_assert_null(driver_queue_take(f.queue, &len));
    device_push(&f, (uint32_t)head, 77);
    g_assert_true(driver_queue_take(f.queue, &len) == &token);
    g_assert_cmpuint(len, ==, 77);
    g_assert_cmpuint(f.queue->free_count, ==, 4);
    tear_down(&f);
}

static void test_full(void)
{
    Fixture f;
    set_up(&f, 4, false, false);
    int token;
    g_assert_cmpint(driver_queue_add(f.queue, segments, 3, 0, &token), >=, 0);
    g_assert_cmpint(driver_queue_add(f.queue, segments, 1, 1, &token), ==, -1);
    g_assert_cmpint(driver_queue_add(f.queue, segments, 0, 1, &token), >=, 0);
    g_assert_cmpint(driver_queue_add(f.queue, segments, 0, 1, &token), ==, -1);
    tear_down(&f);
}

static void test_indirect(void)
{
    Fixture f;
    set_up(&f, 2, false, true);
    int token;
    int head = driver_queue_add(f.queue, segments, 2, 1, &token);
    g_assert_cmpuint(f.queue->desc[head].flags, ==, VRING_DESC_F_INDIRECT);
    g_assert_cmpuint(f.queue->desc[head].len, ==, 48);
    struct vring_desc *table = guest_ram_pointer(f.ram, f.queue->desc[head].addr, 48);
    g_assert_cmphex(table[1].addr, ==, 0x201000);
    g_assert_cmpuint(table[2].flags, ==, VRING_DESC_F_WRITE);
    g_assert_cmpuint(f.queue->free_count, ==, 1);
    tear_down(&f);
}

/* 70,000 chains of changing length, so that every 16-bit index wraps. */
static void test_indices_wrap(void)
{
    Fixture f;
    set_up(&f, 8, true, false);
    int tokens[8];
    uint32_t len;
    for (unsigned i = 0; i < 70000; i++) {
        int head = driver_queue_add(f.queue, segments, 1 + i % 3, 0, &tokens[i % 8]);
        g_assert_cmpint(head, >=, 0);
        *f.queue->avail_event = f.seen;
        g_assert_true(driver_queue_publish(f.queue));
        g_assert_cmpint(device_pop(&f), ==, head);
        device_push(&f, (uint32_t)head, i);
        g_assert_true(driver_queue_take(f.queue, &len) == &tokens[i % 8]);
        g_assert_cmpuint(f.queue->free_count, ==, 8);
    }
    tear_down(&f);
}

static void test_event_index(void)
{
    Fixture f;
    set_up(&f, 8, true, false);
    int token;
    *f.queue->avail_event = 1; /* the device wants to hear of the second chain */
    driver_queue_add(f.queue, segments, 1, 0, &token);
    g_assert_false(driver_queue_publish(f.queue));
    driver_queue_add(f.queue, segments, 1, 0, &token);
    g_assert_true(driver_queue_publish(f.queue));
    driver_queue_add(f.queue, segments, 1, 0, &token);
    g_assert_false(driver_queue_publish(f.queue));

    g_assert_false(driver_queue_enable_interrupts(f.queue));
    g_assert_cmpuint(*f.queue->used_event, ==, 0);
    device_push(&f, (uint32_t)device_pop(&f), 0);
    g_assert_true(driver_queue_enable_interrupts(f.queue)); /* one came meanwhile */
    driver_queue_disable_interrupts(f.queue);
    g_assert_false(vring_need_event(*f.queue->used_event, 3, 0));
    g_assert_false(driver_queue_enable_interrupts_after(f.queue, 1));
    g_assert_cmpuint(*f.queue->used_event, ==, 1);
    tear_down(&f);
}

static void test_flags(void)
{
    Fixture f;
    set_up(&f, 8, false, false);
    int token;
    f.queue->used->flags = VRING_USED_F_NO_NOTIFY;
    driver_queue_add(f.queue, segments, 1, 0, &token);
    g_assert_false(driver_queue_publish(f.queue));
    driver_queue_disable_interrupts(f.queue);
    g_assert_cmpuint(f.queue->avail->flags, ==, VRING_AVAIL_F_NO_INTERRUPT);
    driver_queue_enable_interrupts(f.queue);
    g_assert_cmpuint(f.queue->avail->flags, ==, 0);
    tear_down(&f);
}

/* A device that returns an id out of range, or one twice, stops the queue and nothing else. */
static void test_broken_device(void)
{
    const uint32_t ids[] = {8, 0xFFFFFFFFu, 5};
    for (unsigned i = 0; i < G_N_ELEMENTS(ids); i++) {
        Fixture f;
        uint32_t len;
        int token;
        set_up(&f, 8, false, false);
        int head = driver_queue_add(f.queue, segments, 1, 0, &token);
        driver_queue_publish(f.queue);
        device_push(&f, (uint32_t)head, 0);
        device_push(&f, ids[i], 0);
        g_assert_nonnull(driver_queue_take(f.queue, &len));
        g_assert_null(driver_queue_take(f.queue, &len));
        g_assert_true(f.queue->broken);
        g_assert_cmpint(driver_queue_add(f.queue, segments, 1, 0, &token), ==, -1);
        g_assert_false(driver_queue_has_used(f.queue));
        tear_down(&f);
    }
}

static void test_bad_size(void)
{
    GuestRam *ram = guest_ram_new(RAM_SIZE, NULL);
    const uint16_t sizes[] = {0, 3, 100, 65535};
    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_null(driver_queue_new(ram, 0, sizes[i], false, false, &error));
        g_assert_nonnull(error);
    }
    g_autoptr(GError) error = NULL;
    g_assert_null(driver_queue_new(ram, 0, 32768, false, true, &error)); /* no room for tables */
    g_assert_nonnull(error);
    guest_ram_free(ram);
}

static void test_ram(void)
{
    g_autoptr(GError) error = NULL;
    g_assert_null(guest_ram_new(4096, &error));
    g_assert_nonnull(error);
    GuestRam *ram = guest_ram_new(RAM_SIZE, NULL);
    g_assert_cmphex(guest_ram_alloc(ram, 3, 1), ==, 0x100000);
    g_assert_cmphex(guest_ram_alloc(ram, 16, 64), ==, 0x100040);
    g_assert_cmphex(guest_ram_alloc(ram, RAM_SIZE, 64), ==, 0);
    g_assert_cmphex(guest_ram_alloc(ram, SIZE_MAX, 64), ==, 0);
    g_assert_nonnull(guest_ram_pointer(ram, RAM_SIZE - 4, 4));
    g_assert_null(guest_ram_pointer(ram, RAM_SIZE - 4, 5));
    g_assert_null(guest_ram_pointer(ram, UINT64_MAX, 2));
    guest_ram_free(ram);
}

static void test_checksum(void)
{
    /* RFC 1071's example: 00 01 f2 03 f4 f5 f6 f7 sums up to ddf2, so its checksum is 220d. */
    uint8_t frame[] = {0xAA, 0xBB, 0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7, 0, 0};
    g_assert_true(net_frame_complete_checksum(frame, sizeof(frame), 2, 8));
    g_assert_cmpmem(frame + 10, 2, "\x22\x0d", 2);
    uint8_t odd[] = {0x01, 0x02, 0x03, 0x00, 0x00};
    g_assert_true(net_frame_complete_checksum(odd, 5, 0, 3));
    g_assert_cmpmem(odd + 3, 2, "\xfb\xfd", 2);
    g_assert_false(net_frame_complete_checksum(frame, sizeof(frame), 12, 0));
    g_assert_false(net_frame_complete_checksum(frame, sizeof(frame), 2, 9));
    g_assert_false(net_frame_complete_checksum(frame, sizeof(frame), 0xFFFF, 0xFFFF));
}

static void test_http_head(void)
{
    const char *good = "HTTP/1.1 200 OK\r\nX: y\r\ncontent-length:  12 \r\n\r\nbody";
    HttpHead head;
    g_assert_cmpint(http_head_parse(good, strlen(good), &head, NULL), ==, strlen(good) - 4);
    g_assert_cmpuint(head.status, ==, 200);
    g_assert_true(head.has_length);
    g_assert_cmpuint(head.length, ==, 12);
    for (size_t i = 0; i < strlen(good) - 4; i++) {
        g_assert_cmpint(http_head_parse(good, i, &head, NULL), ==, 0);
    }
}

static void test_http_bad_head(void)
{
    const char *const bad[] = {
        "\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20\r\n\r\n",
        "HTTP/1.1 2000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: nameless\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    HttpHead head;
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_assert_cmpint(http_head_parse(bad[i], strlen(bad[i]), &head, &error), ==, -1);
        g_assert_nonnull(error);
    }
    g_autofree char *endless = g_strnfill(HTTP_HEAD_MAX + 10, 'a');
    g_assert_cmpint(http_head_parse(endless, HTTP_HEAD_MAX + 10, &head, NULL), ==, -1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/guest-driver/queue/round-trip", test_round_trip);
    g_test_add_func("/guest-driver/queue/full", test_full);
    g_test_add_func("/guest-driver/queue/indirect", test_indirect);
    g_test_add_func("/guest-driver/queue/indices-wrap", test_indices_wrap);
    g_test_add_func("/guest-driver/queue/event-index", test_event_index);
    g_test_add_func("/guest-driver/queue/flags", test_flags);
    g_test_add_func("/guest-driver/queue/broken-device-stops-the-queue", test_broken_device);
    g_test_add_func("/guest-driver/queue/bad-size", test_bad_size);
    g_test_add_func("/guest-driver/ram", test_ram);
    g_test_add_func("/guest-driver/checksum", test_checksum);
    g_test_add_func("/guest-driver/http-head/good", test_http_head);
    g_test_add_func("/guest-driver/http-head/bad", test_http_bad_head);
    return g_test_run();
}
