/* JSON framer: what is a value, what is an error, where it resynchronises; every split position. */
#include <glib.h>
#include <string.h>

#include "util/json.h"

/* Everything the framer said, one line each: the value, or "!" and the error. */
typedef struct Seen {
    GString *text;
    unsigned values, errors;
} Seen;

static void seen(void *opaque, json_object *value, const GError *err)
{
    Seen *s = opaque;
    char *text = err ? g_strdup_printf("!%s", err->message) : json_to_string(value);

    g_assert_true(g_utf8_validate(text, -1, NULL));
    g_string_append_printf(s->text, "%s\n", text);
    g_free(text);
    if (err) {
        s->errors++;
    } else {
        s->values++;
    }
}

/* Feeds @size bytes cut at @cut (0: whole; SIZE_MAX: byte by byte). */
static char *feed(const char *data, size_t size, size_t cut, Seen *counts)
{
    Seen s = {.text = g_string_new(NULL)};
    JsonFramer *framer = json_framer_new(seen, &s);

    if (cut == SIZE_MAX) {
        for (size_t i = 0; i < size; i++) {
            json_framer_feed(framer, data + i, 1);
        }
    } else {
        json_framer_feed(framer, data, cut);
        json_framer_feed(framer, data + cut, size - cut);
    }
    json_framer_flush(framer);
    json_framer_free(framer);
    if (counts) {
        *counts = s;
    }
    return g_string_free(s.text, FALSE);
}

static void expect_all_splits(const char *data, size_t size, const char *expected)
{
    for (size_t cut = 0; cut <= size + 1; cut++) {
        char *got = feed(data, size, cut > size ? SIZE_MAX : cut, NULL);

        if (expected) {
            g_assert_cmpstr(got, ==, expected);
        }
        g_free(got);
    }
}

#define E "!JSON parse error, "

static const struct {
    const char *in, *out;
} cases[] = {
    /* values */
    {"{}", "{}\n"},
    {" { 'a' : [ 1 , \"x\" , true , null ] } \r\n[]", "{\"a\": [1, \"x\", true, null]}\n[]\n"},
    {"{}{}[][]", "{}\n{}\n[]\n[]\n"},
    {"5 ", "5\n"},
    {"5", "5\n"},
    {"true,", "true\n" E "expecting value\n"},
    {"null false", "null\nfalse\n"},
    {"\"a\"'b'", "\"a\"\n\"b\"\n"},
    {"-0 -12 0.5 1e3 1E+2 2.5e-1", "0\n-12\n0.5\n1000\n100\n0.25\n"},
    {"9223372036854775807 -9223372036854775808 9223372036854775808",
     "9223372036854775807\n-9223372036854775808\n9223372036854775808\n"},
    {"18446744073709551615 18446744073709551616", "18446744073709551615\n1.8446744073709552e+19\n"},
    {"-9223372036854775809", "-9.2233720368547758e+18\n"},
    {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\'\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t'\"\n"},
    {"'it\"s'", "\"it\\\"s\"\n"},
    {"'it\\'s'", "\"it's\"\n"},
    {"\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"", "\"A\\u00E9\\u20AC\\uD83D\\uDE00\"\n"},
    {"\"\303\251\342\202\254\360\237\230\200\"", "\"\\u00E9\\u20AC\\uD83D\\uDE00\"\n"},
    {"\"a\\u0000b\"", "\"a\\u0000b\"\n"},
    {"\"\177\"", "\"\\u007F\"\n"},
    {"{\"a\":{\"a\":{\"a\":1}}}", "{\"a\": {\"a\": {\"a\": 1}}}\n"},
    /* grammar: one error a value, told when the brackets balance */
    {"}}}", E "expecting value\n" E "expecting value\n" E "expecting value\n"},
    {"[1,2,]", E "expecting value\n"},
    {"[1,2,] {}", E "expecting value\n{}\n"},
    {"[,]", E "expecting value\n"},
    {"[1 2]", E "expecting ',' or the closing bracket\n"},
    {"{1:2}", E "expecting a string as key or '}'\n"},
    {"{\"a\":1,}", E "expecting a string as key\n"},
    {"{\"a\" 1}", E "expecting ':' after key\n"},
    {"{\"a\":}", E "expecting value\n"},
    {"{\"a\":1 \"b\":2}", E "expecting ',' or the closing bracket\n"},
    {"{\"a\":1,\"a\":2}{}", E "duplicate key\n{}\n"},
    {"{\"a\\u0000\":1}", E "NUL character in a key\n"},
    {"[{]}", E "expecting a string as key or '}'\n"},
    {"{]", E "expecting a string as key or '}'\n"},
    {"[}{}", E "expecting value\n{}\n"},
    {":", E "expecting value\n"},
    {"[nan]", E "invalid keyword 'nan'\n"},
    {"[truefalse]", E "invalid keyword 'truefalse'\n"},
    {"[1e999]{}", E "number out of range\n{}\n"},
    {"\"\\q\"", E "invalid escape sequence in string\n"},
    {"\"\\u12\" \"\\ud800\" \"\\udc00\" \"\\ud800\\u0041\" 1",
     E "invalid escape sequence in string\n" E "invalid escape sequence in string\n" E
       "invalid escape sequence in string\n" E "invalid escape sequence in string\n1\n"},
    {"\"\\uffff\"", E "invalid escape sequence in string\n"},
    {"\"\303\" \"\300\200\" \"\355\240\200\" \"\364\220\200\200\" \"\357\277\277\" 1",
     E "invalid UTF-8 sequence in string\n" E "invalid UTF-8 sequence in string\n" E
       "invalid UTF-8 sequence in string\n" E "invalid UTF-8 sequence in string\n" E
       "invalid UTF-8 sequence in string\n1\n"},
    /* lexical errors: told at once; the rest goes on at the next bracket, comma or line */
    {"NaN\n1", E "stray 'N'\n1\n"},
    {"[TRUE]", E "stray 'T'\n" E "expecting value\n"},
    {"// x\n{}", E "stray '/'\n{}\n"},
    {"/* x */ {}", E "stray '/'\n{}\n"},
    {"01\n{}", E "stray '01'\n{}\n"},
    {"1.\n{}", E "stray byte 0x0a\n{}\n"},
    {"-x\n{}", E "stray '-x'\n{}\n"},
    {"+1\n{}", E "stray '+'\n{}\n"},
    {"1e+\n{}", E "stray byte 0x0a\n{}\n"},
    {"\"a\nb\"\n{}", E "stray byte 0x0a in a string\n{}\n"},
    {"{\"a\":1\377{}", E "stray byte 0xff\n{}\n"},
    {"\"a\377{}", E "stray byte 0xff in a string\n{}\n"},
    /* an open value at the end */
    {"{\"a\":", E "unexpected end of input\n"},
    {"\"abc", E "unexpected end of input\n"},
    {"[1,", E "unexpected end of input\n"},
    {"", ""},
    {" \n", ""},
};

