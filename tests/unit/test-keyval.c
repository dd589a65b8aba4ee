/* key=value parsing, scalars. */
#include <string.h>

#include "util/error.h"
#include "util/json.h"
#include "util/keyval.h"

static const char *const list_keys[] = {"hostfwd", NULL};
static const KeyvalOptions flat = {
    .implied_key = "driver", .allow_flags = true, .flat = true, .list_keys = list_keys};
static const KeyvalOptions nested = {.implied_key = "type"};

static void check(const KeyvalOptions *opts, const char *text, const char *expected)
{
    GError *err = NULL;
    json_object *object = keyval_parse(text, opts, NULL, &err);

    g_assert_no_error(err);
    g_autofree char *out = json_to_string(object);
    g_autofree char *squeezed = g_strdup(out);
    char *to = squeezed;
    for (const char *p = out; *p; p++) {
        if (*p != ' ') {
            *to++ = *p;
        }
    }
    *to = '\0';
    g_assert_cmpstr(squeezed, ==, expected);
    json_object_put(object);
}

static void check_error(const KeyvalOptions *opts, const char *text, const char *message)
{
    GError *err = NULL;

    g_assert_null(keyval_parse(text, opts, NULL, &err));
    g_assert_nonnull(err);
    g_assert_nonnull(strstr(err->message, message));
    g_clear_error(&err);
}

static void test_flat(void)
{
    check(&flat, "virtio-net-pci,netdev=n0,addr=04.0",
          "{\"driver\":\"virtio-net-pci\",\"netdev\":\"n0\",\"addr\":\"04.0\"}");
    check(&flat, "x,size=256M,", "{\"driver\":\"x\",\"size\":\"256M\"}");
    check(&flat, "driver=x,a=1,a=2", "{\"driver\":\"x\",\"a\":\"2\"}");
    check(&flat, "x,server,nowait", "{\"driver\":\"x\",\"server\":\"on\",\"wait\":\"off\"}");
    check(&flat, "x,path=a,,b,,", "{\"driver\":\"x\",\"path\":\"a,b,\"}");
    check(&flat, "x,a.b=c,d=", "{\"driver\":\"x\",\"a.b\":\"c\",\"d\":\"\"}");
    check(&flat, "", "{}");
    check(&flat, "x,hostfwd=tcp::1-:2,hostfwd=udp::3-:4",
          "{\"driver\":\"x\",\"hostfwd\":[\"tcp::1-:2\",\"udp::3-:4\"]}");
    check_error(&flat, "x,=3", "before '=3'");
}

static void test_nested(void)
{
    check(&nested, "stream,id=s,addr.type=unix,addr.path=/x",
          "{\"type\":\"stream\",\"id\":\"s\",\"addr\":{\"type\":\"unix\",\"path\":\"/x\"}}");
    check(&nested, "x,l.0=a,l.1.k=b", "{\"type\":\"x\",\"l\":[\"a\",{\"k\":\"b\"}]}");
    check(&nested, "x,l.1=b,l.0=a", "{\"type\":\"x\",\"l\":[\"a\",\"b\"]}");
    check_error(&nested, "x,server", "Expected '=' after parameter 'server'");
    check_error(&nested, "x,a=1,a.b=2", "'a.*' used inconsistently");
    check_error(&nested, "x,a.b=2,a=1", "'a.*' used inconsistently");
    check_error(&nested, "x,a.0=2,a.b=1", "'a.*' used inconsistently");
    check_error(&nested, "x,a.0=2,a.2=1", "Parameter 'a.1' missing");
    check_error(&nested, "x,a..b=2", "Invalid parameter 'a..b'");
    check_error(&nested, "x,a.=2", "Invalid parameter 'a.'");
    check_error(&nested, "x,0=2", "Invalid parameter '0'");
}

static void test_help(void)
{
    bool help;
    json_object *object = keyval_parse("virtio-net-pci,help", &flat, &help, NULL);

    g_assert_true(help);
    g_assert_cmpstr(json_member_string(object, "driver"), ==, "virtio-net-pci");
    json_object_put(object);
    object = keyval_parse("?", &flat, &help, NULL);
    g_assert_true(help);
    g_assert_null(json_member(object, "driver"));
    json_object_put(object);
    object = keyval_parse("x,a=help", &flat, &help, NULL);
    g_assert_false(help);
    json_object_put(object);
}

static void test_json(void)
{
    check(&flat, "{\"driver\":\"x\",\"n\":3,\"b\":true}", "{\"driver\":\"x\",\"n\":3,\"b\":true}");
    check_error(&flat, "{\"driver\":", "");
}

static void test_scalars(void)
{
    GError *err = NULL;
    uint64_t u;
    int64_t i;
    bool b;

    g_assert_true(parse_bool("b", "yes", &b, NULL) && b);
    g_assert_true(parse_bool("b", "off", &b, NULL) && !b);
    g_assert_false(parse_bool("b", "1", &b, NULL));
    g_assert_true(parse_uint64("u", "0x10", 100, &u, NULL) && u == 16);
    g_assert_true(parse_uint64("u", "010", 100, &u, NULL) && u == 8);
    g_assert_true(parse_uint64("u", "18446744073709551615", UINT64_MAX, &u, NULL));
    g_assert_false(parse_uint64("u", "18446744073709551616", UINT64_MAX, &u, NULL));
    g_assert_false(parse_uint64("u", "101", 100, &u, NULL));
    g_assert_false(parse_uint64("u", "-1", UINT64_MAX, &u, NULL));
    g_assert_false(parse_uint64("u", "", 100, &u, NULL));
    g_assert_false(parse_uint64("u", " 1", 100, &u, NULL));
    g_assert_false(parse_uint64("u", "1x", 100, &u, NULL));
    g_assert_true(parse_int64("i", "-9223372036854775808", INT64_MIN, INT64_MAX, &i, NULL));
    g_assert_true(i == INT64_MIN);
    g_assert_false(parse_int64("i", "-9223372036854775809", INT64_MIN, INT64_MAX, &i, NULL));
    g_assert_false(parse_int64("i", "9223372036854775808", INT64_MIN, INT64_MAX, &i, NULL));
    g_assert_false(parse_int64("i", "-2", -1, 5, &i, &err));
    g_assert_cmpstr(err->message, ==, "Parameter 'i' expects a number from -1 to 5, not '-2'");
    g_clear_error(&err);
    g_assert_true(parse_size("s", "512", &u, NULL) && u == 512);
    g_assert_true(parse_size("s", "2k", &u, NULL) && u == 2048);
    g_assert_true(parse_size("s", "1.5G", &u, NULL) && u == UINT64_C(3) << 29);
    g_assert_true(parse_size("s", "0x100", &u, NULL) && u == 256);
    g_assert_true(parse_size("s", "15E", &u, NULL) && u == UINT64_C(15) << 60);
    g_assert_false(parse_size("s", "16E", &u, NULL));
    g_assert_false(parse_size("s", "1.5", &u, NULL));
    g_assert_false(parse_size("s", "1MB", &u, NULL));
    g_assert_false(parse_size("s", "-1", &u, NULL));
    g_assert_false(parse_size("s", "x", &u, NULL));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/keyval/flat", test_flat);
    g_test_add_func("/keyval/nested", test_nested);
    g_test_add_func("/keyval/help", test_help);
    g_test_add_func("/keyval/json", test_json);
    g_test_add_func("/keyval/scalars", test_scalars);
    return g_test_run();
}
