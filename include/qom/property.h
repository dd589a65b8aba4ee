/*
 * Property tables.  One row describes a property for the command line, device_add, qom-get/set/
 * list, device-list-properties, help and the manual.  `const` tables: data, not code.  Main thread.
 */
#ifndef QOM_PROPERTY_H
#define QOM_PROPERTY_H

#include <glib.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Object Object;
typedef struct Property Property;
typedef struct PropertyInfo PropertyInfo;

/* How values of one type are checked, stored, read and shown. */
struct PropertyInfo {
    const char *type; /* as device-list-properties names it: "uint32", "bool", "str" */
    const char *const *enum_values; /* NULL-ended, for enumerations and "on/off/auto" */
    /* @value: JSON of the right type, or a string as the command line spells it. */
    gboolean (*set)(Object *obj, const Property *prop, json_object *value, GError **errp);
    json_object *(*get)(Object *obj, const Property *prop);
    void (*set_default)(Object *obj, const Property *prop);
    json_object *(*default_value)(const Property *prop); /* NULL function: none is listed */
    /* Frees what set stored; the field is then a pointer, NULL when empty.  Runs with the object's
     * finalize. */
    void (*release)(Object *obj, const Property *prop);
    /* The object that the value names, or NULL: paths go through it.  Type "link<arg>". */
    Object *(*link)(Object *obj, const Property *prop);
};

enum {
    PROP_F_RUNTIME = 1 << 0, /* may be set after realize */
    PROP_F_READONLY = 1 << 1,
    PROP_F_HIDDEN = 1 << 2, /* not in device help (realized, hotplugged, …) */
};

struct Property {
    const char *name;
    const PropertyInfo *info;
    size_t offset; /* of the field in the instance */
    unsigned bit;  /* prop_info_bit: bit of a uint64 or of virtio features */
    unsigned flags;
    union {
        int64_t i;
        uint64_t u;
        const char *s;
    } defval;
    int64_t min, max; /* integers; max 0: the type's limits */
    const char *description;
    /* Called after a change at run time (may refuse: nothing is changed then). */
    gboolean (*changed)(Object *obj, const Property *prop, GError **errp);
    const void *arg; /* of the info: link's type name, enum's names */
};

extern const PropertyInfo prop_info_bool, prop_info_bit64, prop_info_uint8, prop_info_uint16,
    prop_info_uint32, prop_info_int32, prop_info_uint64, prop_info_int64, prop_info_size,
    prop_info_size32, prop_info_string, prop_info_on_off_auto, prop_info_macaddr, prop_info_link,
    prop_info_enum;
/* A bool of QEMU's that is always off here: "off" is a true statement and accepted ("auto" too),
 * "on" is refused with the description as the reason.  Needs no field. */
extern const PropertyInfo prop_info_absent;

typedef enum OnOffAuto { ON_OFF_AUTO_AUTO, ON_OFF_AUTO_ON, ON_OFF_AUTO_OFF } OnOffAuto;

#define PROP_(n, i, S, f, def, desc, ...)                                                          \
    {                                                                                              \
        .name = n, .info = &prop_info_##i, .offset = offsetof(S, f), .defval = def,                \
        .description = desc, ##__VA_ARGS__                                                         \
    }
#define PROP_BOOL(n, S, f, d, desc, ...) PROP_(n, bool, S, f, {.u = (d)}, desc, ##__VA_ARGS__)
/* One bit of a uint64_t field. */
#define PROP_BIT64(n, S, f, b, d, desc, ...)                                                       \
    PROP_(n, bit64, S, f, {.u = (d)}, desc, .bit = (b), ##__VA_ARGS__)
#define PROP_UINT8(n, S, f, d, desc, ...)  PROP_(n, uint8, S, f, {.u = (d)}, desc, ##__VA_ARGS__)
#define PROP_UINT16(n, S, f, d, desc, ...) PROP_(n, uint16, S, f, {.u = (d)}, desc, ##__VA_ARGS__)
#define PROP_UINT32(n, S, f, d, desc, ...) PROP_(n, uint32, S, f, {.u = (d)}, desc, ##__VA_ARGS__)
#define PROP_INT32(n, S, f, d, desc, ...)  PROP_(n, int32, S, f, {.i = (d)}, desc, ##__VA_ARGS__)
#define PROP_UINT64(n, S, f, d, desc, ...) PROP_(n, uint64, S, f, {.u = (d)}, desc, ##__VA_ARGS__)
#define PROP_SIZE(n, S, f, d, desc, ...)   PROP_(n, size, S, f, {.u = (d)}, desc, ##__VA_ARGS__)
#define PROP_STRING(n, S, f, desc, ...)    PROP_(n, string, S, f, {.s = NULL}, desc, ##__VA_ARGS__)
#define PROP_ON_OFF_AUTO(n, S, f, d, desc, ...)                                                    \
    PROP_(n, on_off_auto, S, f, {.u = (d)}, desc, ##__VA_ARGS__)
#define PROP_MACADDR(n, S, f, desc, ...) PROP_(n, macaddr, S, f, {.s = NULL}, desc, ##__VA_ARGS__)
/* Object pointer of type @t (QOM name); holds a reference; shown as a path. */
#define PROP_LINK(n, S, f, t, desc, ...)                                                           \
    PROP_(n, link, S, f, {.s = NULL}, desc, .arg = (t), ##__VA_ARGS__)
/* int field, names from the NULL-ended table @names. */
#define PROP_ENUM(n, S, f, names, d, desc, ...)                                                    \
    PROP_(n, enum, S, f, {.i = (d)}, desc, .arg = (names), ##__VA_ARGS__)
#define PROP_INT64(n, S, f, d, desc, ...)  PROP_(n, int64, S, f, {.i = (d)}, desc, ##__VA_ARGS__)
#define PROP_SIZE32(n, S, f, d, desc, ...) PROP_(n, size32, S, f, {.u = (d)}, desc, ##__VA_ARGS__)
#define PROP_ABSENT(n, desc)                                                                       \
    {                                                                                              \
        .name = n, .info = &prop_info_absent, .description = desc                                  \
    }
#define PROP_END                                                                                   \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/*
 * For infos: "Property 'TYPE.NAME' doesn't take value 'VALUE' (allowed: …)".  Names the type that
 * the user knows (virtio-net-pci, not its virtio-backend).  Returns FALSE.
 */
gboolean property_error_value(Object *obj, const Property *prop, json_object *value, GError **errp,
                              const char *allowed, ...) G_GNUC_PRINTF(5, 6);
/* Text of a JSON string, or NULL if @value is none or holds a NUL. */
const char *property_value_text(json_object *value);
char *property_type_string(const Property *prop);          /* "uint32", "link<iothread>"; g_free */
json_object *property_default_value(const Property *prop); /* new reference, or NULL */

#define PROP_FIELD(obj, prop, T) ((T *)((char *)(obj) + (prop)->offset))

#endif
