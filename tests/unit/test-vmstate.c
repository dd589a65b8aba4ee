/* Migration tables: what they write, byte by byte, what they read back, and what they refuse. */
#include <string.h>

#include "migration/stream.h"
#include "util/error.h"
#include "util/json.h"

typedef struct Item {
    uint16_t id;
    bool wide;
    uint32_t extra; /* only of wide ones */
} Item;

typedef struct State {
    uint8_t small;
    uint16_t medium;
    uint32_t count;
    uint32_t numbers[4];
    uint64_t large;
    int32_t negative;
    bool flag;
    uint8_t bytes[3];
    uint32_t length;
    uint8_t text[8];
    Item items[2];
    uint32_t newer;
    uint32_t fixed;
    uint32_t sub_a, sub_b, inner;
    bool has_a, has_b, want_a, want_b;
    uint32_t halves[2];
    const char *refuse;
} State;

static bool item_is_wide(const void *state)
{
    return ((const Item *)state)->wide;
}

static const VMStateDescription vmstate_item = {
    .name = "item",
    .version = 1,
    .minimum_version = 1,
    .fields =
        (const VMStateField[]){
            VMS_UINT16(Item, id, .max = 1000),
            VMS_BOOL(Item, wide),
            VMS_UINT32(Item, extra, .exists = item_is_wide),
            VMS_END,
        },
};

/* A view: the stream has a sum and a difference, the state two halves. */
typedef struct View {
    uint32_t sum, difference;
} View;

static void view_fill(void *state, void *parent)
{
    View *view = state;
    const State *s = parent;

    view->sum = s->halves[0] + s->halves[1];
    view->difference = s->halves[0] - s->halves[1];
}

static gboolean view_check(void *state, void *parent, GError **errp)
{
    const View *view = state;

    return view->difference <= view->sum ||
           error_set(errp, "difference %u > sum %u", view->difference, view->sum);
}

static void view_apply(void *state, void *parent)
{
    const View *view = state;
    State *s = parent;

    s->halves[0] = (view->sum + view->difference) / 2;
    s->halves[1] = view->sum - s->halves[0];
}

static const VMStateDescription vmstate_view = {
    .name = "view",
    .version = 1,
    .minimum_version = 1,
    .state_size = sizeof(View),
    .fill = view_fill,
    .check = view_check,
    .apply = view_apply,
    .fields =
        (const VMStateField[]){
            VMS_UINT32(View, sum),
            VMS_UINT32(View, difference),
            VMS_END,
        },
};

static bool want_a(const void *state)
{
    return ((const State *)state)->want_a;
}
static bool want_b(const void *state)
{
    return ((const State *)state)->want_b;
}
static void loaded_a(void *state)
{
    ((State *)state)->has_a = true;
}
static void loaded_b(void *state)
{
    ((State *)state)->has_b = true;
}

static const VMStateDescription sub_inner = {
    .name = "test/b/inner",
    .version = 1,
    .minimum_version = 1,
    .fields = (const VMStateField[]){VMS_UINT32(State, inner), VMS_END},
};
static const VMStateDescription sub_a = {
    .name = "test/a",
    .version = 2,
    .minimum_version = 1,
    .needed = want_a,
    .loaded = loaded_a,
    .fields = (const VMStateField[]){VMS_UINT32(State, sub_a), VMS_END},
};
static const VMStateDescription sub_b = {
    .name = "test/b",
    .version = 1,
    .minimum_version = 1,
    .needed = want_b,
    .loaded = loaded_b,
    .fields = (const VMStateField[]){VMS_UINT32(State, sub_b), VMS_END},
    .subsections = (const VMStateDescription *const[]){&sub_inner, NULL},
};

static void state_fill(void *state, void *parent)
{
    memcpy(state, parent, sizeof(State));
}

static void state_prepare(void *state, void *parent)
{
    ((State *)state)->fixed = ((State *)parent)->fixed;
}

static gboolean state_check(void *state, void *parent, GError **errp)
{
    const State *dev = parent;

    return !dev->refuse || error_set(errp, "%s", dev->refuse);
}

