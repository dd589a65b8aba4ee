/*
 * Property infos: how the values of each type are checked, stored and shown.
 *
 * A value comes as JSON, from QMP with its own type, or as a string in the command line's
 * spelling (also from QMP: libvirt writes "on").  Each set function turns it into the C field at
 * prop->offset or leaves the field alone and says what is allowed.  Nothing here knows whether
 * the property may be set now; object.c has asked that before.
 */
#include "qom/property.h"

#include <string.h>

#include "qom/object.h"
#include "util/json.h"
#include "util/keyval.h"

/* Longest value shown in a message, bytes. */
#define VALUE_TEXT_MAX 80

const char *property_value_text(json_object *value)
{
    if (!json_object_is_type(value, json_type_string)) {
        return NULL;
    }
    const char *text = json_object_get_string(value);
    return strlen(text) == (size_t)json_object_get_string_len(value) ? text : NULL;
}

/* @value on one line, cut to a length that a terminal shows. */
static char *value_for_message(json_object *value)
{
    g_autofree char *raw = NULL;
    if (json_object_is_type(value, json_type_string)) {
        raw = g_strndup(json_object_get_string(value), VALUE_TEXT_MAX);
    } else {
        g_autofree char *json = json_to_string(value);
        raw = g_strndup(json, VALUE_TEXT_MAX);
    }
    char *text = g_utf8_make_valid(raw, -1);
    for (char *p = text; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
    return text;
}

/* The type a user set the property on: a proxy's, when @obj is what the proxy stands for. */
static const char *user_type_name(Object *obj)
{
    if (obj->parent) {
        const char *alias = OBJECT_GET_CLASS(obj->parent)->alias_child;
        if (alias && obj->name && !strcmp(alias, obj->name)) {
            return object_type_name(obj->parent);
        }
    }
    return object_type_name(obj);
}

gboolean property_error_value(Object *obj, const Property *prop, json_object *value, GError **errp,
                              const char *allowed, ...)
{
    va_list ap;
    va_start(ap, allowed);
    g_autofree char *what = g_strdup_vprintf(allowed, ap);
    va_end(ap);
    g_autofree char *text = value_for_message(value);
    return error_set(errp, "Property '%s.%s' doesn't take value '%s' (allowed: %s)",
                     user_type_name(obj), prop->name, text, what);
}

char *property_type_string(const Property *prop)
{
    if (prop->info->link && prop->arg) {
        return g_strdup_printf("link<%s>", (const char *)prop->arg);
    }
    return g_strdup(prop->info->type);
}

json_object *property_default_value(const Property *prop)
{
    return prop->info->default_value ? prop->info->default_value(prop) : NULL;
}

/* --- bool and bits --- */

static bool value_to_bool(json_object *value, bool *result)
{
    if (json_object_is_type(value, json_type_boolean)) {
        *result = json_object_get_boolean(value);
        return true;
    }
    const char *text = property_value_text(value);
    return text && parse_bool("", text, result, NULL);
}

static gboolean bool_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    bool b;
    if (!value_to_bool(value, &b)) {
        return property_error_value(obj, prop, value, errp, "on, off");
    }
    *PROP_FIELD(obj, prop, bool) = b;
    return TRUE;
}

static json_object *bool_get(Object *obj, const Property *prop)
{
    return json_object_new_boolean(*PROP_FIELD(obj, prop, bool));
}

static void bool_set_default(Object *obj, const Property *prop)
{
    *PROP_FIELD(obj, prop, bool) = prop->defval.u != 0;
}

static json_object *bool_default_value(const Property *prop)
{
    return json_object_new_boolean(prop->defval.u != 0);
}

static void bit64_store(Object *obj, const Property *prop, bool on)
{
    uint64_t mask = UINT64_C(1) << (prop->bit & 63);
    uint64_t *field = PROP_FIELD(obj, prop, uint64_t);
    *field = on ? *field | mask : *field & ~mask;
}

static gboolean bit64_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    bool b;
    if (!value_to_bool(value, &b)) {
        return property_error_value(obj, prop, value, errp, "on, off");
    }
    bit64_store(obj, prop, b);
    return TRUE;
}

static json_object *bit64_get(Object *obj, const Property *prop)
{
    return json_object_new_boolean(*PROP_FIELD(obj, prop, uint64_t) >> (prop->bit & 63) & 1);
}

