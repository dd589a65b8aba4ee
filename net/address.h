/*
 * Socket addresses: between QAPI's SocketAddress, the "HOST:PORT" of older options, and what the
 * kernel takes.  Opening of stream sockets, without ever blocking.
 */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include <glib.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "qapi/qapi-types.h"

typedef struct NetAddress {
    socklen_t size;
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
        struct sockaddr_vm vm;
        struct sockaddr_storage storage;
    } u;
} NetAddress;

/* The path a socket of ours is bound to: unlinked with it, unless another has replaced it.
 * Release it before the socket is closed: the number of its inode is free then. */
typedef struct BoundPath {
    char *path; /* NULL: none */
    dev_t dev;
    ino_t ino;
} BoundPath;

/*
 * The addresses @addr stands for (inet names may have several), an array of NetAddress to unref;
 * NULL with error.  @socktype: SOCK_STREAM or SOCK_DGRAM.  @passive: to bind, not to connect to.
 * Names are looked up, which may block: see address_needs_lookup().  Any thread.  Not for fd.
 */
GArray *address_resolve(const SocketAddress *addr, int socktype, bool passive, GError **errp);
bool address_needs_lookup(const SocketAddress *addr);
/* "HOST:PORT", "[HOST]:PORT", ":PORT" of @option. */
gboolean address_parse_host_port(const char *option, const char *text, int socktype, bool passive,
                                 NetAddress *out, GError **errp);

SocketAddress *address_to_qapi(const NetAddress *addr);
SocketAddress *address_clone(const SocketAddress *addr);
char *address_uri(const SocketAddress *addr);      /* "tcp:HOST:PORT", "unix:PATH"; g_free */
char *address_text(const SocketAddress *addr);     /* for messages; g_free */
char *address_host_port(const NetAddress *addr);   /* "HOST:PORT" of an IP address; g_free */
bool address_is_multicast(const NetAddress *addr); /* IPv4 or IPv6 */

/* Non-blocking, close-on-exec; -1 with errno. */
int socket_open(int family, int type, int protocol);
/* SO_TYPE, SO_DOMAIN, SO_ACCEPTCONN, …; -1: @fd is no socket. */
int socket_option(int fd, int option);
void socket_set_nodelay(int fd); /* TCP; nothing for others */
/* An open socket named by @option=@text, made non-blocking and close-on-exec; -1 with error. */
int socket_take_fd(const char *option, const char *text, GError **errp);

/* A listening socket.  @bound is filled for a UNIX path.  -1 with error. */
int address_listen(const SocketAddress *addr, BoundPath *bound, GError **errp);
/* Begins to connect; *pending: not done yet, wait for POLLOUT and ask socket_connect_result().
 * @options (may be NULL): keep-alive and mptcp of it.  -1 with errno. */
int address_connect(const NetAddress *addr, const SocketAddress *options, bool *pending);
int socket_connect_result(int fd); /* 0 or an errno */

/* bind(); a UNIX path is replaced if it exists (not a folder).  0 or an errno. */
int socket_bind(int fd, const NetAddress *addr, BoundPath *bound);
void bound_path_release(BoundPath *bound);

#endif
