/* Scatter-gather lists, against flat buffers. */
#include <glib.h>
#include <string.h>

#include "util/iov.h"

static void test_basic(void)
{
    char a[3] = "abc", b[4] = "defg", out[16];
    struct iovec iov[] = {{a, 3}, {NULL, 0}, {b, 4}};

    g_assert_cmpint(iov_size(iov, 3), ==, 7);
    g_assert_cmpint(iov_to_buf(iov, 3, 2, out, 3), ==, 3);
    g_assert_cmpmem(out, 3, "cde", 3);
    g_assert_cmpint(iov_to_buf(iov, 3, 5, out, 16), ==, 2);
    g_assert_cmpint(iov_to_buf(iov, 3, 7, out, 16), ==, 0);
    g_assert_cmpint(iov_to_buf(iov, 3, 70, out, 16), ==, 0);
    g_assert_cmpint(iov_from_buf(iov, 3, 2, "XYZ", 3), ==, 3);
    g_assert_cmpmem(a, 3, "abX", 3);
    g_assert_cmpmem(b, 4, "YZfg", 4);
    g_assert_cmpint(iov_memset(iov, 3, 6, '!', 100), ==, 1);
    g_assert_cmpmem(b, 4, "YZf!", 4);
}

static void test_slice(void)
{
    char a[8];
    struct iovec iov[] = {{a, 3}, {a + 3, 5}}, out[2];

    g_assert_cmpint(iov_slice(out, 2, iov, 2, 1, 4), ==, 2);
    g_assert_true(out[0].iov_base == a + 1 && out[0].iov_len == 2);
    g_assert_true(out[1].iov_base == a + 3 && out[1].iov_len == 2);
    g_assert_cmpint(iov_slice(out, 1, iov, 2, 1, 4), ==, 1);
    g_assert_cmpint(iov_slice(out, 2, iov, 2, 8, 4), ==, 0);
    g_assert_cmpint(iov_slice(out, 2, iov, 2, 3, 0), ==, 0);
}

static unsigned random_iov(struct iovec *iov, char *buf, size_t size)
{
    unsigned n = 0;
    size_t at = 0;

    while (at < size && n < 15) {
        size_t len = g_test_rand_int_range(0, 12);
        len = MIN(len, size - at);
        iov[n++] = (struct iovec){buf + at, len};
        at += len;
    }
    iov[n++] = (struct iovec){buf + at, size - at};
    return n;
}

static void test_random(void)
{
    for (int round = 0; round < 2000; round++) {
        char src[64], dst[64], want[64];
        struct iovec s[16], d[16];

        for (int i = 0; i < 64; i++) {
            src[i] = g_test_rand_int();
            dst[i] = want[i] = g_test_rand_int();
        }
        unsigned ns = random_iov(s, src, 64), nd = random_iov(d, dst, 64);
        size_t so = g_test_rand_int_range(0, 70), to = g_test_rand_int_range(0, 70);
        size_t bytes = g_test_rand_int_range(0, 80);
        size_t room = MIN(so < 64 ? 64 - so : 0, to < 64 ? 64 - to : 0);
        size_t expected = MIN(bytes, room);
        if (expected) {
            memcpy(want + to, src + so, expected);
        }
        g_assert_cmpint(iov_copy(d, nd, to, s, ns, so, bytes), ==, expected);
        g_assert_cmpmem(dst, 64, want, 64);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/iov/basic", test_basic);
    g_test_add_func("/iov/slice", test_slice);
    g_test_add_func("/iov/copy-against-memcpy", test_random);
    return g_test_run();
}