static void bit64_set_default(Object *obj, const Property *prop)
{
    bit64_store(obj, prop, prop->defval.u != 0);
}

static gboolean absent_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    bool b;
    const char *text = property_value_text(value);
    if (text && !strcmp(text, "auto")) {
        return TRUE;
    }
    if (!value_to_bool(value, &b) || b) {
        return property_error_value(obj, prop, value, errp, "off; %s", prop->description);
    }
    return TRUE;
}

static json_object *absent_get(Object *obj, const Property *prop)
{
    return json_object_new_boolean(false);
}

/* --- integers --- */

typedef struct IntType {
    const PropertyInfo *info;
    unsigned bytes;
    bool is_signed;
    bool suffixes; /* 4k, 1M, … */
} IntType;

static const IntType int_types[] = {
    {&prop_info_uint8, 1, false, false},  {&prop_info_uint16, 2, false, false},
    {&prop_info_uint32, 4, false, false}, {&prop_info_uint64, 8, false, false},
    {&prop_info_size, 8, false, true},    {&prop_info_size32, 4, false, true},
    {&prop_info_int32, 4, true, false},   {&prop_info_int64, 8, true, false},
};

static const IntType *int_type_of(const Property *prop)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(int_types); i++) {
        if (int_types[i].info == prop->info) {
            return &int_types[i];
        }
    }
    g_assert_not_reached();
}

static void uint_store(Object *obj, const Property *prop, unsigned bytes, uint64_t v)
{
    switch (bytes) {
    case 1:
        *PROP_FIELD(obj, prop, uint8_t) = (uint8_t)v;
        break;
    case 2:
        *PROP_FIELD(obj, prop, uint16_t) = (uint16_t)v;
        break;
    case 4:
        *PROP_FIELD(obj, prop, uint32_t) = (uint32_t)v;
        break;
    default:
        *PROP_FIELD(obj, prop, uint64_t) = v;
    }
}

static uint64_t uint_load(Object *obj, const Property *prop, unsigned bytes)
{
    switch (bytes) {
    case 1:
        return *PROP_FIELD(obj, prop, uint8_t);
    case 2:
        return *PROP_FIELD(obj, prop, uint16_t);
    case 4:
        return *PROP_FIELD(obj, prop, uint32_t);
    default:
        return *PROP_FIELD(obj, prop, uint64_t);
    }
}

/* Reads an unsigned number of 64 bits; false: not one. */
static bool value_to_uint64(json_object *value, const IntType *type, uint64_t *result)
{
    if (json_object_is_type(value, json_type_int)) {
        *result = json_object_get_uint64(value);
        return json_object_get_int64(value) >= 0;
    }
    const char *text = property_value_text(value);
    if (!text) {
        return false;
    }
    return type->suffixes ? parse_size("", text, result, NULL)
                          : parse_uint64("", text, UINT64_MAX, result, NULL);
}

static bool value_to_int64(json_object *value, int64_t *result)
{
    if (json_object_is_type(value, json_type_int)) {
        *result = json_object_get_int64(value);
        return *result < 0 || json_object_get_uint64(value) <= INT64_MAX;
    }
    const char *text = property_value_text(value);
    return text && parse_int64("", text, INT64_MIN, INT64_MAX, result, NULL);
}

static gboolean uint_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    const IntType *type = int_type_of(prop);
    uint64_t min = (uint64_t)prop->min;
    uint64_t max = prop->max ? (uint64_t)prop->max : UINT64_MAX >> (64 - 8 * type->bytes);
    uint64_t v;
    if (!value_to_uint64(value, type, &v) || v < min || v > max) {
        return property_error_value(obj, prop, value, errp, "%s%" PRIu64 " to %" PRIu64,
                                    type->suffixes ? "a size in bytes or with K, M, G, T: " : "",
                                    min, max);
    }
    uint_store(obj, prop, type->bytes, v);
    return TRUE;
}

static json_object *uint_get(Object *obj, const Property *prop)
{
    return json_object_new_uint64(uint_load(obj, prop, int_type_of(prop)->bytes));
}

static void int_set_default(Object *obj, const Property *prop)
{
    uint_store(obj, prop, int_type_of(prop)->bytes, prop->defval.u);
}

static json_object *uint_default_value(const Property *prop)
{
    return json_object_new_uint64(prop->defval.u);
}

