/* Generated code: parsing with all checks, building, freeing, marshalling, events, introspection.
 */
#include <glib.h>
#include <string.h>

#include "qapi/monitor.h"
#include "tests/unit/schema/qapi-commands.h"
#include "tests/unit/schema/qapi-events.h"
#include "tests/unit/schema/qapi-introspect.h"
#include "tests/unit/schema/qapi-visit.h"
#include "util/json.h"

static json_object *json(const char *text)
{
    GError *err = NULL;
    json_object *value = json_parse(text, &err);

    g_assert_no_error(err);
    return value;
}

static void expect_json(json_object *value, const char *text)
{
    char *got = json_to_string(value);

    g_assert_cmpstr(got, ==, text);
    g_free(got);
    json_object_put(value);
}

/* What one type's parser says to @text: the error, or the value built again. */
static char *round_trip(const char *type, const char *text, QapiInput mode)
{
    json_object *in = json(text), *out = NULL;
    GError *err = NULL;
    char *result;

    if (strcmp(type, "union") == 0) {
        g_autoptr(TestUnion) u = qapi_parse_TestUnion(in, mode, &err);
        out = u ? qapi_build_TestUnion(u) : NULL;
    } else {
        g_autoptr(TestAll) all = qapi_parse_TestAll(in, mode, &err);
        out = all ? qapi_build_TestAll(all) : NULL;
    }
    g_assert_true(!out == !!err);
    result = out ? json_to_string(out) : g_strdup_printf("!%s", err->message);
    g_clear_error(&err);
    json_object_put(in);
    json_object_put(out);
    return result;
}

typedef struct Case {
    const char *type, *in, *out; /* @out NULL: the same as @in; "!…": an error */
} Case;