static const VMStateDescription vmstate_test = {
    .name = "test",
    .version = 3,
    .minimum_version = 2,
    .state_size = sizeof(State),
    .fill = state_fill,
    .prepare = state_prepare,
    .check = state_check,
    .apply = (void (*)(void *, void *))NULL,
    .fields =
        (const VMStateField[]){
            VMS_UINT8(State, small),
            VMS_UINT16(State, medium),
            VMS_UINT32(State, count),
            VMS_ARRAY(State, numbers, uint32, VMS_COUNTED(State, count), .limit = 6),
            VMS_UINT64(State, large),
            VMS_INT32(State, negative),
            VMS_BOOL(State, flag),
            VMS_BUFFER(State, bytes),
            VMS_UINT32(State, length),
            VMS_ARRAY(State, text, buffer, VMS_COUNTED(State, length)),
            VMS_STRUCT_ARRAY(State, items, vmstate_item),
            VMS_UNUSED(2),
            VMS_UINT32(State, newer, .version = 3),
            VMS_EQUAL(State, fixed, uint32),
            VMS_PART("view", vmstate_view),
            VMS_END,
        },
    .subsections = (const VMStateDescription *const[]){&sub_a, &sub_b, NULL},
};

static State example(void)
{
    return (State){
        .small = 0x12,
        .medium = 0x3456,
        .count = 2,
        .numbers = {1, 0xdeadbeef},
        .large = 0x0123456789abcdef,
        .negative = -2,
        .flag = true,
        .bytes = {9, 8, 7},
        .length = 5,
        .text = "hello",
        .items = {{7, false, 0}, {8, true, 0x55}},
        .newer = 0x77,
        .fixed = 0x99,
        .halves = {30, 12},
        .want_a = true,
        .want_b = true,
        .sub_a = 0xaa,
        .sub_b = 0xbb,
        .inner = 0xcc,
    };
}

static const uint8_t expected[] = {
    0x12, 0x34, 0x56, 0,    0,    0,    2,    0,    0,    0,    1,    0xde, 0xad, 0xbe, 0xef, 0x01,
    0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xff, 0xff, 0xff, 0xfe, 1,    9,    8,    7,    0,
    0,    0,    5,    'h',  'e',  'l',  'l',  'o',  0,    7,    0,    0,    8,    1,    0,    0,
    0,    0x55, 0,    0,    0,    0,    0,    0x77, 0,    0,    0,    0x99, 0,    0,    0,    42,
    0,    0,    0,    18,   5,    6,    't',  'e',  's',  't',  '/',  'a',  0,    0,    0,    2,
    0,    0,    0,    0xaa, 5,    6,    't',  'e',  's',  't',  '/',  'b',  0,    0,    0,    1,
    0,    0,    0,    0xbb, 5,    12,   't',  'e',  's',  't',  '/',  'b',  '/',  'i',  'n',  'n',
    'e',  'r',  0,    0,    0,    1,    0,    0,    0,    0xcc,
};
enum {
    AT_COUNT = 3,
    AT_FLAG = 27,
    AT_LENGTH = 31,
    AT_ITEMS = 40,
    AT_NEWER = 52,
    AT_FIXED = 56,
    AT_VIEW = 60,
    AT_SUB_A = 68,
    AT_SUB_B = 84,
    AT_INNER = 100,
};

static State loaded_state;

static void remember(void *state, void *parent)
{
    loaded_state = *(State *)state;
}

/* Loads and finishes; the message, or NULL. */
static char *load(const uint8_t *data, size_t size, int version, const char *refuse)
{
    VMStateDescription root = vmstate_test;
    VmReader *r = vm_reader_new_bytes(data, size);
    State dev = {.fixed = 0x99, .refuse = refuse};
    GError *err = NULL;
    char *message = NULL;

    root.apply = remember;
    memset(&loaded_state, 0, sizeof(loaded_state));
    r->section = "dev";
    VMStateLoaded *loaded = vmstate_load(r, &root, version, &dev, &err);
    if (loaded && vmstate_check(loaded, &err)) {
        vmstate_apply(loaded);
        if (vm_reader_peek(r, 1)) {
            message = g_strdup("left over");
        }
    }
    vmstate_free(loaded);
    vm_reader_free(r);
    if (err) {
        message = g_strdup(err->message);
        g_error_free(err);
    }
    return message;
}

