/*
 * A small HTTP server on the host's loopback, for the demo's guest to download from.
 *
 * It serves one path, DEMO_SERVER_PATH, whose body is pseudo-random and made while it is sent, so
 * that its size costs no memory.  It runs in a thread of its own and takes one client at a time.
 */
#ifndef GUEST_DEMO_SERVER_H
#define GUEST_DEMO_SERVER_H

#include <glib.h>
#include <stdint.h>

#define DEMO_SERVER_PATH "/body"

typedef struct DemoServer DemoServer;

/* Listens on 127.0.0.1, a port the kernel chooses; @size bytes of body. */
DemoServer *demo_server_start(uint64_t size, GError **errp);
uint16_t demo_server_port(const DemoServer *server);
/* The body's SHA-256, hexadecimal; waits until it is known. */
const char *demo_server_sha256(DemoServer *server);
/* Ends the thread; NULL is fine. */
void demo_server_stop(DemoServer *server);

#endif