static const Case json_cases[] = {
    {"all", "{\"name\": \"x\"}", NULL},
    {"all",
     "{\"name\": \"x\", \"i8\": -128, \"u16\": 65535, \"i64\": -9223372036854775808, "
     "\"u64\": 18446744073709551615, \"size\": 4096, \"flag\": false, \"num\": 1.5, "
     "\"kind\": \"b-c\", \"list\": [\"a\", \"b\"], \"numbers\": [0, 255], \"inner\": {\"name\": "
     "\"y\"}, \"inners\": [{\"name\": \"z\"}], \"lists\": [[\"p\"], []], \"free\": "
     "{\"any\": [1, null]}, \"alt\": \"text\"}",
     NULL},
    {"all", "{\"name\": \"x\", \"num\": 3}", NULL},
    {"all", "{\"name\": \"x\", \"alt\": null}", NULL},
    {"all", "{\"name\": \"x\", \"alt\": 7}", NULL},
    {"all", "{\"name\": \"x\", \"alt\": {\"name\": \"in\"}}", NULL},
    {"all", "{\"name\": \"x\", \"list\": []}", "{\"name\": \"x\"}"},
    {"all", "{}", "!Parameter 'name' is missing"},
    {"all", "[]", "!Invalid parameter type for '', expected: object"},
    {"all", "{\"name\": 1}", "!Invalid parameter type for 'name', expected: string"},
    {"all", "{\"name\": \"a\\u0000b\"}", "!Parameter 'name' must not hold a NUL character"},
    {"all", "{\"name\": \"x\", \"nope\": 1}", "!Parameter 'nope' is unexpected"},
    {"all", "{\"name\": \"x\", \"i8\": 128}", "!Parameter 'i8' expects int8"},
    {"all", "{\"name\": \"x\", \"i8\": -129}", "!Parameter 'i8' expects int8"},
    {"all", "{\"name\": \"x\", \"u16\": 65536}", "!Parameter 'u16' expects uint16"},
    {"all", "{\"name\": \"x\", \"u16\": -1}", "!Parameter 'u16' expects uint16"},
    {"all", "{\"name\": \"x\", \"i64\": 9223372036854775808}", "!Parameter 'i64' expects int"},
    {"all", "{\"name\": \"x\", \"u64\": 18446744073709551616}",
     "!Invalid parameter type for 'u64', expected: integer"},
    {"all", "{\"name\": \"x\", \"i64\": 1.5}",
     "!Invalid parameter type for 'i64', expected: integer"},
    {"all", "{\"name\": \"x\", \"i64\": \"1\"}",
     "!Invalid parameter type for 'i64', expected: integer"},
    {"all", "{\"name\": \"x\", \"flag\": 1}",
     "!Invalid parameter type for 'flag', expected: boolean"},
    {"all", "{\"name\": \"x\", \"flag\": \"on\"}",
     "!Invalid parameter type for 'flag', expected: boolean"},
    {"all", "{\"name\": \"x\", \"num\": \"1\"}",
     "!Invalid parameter type for 'num', expected: number"},
    {"all", "{\"name\": \"x\", \"kind\": \"z\"}",
     "!Parameter 'kind' does not accept value 'z', allowed: a, b-c, default"},
    {"all", "{\"name\": \"x\", \"list\": \"a\"}",
     "!Invalid parameter type for 'list', expected: array"},
    {"all", "{\"name\": \"x\", \"list\": [\"a\", 2]}",
     "!Invalid parameter type for 'list[1]', expected: string"},
    {"all", "{\"name\": \"x\", \"inner\": {}}", "!Parameter 'inner.name' is missing"},
    {"all", "{\"name\": \"x\", \"inner\": {\"name\": \"a\", \"b\": 1}}",
     "!Parameter 'inner.b' is unexpected"},
    {"all", "{\"name\": \"x\", \"inners\": [{\"name\": \"a\"}, {\"name\": []}]}",
     "!Invalid parameter type for 'inners[1].name', expected: string"},
    {"all", "{\"name\": \"x\", \"lists\": [[\"a\"], [1]]}",
     "!Invalid parameter type for 'lists[1][0]', expected: string"},
    {"all", "{\"name\": \"x\", \"alt\": []}",
     "!Invalid parameter type for 'alt', expected: s or n or i or o"},
    {"all", "{\"name\": \"x\", \"alt\": {\"nam\": 1}}", "!Parameter 'alt.name' is missing"},
    {"union", "{\"id\": \"u\", \"kind\": \"a\", \"x\": 5}", NULL},
    {"union", "{\"id\": \"u\", \"kind\": \"a\", \"x\": 5, \"text\": \"t\"}", NULL},
    {"union", "{\"id\": \"u\", \"kind\": \"b-c\"}", NULL},
    {"union", "{\"id\": \"u\", \"kind\": \"default\", \"name\": \"n\"}", NULL},
    {"union", "{\"id\": \"u\", \"x\": 5}", "!Parameter 'kind' is missing"},
    {"union", "{\"id\": \"u\", \"kind\": \"a\"}", "!Parameter 'x' is missing"},
    {"union", "{\"id\": \"u\", \"kind\": \"b-c\", \"x\": 1}", "!Parameter 'x' is unexpected"},
    {"union", "{\"id\": \"u\", \"kind\": \"a\", \"x\": 1, \"name\": \"n\"}",
     "!Parameter 'name' is unexpected"},
    {"union", "{\"id\": \"u\", \"kind\": \"a\", \"text\": \"t\", \"x\": null}",
     "!Invalid parameter type for 'x', expected: integer"},
};

static const Case keyval_cases[] = {
    {"all",
     "{\"name\": \"x\", \"i8\": \"-0x10\", \"u16\": \"0x10\", \"i64\": \"010\", \"size\": \"4k\", "
     "\"flag\": \"off\", \"num\": \"1.5\", \"kind\": \"a\", \"list\": [\"1\"], \"numbers\": "
     "[\"7\"], \"inner\": {\"name\": \"y\"}}",
     "{\"name\": \"x\", \"i8\": -16, \"u16\": 16, \"i64\": 8, \"size\": 4096, \"flag\": false, "
     "\"num\": 1.5, "
     "\"kind\": \"a\", \"list\": [\"1\"], \"numbers\": [7], \"inner\": {\"name\": \"y\"}}"},
    {"all", "{\"name\": \"x\", \"u16\": 5, \"flag\": true}", NULL},
    {"all", "{\"name\": \"x\", \"num\": \"abc\"}",
     "!Parameter 'num' does not accept value 'abc', allowed: a number"},
    {"all", "{\"name\": \"x\", \"inner.name\": \"y\"}", "!Parameter 'inner.name' is unexpected"},
    {"all", "{\"name\": \"x\", \"inners\": [{\"name\": \"a\"}, {}]}",
     "!Parameter 'inners.1.name' is missing"},
    {"union", "{\"id\": \"u\", \"kind\": \"a\", \"x\": \"7\"}",
     "{\"id\": \"u\", \"kind\": \"a\", \"x\": 7}"},
};

