/*
 * The client's end of a vfio-user connection: messages.
 *
 * One VfioUserClient owns one connected socket (and the twin socket, where both sides want one).
 * A request waits for its reply; meanwhile the server's own commands (DMA_READ, DMA_WRITE) are
 * answered from the memory that was mapped with a host pointer.  A server that has such commands
 * while no request runs is answered by vfio_user_client_serve().  Requests may come from any
 * thread, one at a time.  What the commands mean is in vfio-user-device.h; this half also sends
 * what no proper client would, for tests.
 *
 * Errors never end the process.  After a transport error every later call fails at once.
 */
#ifndef GUEST_VFIO_USER_CLIENT_H
#define GUEST_VFIO_USER_CLIENT_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/vfio-user.h"

#define VFIO_USER_CLIENT_MAX_FDS 64 /* that we take in one message */

typedef struct VfioUserClient VfioUserClient;

/* A reply; clear it with vfio_user_answer_clear(). */
typedef struct VfioUserAnswer {
    int error; /* errno of an error reply, 0: it was none */
    uint8_t *data;
    size_t size;
    int fds[VFIO_USER_CLIENT_MAX_FDS]; /* taken ones are set to -1 */
    unsigned nfds;
} VfioUserAnswer;

/* Takes over the connected stream socket @fd. */
VfioUserClient *vfio_user_client_new(int fd);
VfioUserClient *vfio_user_client_connect(const char *path, GError **errp);
/* Closes the sockets; NULL is fine. */
void vfio_user_client_free(VfioUserClient *client);
/*
 * @client goes on over the connection of @other, which is negotiated and freed; its own is closed.
 * The numbers of its sockets stay, so that threads may poll() them meanwhile; requests that are
 * made meanwhile belong to either.
 */
bool vfio_user_client_take_over(VfioUserClient *client, VfioUserClient *other, GError **errp);
/* How long one reply may take, milliseconds; 10,000 at first. */
void vfio_user_client_set_timeout(VfioUserClient *client, unsigned ms);
int vfio_user_client_fd(const VfioUserClient *client);
int vfio_user_client_twin_fd(const VfioUserClient *client); /* -1: there is none */
bool vfio_user_client_is_broken(VfioUserClient *client);

/* Negotiates 0.0.  @capabilities (NULL: all that we can do, twin socket included) are proposed;
 * the server's are in vfio_user_client_capabilities(). */
bool vfio_user_client_negotiate(VfioUserClient *client, const char *capabilities, GError **errp);
json_object *vfio_user_client_capabilities(const VfioUserClient *client); /* borrowed */
/* Longest data of one access that the server takes, bytes. */
uint32_t vfio_user_client_max_transfer(const VfioUserClient *client);

/*
 * Sends a command and waits for its reply.  False only on a transport error; an error reply is
 * @answer->error.
 */
bool vfio_user_client_request(VfioUserClient *client, uint16_t command, const void *payload,
                              size_t size, const int *fds, unsigned nfds, VfioUserAnswer *answer,
                              GError **errp);
/* Sends a command that asks for no reply. */
bool vfio_user_client_post(VfioUserClient *client, uint16_t command, const void *payload,
                           size_t size, GError **errp);
/* Sends these bytes and fds, whatever they are. */
bool vfio_user_client_send_raw(VfioUserClient *client, const void *bytes, size_t size,
                               const int *fds, unsigned nfds, GError **errp);
/* Waits for the reply to the last command that was sent, by whatever means. */
bool vfio_user_client_receive(VfioUserClient *client, VfioUserAnswer *answer, GError **errp);
void vfio_user_answer_clear(VfioUserAnswer *answer);

/* Memory for the server's DMA_READ and DMA_WRITE.  @host stays the caller's; NULL takes it away. */
void vfio_user_client_set_memory(VfioUserClient *client, uint64_t addr, uint64_t size, void *host);
/* Commands of the server answered so far. */
uint64_t vfio_user_client_dma_reads(VfioUserClient *client);
uint64_t vfio_user_client_dma_writes(VfioUserClient *client);
/* Answers what the server asks, for @ms. */
bool vfio_user_client_serve(VfioUserClient *client, unsigned ms, GError **errp);
/* Fails the server's commands from now on with this errno, or does not answer them (-1); 0: as
 * always. */
void vfio_user_client_set_dma_failure(VfioUserClient *client, int error);

#endif