static gboolean int_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    const IntType *type = int_type_of(prop);
    int64_t max = type->bytes == 4 ? INT32_MAX : INT64_MAX;
    int64_t min = -max - 1;
    if (prop->min || prop->max) {
        min = prop->min;
    }
    if (prop->max) {
        max = prop->max;
    }
    int64_t v;
    if (!value_to_int64(value, &v) || v < min || v > max) {
        return property_error_value(obj, prop, value, errp, "%" PRId64 " to %" PRId64, min, max);
    }
    uint_store(obj, prop, type->bytes, (uint64_t)v);
    return TRUE;
}

static json_object *int_get(Object *obj, const Property *prop)
{
    if (int_type_of(prop)->bytes == 4) {
        return json_object_new_int64(*PROP_FIELD(obj, prop, int32_t));
    }
    return json_object_new_int64(*PROP_FIELD(obj, prop, int64_t));
}

static json_object *int_default_value(const Property *prop)
{
    return json_object_new_int64(prop->defval.i);
}

/* --- strings --- */

static gboolean string_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    const char *text = property_value_text(value);
    if (!text) {
        return property_error_value(obj, prop, value, errp, "a string");
    }
    char **field = PROP_FIELD(obj, prop, char *);
    g_free(*field);
    *field = g_strdup(text);
    return TRUE;
}

static json_object *string_get(Object *obj, const Property *prop)
{
    const char *text = *PROP_FIELD(obj, prop, char *);
    return json_object_new_string(text ? text : "");
}

static void string_set_default(Object *obj, const Property *prop)
{
    char **field = PROP_FIELD(obj, prop, char *);
    g_free(*field);
    *field = g_strdup(prop->defval.s);
}

static json_object *string_default_value(const Property *prop)
{
    return prop->defval.s ? json_object_new_string(prop->defval.s) : NULL;
}

static void string_release(Object *obj, const Property *prop)
{
    g_clear_pointer(PROP_FIELD(obj, prop, char *), g_free);
}

/* --- enumerations --- */

static const char *const on_off_auto_names[] = {"auto", "on", "off", NULL};

static const char *const *enum_names(const Property *prop)
{
    return prop->info->enum_values ? prop->info->enum_values : prop->arg;
}

static gboolean enum_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    const char *const *names = enum_names(prop);
    const char *text = property_value_text(value);
    for (int i = 0; text && names[i]; i++) {
        if (!strcmp(names[i], text)) {
            *PROP_FIELD(obj, prop, int) = i;
            return TRUE;
        }
    }
    g_autofree char *all = g_strjoinv(", ", (char **)names);
    return property_error_value(obj, prop, value, errp, "%s", all);
}

static json_object *enum_get(Object *obj, const Property *prop)
{
    return json_object_new_string(enum_names(prop)[*PROP_FIELD(obj, prop, int)]);
}

static void enum_set_default(Object *obj, const Property *prop)
{
    *PROP_FIELD(obj, prop, int) = (int)prop->defval.i;
}

static json_object *enum_default_value(const Property *prop)
{
    return json_object_new_string(enum_names(prop)[prop->defval.i]);
}

/* --- MAC addresses: uint8_t[6], all zero: none given --- */

/* Six pairs of hexadecimal digits, with ':' or '-' between. */
static bool mac_parse(const char *text, uint8_t mac[6])
{
    for (unsigned i = 0; i < 6; i++, text += 3) {
        if (!g_ascii_isxdigit(text[0]) || !g_ascii_isxdigit(text[1])) {
            return false;
        }
        mac[i] = (uint8_t)(g_ascii_xdigit_value(text[0]) << 4 | g_ascii_xdigit_value(text[1]));
        if (i == 5 ? text[2] != '\0' : text[2] != ':' && text[2] != '-') {
            return false;
        }
    }
    return true;
}

static gboolean mac_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    const char *text = property_value_text(value);
    uint8_t mac[6];
    if (!text || !mac_parse(text, mac)) {
        return property_error_value(obj, prop, value, errp, "six bytes as in 52:54:00:12:34:56");
    }
    memcpy(PROP_FIELD(obj, prop, uint8_t), mac, sizeof(mac));
    return TRUE;
}

static json_object *mac_get(Object *obj, const Property *prop)
{
    const uint8_t *mac = PROP_FIELD(obj, prop, uint8_t);
    char text[18];
    g_snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
               mac[4], mac[5]);
    return json_object_new_string(text);
}

