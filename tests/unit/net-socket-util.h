/*
 * What the tests of socket back ends share: a network of the test's own where that is allowed,
 * ports that are free, and two back ends that talk to each other under load.
 */
#ifndef TESTS_UNIT_NET_SOCKET_UTIL_H
#define TESTS_UNIT_NET_SOCKET_UTIL_H

#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net-test-util.h"

/* Root gets a loopback interface that nobody else binds ports of, with a route for multicast;
 * others share the machine's.  Call it before there are threads. */
static inline void test_enter_own_network(void)
{
    struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    struct rtentry route = {.rt_flags = RTF_UP, .rt_dev = (char *)"lo"};
    struct sockaddr_in *to = (struct sockaddr_in *)&route.rt_dst;
    struct sockaddr_in *mask = (struct sockaddr_in *)&route.rt_genmask;
    int fd;

    if (unshare(CLONE_NEWNET) < 0) {
        return;
    }
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    g_assert_cmpint(ioctl(fd, SIOCSIFFLAGS, &ifr), ==, 0);
    to->sin_family = mask->sin_family = AF_INET;
    to->sin_addr.s_addr = htonl(0xE0000000); /* 224.0.0.0/4 */
    mask->sin_addr.s_addr = htonl(0xF0000000);
    g_assert_cmpint(ioctl(fd, SIOCADDRT, &route), ==, 0);
    close(fd);
}

/* @n ports of loopback, all different, which were free a moment ago. */
static inline void test_free_ports(int family, int type, unsigned *ports, unsigned n)
{
    g_autofree int *fds = g_new(int, n);

    for (unsigned i = 0; i < n; i++) {
        struct sockaddr_storage addr = {.ss_family = family};
        socklen_t size = sizeof(addr);

        fds[i] = socket(family, type | SOCK_CLOEXEC, 0);
        g_assert_cmpint(bind(fds[i], (struct sockaddr *)&addr, size), ==, 0);
        getsockname(fds[i], (struct sockaddr *)&addr, &size);
        ports[i] = ntohs(((struct sockaddr_in *)&addr)->sin_port); /* where IPv6 has it too */
    }
    for (unsigned i = 0; i < n; i++) {
        close(fds[i]);
    }
}

static inline unsigned test_free_port(int family, int type)
{
    unsigned port;

    test_free_ports(family, type, &port, 1);
    return port;
}

/* Both ways at once, with receivers that are often full: none of @frames is lost. */
static inline void test_pair_load(TestClient *a, TestClient *b, unsigned frames, unsigned spread)
{
    a->spread = b->spread = spread;
    a->to_send = b->to_send = frames;
    test_client_send(a);
    test_client_send(b);
    int64_t end = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    for (unsigned i = 1; a->got->len < frames || b->got->len < frames; i++) {
        event_loop_run_once(event_loop_main(), false);
        test_client_give_room(a, i % 3 ? i % 50 : 0);
        test_client_give_room(b, i % 5 ? i % 90 : 0);
        g_assert_cmpint(g_get_monotonic_time(), <, end);
    }
    assert_frames_in_order(a, frames);
    assert_frames_in_order(b, frames);
}

/* Both clients (@b may be NULL), then all back ends. */
static inline void test_pair_delete(TestClient *a, TestClient *b)
{
    net_client_delete(&a->nc);
    if (b) {
        net_client_delete(&b->nc);
    }
    net_cleanup();
    g_assert_null(net_clients);
}

#endif