static void run_cases(const Case *cases, size_t count, QapiInput mode)
{
    for (size_t i = 0; i < count; i++) {
        char *got = round_trip(cases[i].type, cases[i].in, mode);

        g_assert_cmpstr(got, ==, cases[i].out ? cases[i].out : cases[i].in);
        g_free(got);
    }
}

static void test_json(void)
{
    run_cases(json_cases, G_N_ELEMENTS(json_cases), QAPI_INPUT_JSON);
}

static void test_keyval(void)
{
    static const char *const refused[] = {
        "{\"name\": \"x\", \"u16\": \"65536\"}", "{\"name\": \"x\", \"flag\": \"1\"}",
        "{\"name\": \"x\", \"i8\": \"\"}",       "{\"name\": \"x\", \"size\": \"4z\"}",
        "{\"name\": \"x\", \"i64\": \"1x\"}",
    };

    run_cases(keyval_cases, G_N_ELEMENTS(keyval_cases), QAPI_INPUT_KEYVAL);
    for (size_t i = 0; i < G_N_ELEMENTS(refused); i++) {
        char *got = round_trip("all", refused[i], QAPI_INPUT_KEYVAL);

        g_assert_cmpint(got[0], ==, '!');
        g_free(got);
    }
}

static void test_lists(void)
{
    TestBaseList *list = NULL, **tail = &list;
    GError *err = NULL;
    json_object *in = json("[{\"name\": \"1\"}, {}]");

    for (int i = 0; i < 3; i++) {
        TestBase *base = g_new0(TestBase, 1);
        base->name = g_strdup_printf("n%d", i);
        QAPI_LIST_APPEND(tail, base);
    }
    expect_json(qapi_build_TestBaseList(list),
                "[{\"name\": \"n0\"}, {\"name\": \"n1\"}, {\"name\": \"n2\"}]");
    qapi_free_TestBaseList(list);
    expect_json(qapi_build_TestBaseList(NULL), "[]");
    g_assert_null(qapi_parse_TestBaseList(in, QAPI_INPUT_JSON, &err));
    g_assert_cmpstr(err->message, ==, "Parameter '[1].name' is missing");
    g_clear_error(&err);
    json_object_put(in);
}

static void test_enum(void)
{
    g_assert_cmpint(TEST_KIND__MAX, ==, 3);
    g_assert_cmpstr(TestKind_str(TEST_KIND_B_C), ==, "b-c");
    g_assert_null(TestKind_names[TEST_KIND__MAX]);
    g_assert_cmpint(qapi_enum_find(TestKind_names, "default"), ==, TEST_KIND_DEFAULT);
    g_assert_cmpint(qapi_enum_find(TestKind_names, "nope"), ==, -1);
}

/* ---- commands ---- */

static unsigned nothing_runs;

TestUnionList *qmp_test_command(const char *name, bool has_count, int64_t count, TestUnion *union_,
                                GError **errp)
{
    TestUnionList *list = NULL;

    if (strcmp(name, "fail") == 0) {
        g_set_error(errp, g_quark_from_string("test"), 1, "no luck");
        return NULL;
    }
    for (int64_t i = 0; i < (has_count ? count : 1); i++) {
        TestUnion *u = g_new0(TestUnion, 1);

        u->id = g_strdup(union_ ? union_->id : name);
        u->kind = TEST_KIND_A;
        u->u.a.x = union_ && union_->kind == TEST_KIND_A ? union_->u.a.x : 1;
        QAPI_LIST_PREPEND(list, u);
    }
    return list;
}

int64_t qmp_test_boxed(TestAll *arg, GError **errp)
{
    (void)errp;
    return strlen(arg->name) + (arg->has_u16 ? arg->u16 : 0);
}

void qmp_test_nothing(GError **errp)
{
    (void)errp;
    nothing_runs++;
}

void qmp_test_free(json_object *args, json_object **ret, GError **errp)
{
    (void)errp;
    *ret = json_object_get(args);
}

static const QmpCommand *command(const char *name)
{
    for (const QmpCommand *c = qmp_commands; c->name; c++) {
        if (strcmp(c->name, name) == 0) {
            return c;
        }
    }
    g_assert_not_reached();
}

static void call(const char *name, const char *args, const char *answer)
{
    json_object *in = json(args), *ret = NULL;
    GError *err = NULL;

    command(name)->marshal(in, &ret, &err);
    json_object_put(in);
    if (err) {
        char *text = g_strdup_printf("!%s", err->message);

        g_assert_null(ret);
        g_assert_cmpstr(text, ==, answer);
        g_free(text);
        g_clear_error(&err);
    } else if (!ret) {
        g_assert_null(answer);
    } else {
        expect_json(ret, answer);
    }
}

