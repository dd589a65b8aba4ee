/* What all vhost back ends share: the listener, and the end. */
#include "vhost/vhost.h"

void vhost_backend_set_listener(VhostBackend *b, const VhostListener *listener)
{
    b->listener = listener ? *listener : (VhostListener){0};
}

void vhost_backend_changed(VhostBackend *b)
{
    if (b->listener.changed) {
        b->listener.changed(b->listener.opaque);
    }
}

void vhost_backend_free(VhostBackend *b)
{
    if (!b) {
        return;
    }
    if (b->listener.gone) {
        b->listener.gone(b->listener.opaque);
    }
    b->ops->free(b);
}
