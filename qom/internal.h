/* What the files of qom/ share with one another.  Not for other folders. */
#ifndef QOM_INTERNAL_H
#define QOM_INTERNAL_H

#include "qom/object.h"

/* Deepest chain of classes below and with Object. */
#define QOM_CHAIN_MAX 16

/* Object classes from @klass (index 0) to Object; how many. */
unsigned qom_class_chain(gpointer klass, ObjectClass *chain[QOM_CHAIN_MAX]);
/* The table that the class itself set, or NULL. */
const Property *qom_class_own_props(ObjectClass *klass);
/* By exact spelling, most derived class first, without the alias child. */
const Property *qom_class_find_own_chain(gpointer klass, const char *name);

/* Applies -global values that match; the first that is refused ends it. */
gboolean qom_globals_apply(Object *obj, GError **errp);
/* As object_set_property(), and remembers the property as set by the user. */
gboolean object_set_user_property(Object *obj, const char *name, json_object *value, GError **errp);

#endif