static void test_table(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        expect_all_splits(cases[i].in, strlen(cases[i].in), cases[i].out);
    }
}

static void test_nul(void)
{
    expect_all_splits("{\0}{}", 5, E "stray byte 0x00\n" E "expecting value\n{}\n");
    expect_all_splits("'a\0,{}", 6, E "stray byte 0x00 in a string\n" E "expecting value\n{}\n");
}

/* @n times @c. */
static void repeat(GString *out, char c, size_t n)
{
    size_t at = out->len;

    g_string_set_size(out, at + n);
    memset(out->str + at, c, n);
}

static void expect_once(GString *in, const char *expected)
{
    char *got = feed(in->str, in->len, in->len / 2, NULL);

    g_assert_cmpstr(got, ==, expected);
    g_free(got);
    g_string_free(in, TRUE);
}

static void test_depth(void)
{
    GString *in = g_string_new(NULL);
    Seen counts;

    repeat(in, '[', 1024);
    repeat(in, ']', 1024);
    g_free(feed(in->str, in->len, 0, &counts));
    g_assert_cmpuint(counts.values, ==, 1);
    g_assert_cmpuint(counts.errors, ==, 0);
    g_string_truncate(in, 0);
    repeat(in, '[', 100000);
    repeat(in, ']', 100000);
    g_string_append(in, "{}");
    expect_once(in, "!JSON nesting depth limit exceeded\n{}\n");
}

static void test_size(void)
{
    GString *in = g_string_new("[\"");
    Seen counts;

    repeat(in, 'x', (64 << 20) - 16);
    g_string_append(in, "\"]");
    g_free(feed(in->str, in->len, 0, &counts));
    g_assert_cmpuint(counts.values, ==, 1);
    g_assert_cmpuint(counts.errors, ==, 0);
    g_string_truncate(in, in->len - 2);
    repeat(in, 'x', 1 << 20);
    g_string_append(in, "\", [1, 2, 'y']] {}");
    expect_once(in, "!JSON token size limit exceeded\n{}\n");
}

