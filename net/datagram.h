/*
 * Frames over a datagram socket, one a datagram: the data path of dgram, socket and l2tpv3.
 * Embedded in a client, which opens the socket.
 */
#ifndef NET_DATAGRAM_H
#define NET_DATAGRAM_H

#include <sys/socket.h>

#include "net/address.h"
#include "net/net.h"

#define DATAGRAM_BATCH      64
#define DATAGRAM_HEADER_MAX 352 /* bytes in front of a frame (tunnels, their IP header too) */

typedef struct DatagramLink DatagramLink;

/* What a tunnel puts in front of frames. */
typedef struct DatagramHeader {
    unsigned send_len; /* bytes */
    void (*fill)(DatagramLink *l, uint8_t *header);
    /* How many bytes of a datagram of @size bytes to skip, or -1: it is not for us. */
    ssize_t (*check)(DatagramLink *l, const uint8_t *data, size_t size);
} DatagramHeader;

struct DatagramLink {
    NetClient *nc;
    int fd;                       /* frames come from here */
    int send_fd;                  /* and leave here; mostly the same */
    NetAddress to;                /* size 0: send_fd is connected */
    const DatagramHeader *header; /* NULL: none */
    /* Sending met @errnum: true where something has been done about it and it can be tried again,
     * once a batch.  NULL: nothing can be done. */
    bool (*recover)(DatagramLink *l, int errnum);
    bool want_read, want_write;
    bool delivering;
    bool ended; /* shut down: nothing is read any more */

    uint8_t *in; /* DATAGRAM_BATCH times the longest frame */
    struct mmsghdr in_msgs[DATAGRAM_BATCH];
    struct iovec in_iov[DATAGRAM_BATCH];
    NetPacket pkts[DATAGRAM_BATCH]; /* read; [first, count) are not delivered yet */
    struct iovec pkt_iov[DATAGRAM_BATCH];
    unsigned first, count;

    uint8_t *headers;      /* of a batch */
    struct iovec *out_iov; /* with headers: the pieces of a batch */
};

/* @fd is non-blocking; taken over.  Reading starts. */
void datagram_init(DatagramLink *l, NetClient *nc, int fd, const DatagramHeader *header);
void datagram_destroy(DatagramLink *l);
/* Frames leave at @fd from now on, which stays the caller's.  In the client's loop. */
void datagram_set_send_fd(DatagramLink *l, int fd);

/* For NetClientOps. */
unsigned datagram_receive(DatagramLink *l, NetPacket *pkts, unsigned n);
bool datagram_can_receive(DatagramLink *l);
void datagram_peer_writable(DatagramLink *l);
void datagram_set_loop(DatagramLink *l, EventLoop *loop); /* sets nc->loop */

#endif
