/* Segments put together by the guest come apart as they were. */
#include <string.h>

#include "guest/tx-merge.h"
#include "tests/lib/frame-builder.h"

static const uint8_t receiver[6] = {0x02, 0, 0, 0, 0, 1};
static TxMerge merge;

/* The segments of a TSO frame of @spec, in a row. */
static GPtrArray *segments_of(const FrameSpec *spec)
{
    BuiltFrame built;
    char *problem;
    GPtrArray *frames;

    frame_build(&built, spec, receiver);
    frames = frame_finish(&built.header, built.bytes, built.size, &problem);
    g_assert_cmpstr(problem, ==, NULL);
    frame_clear(&built);
    return frames;
}

static void test_round_trip(void)
{
    FrameSpec spec = {.ip_version = 4, .protocol = 6, .gso_size = 1448, .gso_type = 1};

    for (spec.payload = 1449; spec.payload < 65400; spec.payload += 1277) {
        g_autoptr(GPtrArray) frames = segments_of(&spec), again = NULL;
        char *problem;

        merge.size = 0;
        for (unsigned i = 0; i < frames->len; i++) {
            GByteArray *frame = frames->pdata[i];

            g_assert_true(tx_merge_add(&merge, frame->data, frame->len));
        }
        tx_merge_finish(&merge);
        g_assert_cmpuint(merge.segments, ==, frames->len);
        again = frame_finish(&merge.header, merge.bytes, merge.size, &problem);
        g_assert_cmpstr(problem, ==, NULL);
        g_assert_cmpuint(again->len, ==, frames->len);
        for (unsigned i = 0; i < frames->len; i++) {
            GByteArray *a = frames->pdata[i], *b = again->pdata[i];

            g_assert_cmpmem(a->data, a->len, b->data, b->len);
        }
    }
}

static void test_one_stays_as_it_is(void)
{
    static const struct virtio_net_hdr_v1 none;
    BuiltFrame built;

    frame_build(&built, &(FrameSpec){.ip_version = 4, .protocol = 6, .payload = 1000}, receiver);
    merge.size = 0;
    g_assert_true(tx_merge_add(&merge, built.bytes, built.size));
    tx_merge_finish(&merge);
    g_assert_cmpmem(merge.bytes, merge.size, built.bytes, built.size);
    g_assert_cmpmem(&merge.header, sizeof(none), &none, sizeof(none));
    frame_clear(&built);
}

static void test_passes_by(void)
{
    static const FrameSpec others[] = {
        {.ip_version = 4, .protocol = 6, .payload = 0},
        {.ip_version = 4, .protocol = 6, .payload = 9, .tcp_flags = 0x11}, /* FIN */
        {.ip_version = 4, .protocol = 6, .payload = 9, .ip_options = true},
        {.ip_version = 4, .protocol = 6, .payload = 9, .vlan = 3},
        {.ip_version = 4, .protocol = 17, .payload = 9},
        {.ip_version = 6, .protocol = 6, .payload = 9},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(others); i++) {
        BuiltFrame built;

        frame_build(&built, &others[i], receiver);
        merge.size = 0;
        g_assert_false(tx_merge_add(&merge, built.bytes, built.size));
        g_assert_cmpuint(merge.size, ==, 0);
        for (size_t size = 0; size < built.size; size++) {
            g_assert_false(tx_merge_can_hold(built.bytes, size));
        }
        frame_clear(&built);
    }
}

/* Any header byte that differs keeps two segments apart, but for those that differ in a train. */
static void test_other_flow(void)
{
    FrameSpec spec = {
        .ip_version = 4, .protocol = 6, .payload = 2000, .gso_size = 1000, .gso_type = 1};
    g_autoptr(GPtrArray) frames = segments_of(&spec);
    GByteArray *first = frames->pdata[0], *second = frames->pdata[1];
    size_t headers = first->len - 1000;

    for (size_t at = 0; at < headers; at++) {
        size_t ip = at - 14, tcp = at - 34;
        bool differs_in_trains = (ip >= 4 && ip < 6) || (ip >= 10 && ip < 12) || /* id, sum */
                                 (tcp >= 16 && tcp < 18);

        merge.size = 0;
        g_assert_true(tx_merge_add(&merge, first->data, first->len));
        second->data[at] ^= 1;
        g_assert_cmpint(tx_merge_add(&merge, second->data, second->len), ==, differs_in_trains);
        second->data[at] ^= 1;
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/tx-merge/comes-apart-as-it-was", test_round_trip);
    g_test_add_func("/tx-merge/one-stays-as-it-is", test_one_stays_as_it_is);
    g_test_add_func("/tx-merge/others-pass-by", test_passes_by);
    g_test_add_func("/tx-merge/another-flow-is-kept-apart", test_other_flow);
    return g_test_run();
}