static void test_tokens(void)
{
    GString *in = g_string_new("[1");

    for (int i = 0; i < 1200000; i++) {
        g_string_append(in, ",1");
    }
    g_string_append(in, "] {}");
    expect_once(in, "!JSON token count limit exceeded\n{}\n");
}

/* Whatever comes, and however it is cut, the same is said; and a good value is heard after it. */
static void test_random(void)
{
    static const char alphabet[] =
        "{}[]:,\"'\\ \n0123456789.eE+-truefalsnudAZ\x01\x7f\x80\xc3\xa9\xff";
    GRand *rand = g_rand_new_with_seed(g_test_rand_int());

    for (int round = 0; round < 20000; round++) {
        char data[64];
        size_t size = g_rand_int_range(rand, 1, sizeof(data) - 5);
        char *whole, *split;

        for (size_t i = 0; i < size; i++) {
            data[i] = round % 2 ? (char)g_rand_int(rand)
                                : alphabet[g_rand_int_range(rand, 0, sizeof(alphabet) - 1)];
        }
        memcpy(data + size, "\377\n7\n", 4); /* \377 ends any value, as clients use it */
        whole = feed(data, size + 4, 0, NULL);
        split = feed(data, size + 4, SIZE_MAX, NULL);
        g_assert_cmpstr(whole, ==, split);
        g_assert_true(g_str_has_suffix(whole, "7\n"));
        g_free(whole);
        g_free(split);
    }
    g_rand_free(rand);
}

static void free_in_callback(void *opaque, json_object *value, const GError *err)
{
    JsonFramer **framer = opaque;

    g_assert_true(value && !err);
    g_assert_nonnull(*framer); /* called once only */
    json_framer_free(*framer);
    *framer = NULL;
}

static void test_free_in_callback(void)
{
    JsonFramer *framer = NULL;

    framer = json_framer_new(free_in_callback, &framer);
    json_framer_feed(framer, "{}{}[1", 6);
    g_assert_null(framer);
    framer = json_framer_new(free_in_callback, &framer);
    json_framer_feed(framer, "17", 2);
    json_framer_flush(framer);
    g_assert_null(framer);
}

static void test_parse(void)
{
    GError *err = NULL;
    json_object *value = json_parse(" {'a': [1, {}], 'b': {}} ", &err);
    json_object *copy;
    char *text;

    g_assert_no_error(err);
    text = json_to_pretty(value);
    g_assert_cmpstr(
        text, ==,
        "{\n    \"a\": [\n        1,\n        {\n        }\n    ],\n    \"b\": {\n    }\n}");
    g_free(text);
    copy = json_deep_copy(value);
    json_put_bool(json_member(copy, "b"), "new", true);
    g_assert_null(json_member(json_member(value, "b"), "new"));
    json_object_put(copy);
    json_object_put(value);
    g_assert_null(json_parse("1 2", &err));
    g_assert_cmpstr(err->message, ==, "JSON parse error, more than one value");
    g_clear_error(&err);
    g_assert_null(json_parse("", &err));
    g_assert_nonnull(err);
    g_clear_error(&err);
    g_assert_null(json_parse("{", &err));
    g_assert_nonnull(err);
    g_clear_error(&err);
    g_assert_null(json_parse("null", &err));
    g_assert_no_error(err);
}

static void test_format(void)
{
    json_object *bad = json_object_new_string_len("a\xff\xc3z\0", 5);
    json_object *number = json_object_new_double(0.1);
    char *text = json_to_string(bad);

    g_assert_cmpstr(text, ==, "\"a\\uFFFD\\uFFFDz\\u0000\"");
    g_free(text);
    json_object_put(bad);
    text = json_to_string(number);
    g_assert_cmpstr(text, ==, "0.1");
    g_free(text);
    g_assert_cmpstr(json_type_name_qapi(number), ==, "number");
    json_object_put(number);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/json/table-at-every-split", test_table);
    g_test_add_func("/json/nul-bytes", test_nul);
    g_test_add_func("/json/depth-1024-and-no-more", test_depth);
    g_test_add_func("/json/64-mib-and-no-more", test_size);
    g_test_add_func("/json/two-million-tokens-and-no-more", test_tokens);
    g_test_add_func("/json/random-bytes-resynchronise", test_random);
    g_test_add_func("/json/framer-freed-by-its-callback", test_free_in_callback);
    g_test_add_func("/json/parse-one-value", test_parse);
    g_test_add_func("/json/format", test_format);
    return g_test_run();
}