static void test_save(void)
{
    State s = example();
    GByteArray *out = g_byte_array_new();

    vmstate_save(out, &vmstate_test, &s, NULL);
    g_assert_cmpmem(out->data, out->len, expected, sizeof(expected));
    g_byte_array_unref(out);
}

static void test_load(void)
{
    State s = example();

    g_assert_null(load(expected, sizeof(expected), 3, NULL));
    g_assert_true(loaded_state.has_a && loaded_state.has_b);
    s.has_a = s.has_b = true;
    s.want_a = s.want_b = false;
    g_assert_cmpint(loaded_state.negative, ==, -2);
    g_assert_cmpuint(loaded_state.halves[0], ==, 30);
    g_assert_cmpuint(loaded_state.halves[1], ==, 12);
    g_assert_cmpmem(&loaded_state, sizeof(s), &s, sizeof(s));
}

static void test_older_version(void)
{
    g_autofree uint8_t *data = g_memdup2(expected, sizeof(expected));

    memmove(data + AT_NEWER, data + AT_NEWER + 4, sizeof(expected) - AT_NEWER - 4);
    g_assert_null(load(data, sizeof(expected) - 4, 2, NULL));
    g_assert_cmpuint(loaded_state.newer, ==, 0);
    g_assert_cmpuint(loaded_state.sub_a, ==, 0xaa);
}

static void test_subsections_in_any_order(void)
{
    g_autofree uint8_t *data = g_memdup2(expected, sizeof(expected));
    size_t len_a = AT_SUB_B - AT_SUB_A, len_b = sizeof(expected) - AT_SUB_B;

    memcpy(data + AT_SUB_A, expected + AT_SUB_B, len_b);
    memcpy(data + AT_SUB_A + len_b, expected + AT_SUB_A, len_a);
    g_assert_null(load(data, sizeof(expected), 3, NULL));
    g_assert_true(loaded_state.has_a && loaded_state.has_b);
    g_assert_null(load(expected, AT_SUB_A, 3, NULL));
    g_assert_false(loaded_state.has_a || loaded_state.has_b);
}

/* Every prefix is refused, except where a subsection could have been missing. */
static void test_truncation_at_every_byte(void)
{
    for (size_t size = 0; size < sizeof(expected); size++) {
        g_autofree char *message = load(expected, size, 3, NULL);

        if (size == AT_SUB_A || size == AT_SUB_B || size == AT_INNER) {
            g_assert_null(message);
        } else if (size > AT_SUB_A) {
            /* Too short for a subsection's name: what is left over is the footer's to refuse. */
            g_assert_nonnull(message);
            g_assert_true(strstr(message, "left over") || strstr(message, "cut off"));
        } else {
            g_assert_nonnull(message);
            g_assert_nonnull(strstr(message, "dev: "));
            g_assert_nonnull(strstr(message, "cut off"));
        }
    }
}

typedef struct Bad {
    size_t at;
    uint8_t bytes[4];
    unsigned size;
    const char *message;
} Bad;