static void test_commands(void)
{
    for (const QmpCommand *c = qmp_commands; c[1].name; c++) {
        g_assert_cmpstr(c[0].name, <, c[1].name);
    }
    call(
        "test-command", "{\"name\": \"n\", \"count\": 2}",
        "[{\"id\": \"n\", \"kind\": \"a\", \"x\": 1}, {\"id\": \"n\", \"kind\": \"a\", \"x\": 1}]");
    call("test-command", "{\"name\": \"n\", \"union\": {\"id\": \"i\", \"kind\": \"a\", \"x\": 9}}",
         "[{\"id\": \"i\", \"kind\": \"a\", \"x\": 9}]");
    call("test-command", "{\"name\": \"n\", \"count\": 0}", "[]");
    call("test-command", "{\"name\": \"fail\"}", "!no luck");
    call("test-command", "{}", "!Parameter 'name' is missing");
    call("test-command", "{\"name\": \"n\", \"union\": {\"id\": \"i\", \"kind\": \"x\"}}",
         "!Parameter 'union.kind' does not accept value 'x', allowed: a, b-c, default");
    call("test-boxed", "{\"name\": \"four\", \"u16\": 3}", "7");
    call("test-boxed", "{\"name\": \"four\", \"u17\": 3}", "!Parameter 'u17' is unexpected");
    call("test-nothing", "{}", NULL);
    call("test-nothing", "{\"x\": 1}", "!Parameter 'x' is unexpected");
    call("test-free", "{\"x\": 1}", "{\"x\": 1}");
    g_assert_cmpuint(nothing_runs, ==, 1);
    g_assert_cmpuint(command("test-boxed")->flags, ==, QMP_ALLOW_OOB);
    g_assert_cmpuint(command("test-nothing")->flags, ==, QMP_NO_SUCCESS_RESPONSE);
}

/* ---- events ---- */

static void event_seen(void *opaque, const char *name, json_object *event)
{
    GString *seen = opaque;
    char *data = json_to_string(json_member(event, "data"));
    json_object *timestamp = json_member(event, "timestamp");

    g_assert_cmpstr(json_member_string(event, "event"), ==, name);
    g_assert_cmpint(json_object_get_int64(json_member(timestamp, "seconds")), >, 0);
    g_assert_nonnull(json_member(timestamp, "microseconds"));
    g_string_append_printf(seen, "%s %s\n", name, data);
    g_free(data);
}

static void test_events(void)
{
    GString *seen = g_string_new(NULL);
    strList one = {.value = (char *)"a"};

    qapi_event_send_test_empty(); /* nobody listens */
    qmp_event_listen(event_seen, seen);
    qapi_event_send_test_event("n", true, 5, &one);
    qapi_event_send_test_event(NULL, false, 5, NULL);
    qapi_event_send_test_empty();
    qmp_event_unlisten(event_seen, seen);
    qapi_event_send_test_empty();
    g_assert_cmpstr(seen->str, ==,
                    "TEST_EVENT {\"name\": \"n\", \"value\": 5, \"names\": [\"a\"]}\n"
                    "TEST_EVENT {\"names\": []}\nTEST_EMPTY null\n");
    g_string_free(seen, TRUE);
    g_assert_cmpstr(qapi_event_names[0], ==, "TEST_EMPTY");
    g_assert_cmpstr(qapi_event_names[1], ==, "TEST_EVENT");
    g_assert_null(qapi_event_names[2]);
}

static void test_introspection(void)
{
    json_object *schema = json(qapi_schema_json);
    unsigned commands = 0;

    for (size_t i = 0; i < json_object_array_length(schema); i++) {
        json_object *info = json_object_array_get_idx(schema, i);

        g_assert_nonnull(json_member_string(info, "name"));
        commands += strcmp(json_member_string(info, "meta-type"), "command") == 0;
    }
    g_assert_cmpuint(commands, ==, 4);
    json_object_put(schema);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qapi/json/types-are-checked", test_json);
    g_test_add_func("/qapi/keyval/strings-are-converted", test_keyval);
    g_test_add_func("/qapi/lists", test_lists);
    g_test_add_func("/qapi/enumerations", test_enum);
    g_test_add_func("/qapi/commands/arguments-are-checked", test_commands);
    g_test_add_func("/qapi/events/reach-listeners", test_events);
    g_test_add_func("/qapi/introspection/is-complete", test_introspection);
    return g_test_run();
}