/* --- links --- */

static gboolean link_set(Object *obj, const Property *prop, json_object *value, GError **errp)
{
    const char *type_name = prop->arg;
    const char *path = property_value_text(value);
    if (!path) {
        return property_error_value(obj, prop, value, errp, "id or path of an object of type %s",
                                    type_name);
    }
    Object **field = PROP_FIELD(obj, prop, Object *);
    if (!*path) {
        g_clear_object(field);
        return TRUE;
    }
    bool ambiguous = false;
    Object *target = qom_resolve_path(path, &ambiguous);
    if (ambiguous) {
        return error_set(errp, "Path '%s' does not uniquely identify an object", path);
    }
    if (!target) {
        return error_set_class(errp, ERROR_DEVICE_NOT_FOUND,
                               "Device '%s' not found (property '%s.%s' takes id or path of an "
                               "object of type %s)",
                               path, user_type_name(obj), prop->name, type_name);
    }
    GType type = qom_type_by_name(type_name);
    if (type == G_TYPE_INVALID || !g_type_is_a(G_OBJECT_TYPE(target), type)) {
        return property_error_value(obj, prop, value, errp,
                                    "an object of type %s, this one is of type %s", type_name,
                                    object_type_name(target));
    }
    g_set_object(field, target);
    return TRUE;
}

static json_object *link_get(Object *obj, const Property *prop)
{
    Object *target = *PROP_FIELD(obj, prop, Object *);
    g_autofree char *path = target ? object_canonical_path(target) : NULL;
    return json_object_new_string(path ? path : "");
}

static void link_release(Object *obj, const Property *prop)
{
    g_clear_object(PROP_FIELD(obj, prop, Object *));
}

static Object *link_target(Object *obj, const Property *prop)
{
    return *PROP_FIELD(obj, prop, Object *);
}

/* --- the infos --- */

#define UINT_INFO(n, t)                                                                            \
    const PropertyInfo prop_info_##n = {                                                           \
        .type = t,                                                                                 \
        .set = uint_set,                                                                           \
        .get = uint_get,                                                                           \
        .set_default = int_set_default,                                                            \
        .default_value = uint_default_value,                                                       \
    }
#define INT_INFO(n, t)                                                                             \
    const PropertyInfo prop_info_##n = {                                                           \
        .type = t,                                                                                 \
        .set = int_set,                                                                            \
        .get = int_get,                                                                            \
        .set_default = int_set_default,                                                            \
        .default_value = int_default_value,                                                        \
    }

UINT_INFO(uint8, "uint8");
UINT_INFO(uint16, "uint16");
UINT_INFO(uint32, "uint32");
UINT_INFO(uint64, "uint64");
UINT_INFO(size, "size");
UINT_INFO(size32, "size");
INT_INFO(int32, "int32");
INT_INFO(int64, "int64");

const PropertyInfo prop_info_bool = {
    .type = "bool",
    .set = bool_set,
    .get = bool_get,
    .set_default = bool_set_default,
    .default_value = bool_default_value,
};

const PropertyInfo prop_info_bit64 = {
    .type = "bool",
    .set = bit64_set,
    .get = bit64_get,
    .set_default = bit64_set_default,
    .default_value = bool_default_value,
};

const PropertyInfo prop_info_absent = {
    .type = "bool",
    .set = absent_set,
    .get = absent_get,
    .default_value = bool_default_value,
};

const PropertyInfo prop_info_string = {
    .type = "str",
    .set = string_set,
    .get = string_get,
    .set_default = string_set_default,
    .default_value = string_default_value,
    .release = string_release,
};

const PropertyInfo prop_info_on_off_auto = {
    .type = "OnOffAuto",
    .enum_values = on_off_auto_names,
    .set = enum_set,
    .get = enum_get,
    .set_default = enum_set_default,
    .default_value = enum_default_value,
};

const PropertyInfo prop_info_enum = {
    .type = "str",
    .set = enum_set,
    .get = enum_get,
    .set_default = enum_set_default,
    .default_value = enum_default_value,
};

const PropertyInfo prop_info_macaddr = {
    .type = "str",
    .set = mac_set,
    .get = mac_get,
};

const PropertyInfo prop_info_link = {
    .type = "link",
    .set = link_set,
    .get = link_get,
    .release = link_release,
    .link = link_target,
};
