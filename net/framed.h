/*
 * Frames over a connected stream socket, each behind its length (32 bits, big-endian): the data
 * path of stream and socket.  Embedded in a client, which opens and closes the connections.
 */
#ifndef NET_FRAMED_H
#define NET_FRAMED_H

#include "net/net.h"

typedef struct FramedLink {
    NetClient *nc;
    int fd;          /* -1: no connection */
    int new_fd;      /* on its way from the main thread to the client's loop */
    bool ended;      /* nothing comes any more; the main thread has not closed it yet */
    bool send_ended; /* nothing can be sent any more */
    bool want_read, want_write;
    bool delivering;

    uint8_t *in; /* from the socket: bytes [in_start, in_end) are not delivered yet */
    size_t in_start, in_end;
    uint8_t *out; /* to the socket: the rest of a frame that went out in part */
    size_t out_start, out_end;

    BottomHalf *report;
    void (*disconnected)(NetClient *nc);
} FramedLink;

/* @disconnected is called in the main thread once a connection has ended by itself and is closed.
 * Frames that were read before are delivered all the same, also before those of the next one. */
void framed_init(FramedLink *l, NetClient *nc, void (*disconnected)(NetClient *nc));
void framed_destroy(FramedLink *l); /* with framed_close() */

/* Takes connected, non-blocking socket @fd.  Main thread, like close. */
void framed_open(FramedLink *l, int fd);
void framed_close(FramedLink *l);
/* Has a connection that frames can be sent on. */
static inline bool framed_is_open(const FramedLink *l)
{
    return l->fd >= 0 && !l->ended;
}

/* For NetClientOps.  Without a connection frames are dropped and counted as not-ready. */
unsigned framed_receive(FramedLink *l, NetPacket *pkts, unsigned n);
bool framed_can_receive(FramedLink *l);
void framed_peer_writable(FramedLink *l);
void framed_set_loop(FramedLink *l, EventLoop *loop); /* sets nc->loop */

#endif