static void test_bad_values(void)
{
    static const Bad table[] = {
        {AT_COUNT, {0, 0, 0, 7}, 4, "dev: count 7 > 4"},
        {AT_COUNT, {0xff, 0xff, 0xff, 0xff}, 4, "dev: count 4294967295 > 4"},
        {AT_FLAG, {2}, 1, "dev: flag 2 > 1"},
        {AT_LENGTH, {0, 0, 0, 9}, 4, "dev: length 9 > 8"},
        {AT_ITEMS + 3, {0x03, 0xe9}, 2, "dev: items[1].id 1001 > 1000"},
        {AT_ITEMS + 2, {0xff}, 1, "dev: items[0].wide 255 > 1"},
        {AT_FIXED, {0, 0, 0, 1}, 4, "dev: fixed 1 is 153 here, they must be equal"},
        {AT_VIEW, {0, 0, 0, 1}, 4, "dev: difference 18 > sum 1"},
        {AT_SUB_A + 7, {'x'}, 1, "dev: has the unknown subsection 'test/x'"},
        {AT_SUB_A + 7, {'b'}, 1, "dev: has subsection 'test/b' twice"},
        {AT_SUB_A + 8, {0, 0, 0, 3}, 4, "dev: subsection test/a has version 3, 1 to 2 are known"},
        {AT_SUB_A + 8, {0, 0, 0, 0}, 4, "dev: subsection test/a has version 0, 1 to 2 are known"},
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(table); i++) {
        g_autofree uint8_t *data = g_memdup2(expected, sizeof(expected));

        memcpy(data + table[i].at, table[i].bytes, table[i].size);
        g_autofree char *message = load(data, sizeof(expected), 3, NULL);
        if (table[i].bytes[0] == 'b') {
            /* "test/b" now holds what is a's; its own follows, for the second time */
            data[AT_SUB_A + 11] = 1;
            g_free(message);
            message = load(data, sizeof(expected), 3, NULL);
        }
        g_assert_cmpstr(message, ==, table[i].message);
    }
}

static void test_more_than_fits_is_skipped(void)
{
    g_autoptr(GByteArray) data = g_byte_array_new();

    g_byte_array_append(data, expected, sizeof(expected));
    data->data[AT_COUNT + 3] = 6;
    for (unsigned i = 0; i < 16; i++) {
        g_byte_array_append(data, (const uint8_t *)"\0", 1);
    }
    memmove(data->data + AT_COUNT + 12 + 16, data->data + AT_COUNT + 12,
            sizeof(expected) - AT_COUNT - 12);
    g_assert_null(load(data->data, data->len, 3, NULL));
    g_assert_cmpuint(loaded_state.count, ==, 6);
    g_assert_cmpuint(loaded_state.fixed, ==, 0x99);
}

static void test_versions(void)
{
    g_autofree char *old = load(expected, sizeof(expected), 1, NULL);
    g_autofree char *new = load(expected, sizeof(expected), 4, NULL);

    g_assert_cmpstr(old, ==, "dev: has version 1, 2 to 3 are known");
    g_assert_cmpstr(new, ==, "dev: has version 4, 2 to 3 are known");
}

static void test_refused_by_check(void)
{
    g_autofree char *message = load(expected, sizeof(expected), 3, "has other hardware");

    g_assert_cmpstr(message, ==, "dev: has other hardware");
    g_assert_cmpuint(loaded_state.large, ==, 0);
}

static void test_description(void)
{
    State s = example();
    GByteArray *out = g_byte_array_new();
    json_object *d = json_object_new_object();

    vmstate_save(out, &vmstate_test, &s, d);
    g_byte_array_unref(out);
    g_assert_cmpstr(json_member_string(d, "vmsd_name"), ==, "test");
    json_object *fields = json_member(d, "fields");
    json_object *numbers = json_object_array_get_idx(fields, 3);
    g_autofree char *text = json_to_string(numbers);
    g_assert_cmpstr(text, ==,
                    "{\"name\": \"numbers\", \"type\": \"uint32\", \"size\": 4, \"array_len\": 2}");
    g_assert_cmpuint(json_object_array_length(json_member(d, "subsections")), ==, 2);
    json_object_put(d);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vmstate/save-is-these-bytes", test_save);
    g_test_add_func("/vmstate/load-gives-back-what-was-saved", test_load);
    g_test_add_func("/vmstate/older-version-lacks-newer-field", test_older_version);
    g_test_add_func("/vmstate/subsections-in-any-order", test_subsections_in_any_order);
    g_test_add_func("/vmstate/truncation-at-every-byte", test_truncation_at_every_byte);
    g_test_add_func("/vmstate/bad-values-are-named", test_bad_values);
    g_test_add_func("/vmstate/more-than-fits-is-skipped", test_more_than_fits_is_skipped);
    g_test_add_func("/vmstate/other-versions-are-refused", test_versions);
    g_test_add_func("/vmstate/check-refuses-before-anything-changes", test_refused_by_check);
    g_test_add_func("/vmstate/description", test_description);
    return g_test_run();
}
