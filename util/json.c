/*
 * JSON in: a push parser for QMP's dialect.  JSON out: QEMU's spelling.
 *
 * Bytes arrive in pieces of any size.  The lexer (LexState) gathers one token at a time in
 * @token; each whole token goes to the grammar (Expect), which builds json-c values straight into
 * @root, so that no text of a whole value is ever kept and nothing is parsed twice.  json-c holds
 * the values; its own tokener is not used, because it takes much that QMP must refuse (duplicate
 * keys, raw control characters, NaN, lone surrogates) and turns 2^64 into 2^64-1.
 *
 * Resynchronisation: a lexical error drops the value at once, is told, and bytes up to the next
 * bracket, comma, colon or control character are skipped.  A grammar error is told when the
 * brackets balance (or one kind closes more often than it opened), so that one broken value is
 * one error.  A value over a limit is told at once and skipped, unstored, to its end.
 *
 * What it does not do: comments, interpolation, pointers into values, locales.
 */
#include "util/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"
#include "util/json-priv.h"

/* QEMU's limits on one value. */
#define JSON_MAX_BYTES  (64u << 20)
#define JSON_MAX_TOKENS (2u << 20)
#define JSON_MAX_DEPTH  1024

typedef enum LexState {
    LEX_START,
    LEX_STRING,
    LEX_ESCAPE,
    LEX_MINUS,
    LEX_ZERO,
    LEX_INTEGER,
    LEX_POINT,
    LEX_FRACTION,
    LEX_EXPONENT,
    LEX_EXPONENT_SIGN,
    LEX_EXPONENT_DIGITS,
    LEX_KEYWORD,
    LEX_RECOVERY,
} LexState;

typedef enum Expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END,
    EXPECT_KEY,
    EXPECT_KEY_OR_END,
    EXPECT_COLON,
    EXPECT_COMMA_OR_END,
} Expect;

/* An open object or array, and the key whose value comes next. */
typedef struct JsonLevel {
    json_object *container; /* borrowed: @root owns the tree */
    char *key;
} JsonLevel;

struct JsonFramer {
    JsonValueFunc *fn;
    void *opaque;

    LexState lex;
    char quote;     /* of the string being read */
    GString *token; /* text so far, without quotes */

    Expect expect;
    json_object *root;
    GArray *levels; /* of JsonLevel */
    int braces, brackets;
    size_t bytes, tokens; /* of this value, against the limits */
    char *broken;         /* why this value is no value; NULL: it still may be */
    bool told;            /* @broken has been reported already */

    bool feeding;
    bool dead; /* freed by its own callback: json_framer_feed() frees it on its way out */
};

/* ---- Values: from the callback's side ---- */

static void framer_drop_tree(JsonFramer *f)
{
    for (guint i = 0; i < f->levels->len; i++) {
        g_free(g_array_index(f->levels, JsonLevel, i).key);
    }
    g_array_set_size(f->levels, 0);
    json_object_put(f->root);
    f->root = NULL;
}

/* Ready for the next value; the lexer's state stays. */
static void framer_reset_value(JsonFramer *f)
{
    framer_drop_tree(f);
    g_clear_pointer(&f->broken, g_free);
    f->told = false;
    f->expect = EXPECT_VALUE;
    f->braces = f->brackets = 0;
    f->bytes = f->tokens = 0;
}

static void framer_tell_error(JsonFramer *f, const char *message)
{
    GError *err = g_error_new_literal(SWNIC_ERROR, ERROR_GENERIC, message);

    f->fn(f->opaque, NULL, err);
    g_error_free(err);
}

/* Notes why the value is broken (the first reason counts) and frees what was built of it. */
static void framer_break(JsonFramer *f, const char *message)
{
    if (!f->broken) {
        f->broken = g_strdup_printf("JSON parse error, %s", message);
    }
    framer_drop_tree(f);
}

/* A limit: told now, so that an endless value gets its answer. */
static void framer_break_limit(JsonFramer *f, const char *message)
{
    if (!f->broken) {
        f->broken = g_strdup(message);
    }
    framer_drop_tree(f);
    g_string_truncate(f->token, 0);
    if (!f->told) {
        f->told = true;
        framer_tell_error(f, f->broken);
    }
}

/* All brackets are closed: hands the value, or why there is none, to the callback. */
static void framer_finish_value(JsonFramer *f)
{
    json_object *value = g_steal_pointer(&f->root);
    char *broken = g_steal_pointer(&f->broken);
    bool told = f->told;

    framer_reset_value(f);
    if (!broken) {
        f->fn(f->opaque, value, NULL);
    } else if (!told) {
        framer_tell_error(f, broken);
    }
    json_object_put(value);
    g_free(broken);
}

/* ---- Grammar ---- */

static JsonLevel *framer_top(JsonFramer *f)
{
    return f->levels->len ? &g_array_index(f->levels, JsonLevel, f->levels->len - 1) : NULL;
}

static void framer_expect_error(JsonFramer *f)
{
    static const char *const texts[] = {
        [EXPECT_VALUE] = "expecting value",
        [EXPECT_VALUE_OR_END] = "expecting value",
        [EXPECT_KEY] = "expecting a string as key",
        [EXPECT_KEY_OR_END] = "expecting a string as key or '}'",
        [EXPECT_COLON] = "expecting ':' after key",
        [EXPECT_COMMA_OR_END] = "expecting ',' or the closing bracket",
    };

    framer_break(f, texts[f->expect]);
}

/* Puts @value (reference taken) where the grammar is.  False when no value may stand there. */
static bool framer_add_value(JsonFramer *f, json_object *value)
{
    JsonLevel *top = framer_top(f);

    if (f->broken || (f->expect != EXPECT_VALUE && f->expect != EXPECT_VALUE_OR_END)) {
        json_object_put(value);
        if (!f->broken) {
            framer_expect_error(f);
        }
        return false;
    }
    if (!top) {
        f->root = value;
    } else if (top->key) {
        json_object_object_add_ex(top->container, top->key, value, JSON_C_OBJECT_ADD_KEY_IS_NEW);
        g_clear_pointer(&top->key, g_free);
    } else {
        json_object_array_add(top->container, value);
    }
    f->expect = EXPECT_COMMA_OR_END;
    return true;
}

static void framer_add_key(JsonFramer *f, const char *text, size_t len)
{
    JsonLevel *top = framer_top(f);

    if (memchr(text, 0, len)) {
        framer_break(f, "NUL character in a key"); /* json-c's keys are C strings */
    } else if (json_object_object_get_ex(top->container, text, NULL)) {
        framer_break(f, "duplicate key");
    } else {
        top->key = g_strndup(text, len);
        f->expect = EXPECT_COLON;
    }
}

static void framer_open(JsonFramer *f, json_object *container)
{
    bool is_object = json_object_is_type(container, json_type_object);
    JsonLevel level = {.container = container};

    if (framer_add_value(f, container)) {
        g_array_append_val(f->levels, level);
        f->expect = is_object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    }
}

static void framer_close(JsonFramer *f, enum json_type type)
{
    JsonLevel *top = framer_top(f);
    Expect empty = type == json_type_object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;

    if (f->broken) {
        return;
    }
    if (!top || !json_object_is_type(top->container, type) ||
        (f->expect != empty && f->expect != EXPECT_COMMA_OR_END)) {
        framer_expect_error(f);
        return;
    }
    g_array_set_size(f->levels, f->levels->len - 1);
    f->expect = EXPECT_COMMA_OR_END;
}

/* What follows every token: limits, and whether the value is complete. */
static void framer_token_done(JsonFramer *f)
{
    f->tokens++;
    if (f->braces < 0 || f->brackets < 0 || (f->braces == 0 && f->brackets == 0)) {
        framer_finish_value(f);
    } else if (f->tokens > JSON_MAX_TOKENS) {
        framer_break_limit(f, "JSON token count limit exceeded");
    } else if (f->braces + f->brackets > JSON_MAX_DEPTH) {
        framer_break_limit(f, "JSON nesting depth limit exceeded");
    }
}

static void framer_punctuation(JsonFramer *f, char c)
{
    JsonLevel *top = framer_top(f);

    f->bytes++;
    switch (c) {
    case '{':
        f->braces++;
        framer_open(f, json_object_new_object());
        break;
    case '[':
        f->brackets++;
        framer_open(f, json_object_new_array());
        break;
    case '}':
        f->braces--;
        framer_close(f, json_type_object);
        break;
    case ']':
        f->brackets--;
        framer_close(f, json_type_array);
        break;
    case ',':
        if (!f->broken && (!top || f->expect != EXPECT_COMMA_OR_END)) {
            framer_expect_error(f);
        } else if (!f->broken) {
            f->expect =
                json_object_is_type(top->container, json_type_object) ? EXPECT_KEY : EXPECT_VALUE;
        }
        break;
    default: /* ':' */
        if (!f->broken && f->expect != EXPECT_COLON) {
            framer_expect_error(f);
        } else if (!f->broken) {
            f->expect = EXPECT_VALUE;
        }
        break;
    }
    framer_token_done(f);
}

/* ---- Scalars ---- */

static void framer_string(JsonFramer *f)
{
    GString *text = NULL;

    if (!f->broken) {
        if (!json_utf8_is_valid(f->token->str, f->token->len)) {
            framer_break(f, "invalid UTF-8 sequence in string");
        } else {
            text = json_decode_string(f->token);
            if (!text) {
                framer_break(f, "invalid escape sequence in string");
            }
        }
    }
    if (text && (f->expect == EXPECT_KEY || f->expect == EXPECT_KEY_OR_END)) {
        framer_add_key(f, text->str, text->len);
    } else if (text) {
        framer_add_value(f, json_object_new_string_len(text->str, text->len));
    }
    if (text) {
        g_string_free(text, TRUE);
    }
    framer_token_done(f);
}

/* An integer where 64 bits hold it (signed or unsigned), else a double. */
static void framer_number(JsonFramer *f)
{
    const char *text = f->token->str;
    bool integral = !strpbrk(text, ".eE");
    double number;
    int64_t i;
    uint64_t u;

    if (f->broken) {
        framer_token_done(f);
        return;
    }
    errno = 0;
    i = g_ascii_strtoll(text, NULL, 10);
    if (integral && errno == 0) {
        framer_add_value(f, json_object_new_int64(i));
        framer_token_done(f);
        return;
    }
    errno = 0;
    u = g_ascii_strtoull(text, NULL, 10);
    if (integral && text[0] != '-' && errno == 0) {
        framer_add_value(f, json_object_new_uint64(u));
        framer_token_done(f);
        return;
    }
    number = g_ascii_strtod(text, NULL);
    if (isfinite(number)) {
        framer_add_value(f, json_object_new_double(number));
    } else {
        framer_break(f, "number out of range");
    }
    framer_token_done(f);
}

static void framer_keyword(JsonFramer *f)
{
    const char *text = f->token->str;
    char *message;

    if (f->broken) {
        ;
    } else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        framer_add_value(f, json_object_new_boolean(text[0] == 't'));
    } else if (strcmp(text, "null") == 0) {
        framer_add_value(f, NULL);
    } else {
        message = g_strdup_printf("invalid keyword '%.40s'", text);
        framer_break(f, message);
        g_free(message);
    }
    framer_token_done(f);
}

/* ---- Lexer ---- */

/* A byte that no token can have here: told at once, and nothing of the value is kept. */
static void framer_stray(JsonFramer *f, unsigned char c)
{
    char *message = c > ' ' && c < 0x7F
                        ? g_strdup_printf("JSON parse error, stray '%.40s%c'", f->token->str, c)
                        : g_strdup_printf("JSON parse error, stray byte 0x%02x", c);
    bool told = f->told;

    /* The text of a string may be anything, also half a character. */
    if (f->lex == LEX_STRING || f->lex == LEX_ESCAPE) {
        g_free(message);
        message = g_strdup_printf("JSON parse error, stray byte 0x%02x in a string", c);
    }
    framer_reset_value(f);
    g_string_truncate(f->token, 0);
    f->lex = LEX_RECOVERY;
    if (!told) {
        framer_tell_error(f, message);
    }
    g_free(message);
}

static void framer_keep(JsonFramer *f, const char *data, size_t len)
{
    f->bytes += len;
    if (f->told) {
        return;
    }
    if (f->bytes > JSON_MAX_BYTES) {
        framer_break_limit(f, "JSON token size limit exceeded");
        return;
    }
    g_string_append_len(f->token, data, len);
}

/* What a byte does to a number being read: the next state, LEX_START at its end, -1 if stray. */
static int lex_number_next(LexState state, char c)
{
    bool digit = g_ascii_isdigit(c);

    switch (state) {
    case LEX_MINUS:
        return c == '0' ? LEX_ZERO : digit ? LEX_INTEGER : -1;
    case LEX_ZERO:
    case LEX_INTEGER:
        if (digit) {
            return state == LEX_ZERO ? -1 : LEX_INTEGER;
        }
        return c == '.' ? LEX_POINT : c == 'e' || c == 'E' ? LEX_EXPONENT : LEX_START;
    case LEX_POINT:
        return digit ? LEX_FRACTION : -1;
    case LEX_FRACTION:
        return digit ? LEX_FRACTION : c == 'e' || c == 'E' ? LEX_EXPONENT : LEX_START;
    case LEX_EXPONENT:
        return digit ? LEX_EXPONENT_DIGITS : c == '+' || c == '-' ? LEX_EXPONENT_SIGN : -1;
    case LEX_EXPONENT_SIGN:
        return digit ? LEX_EXPONENT_DIGITS : -1;
    default: /* LEX_EXPONENT_DIGITS */
        return digit ? LEX_EXPONENT_DIGITS : LEX_START;
    }
}

static void lex_start(JsonFramer *f, char c)
{
    g_string_truncate(f->token, 0);
    switch (c) {
    case ' ':
    case '\t':
    case '\r':
    case '\n':
        return;
    case '{':
    case '}':
    case '[':
    case ']':
    case ',':
    case ':':
        framer_punctuation(f, c);
        return;
    case '"':
    case '\'':
        f->quote = c;
        f->bytes++;
        f->lex = LEX_STRING;
        return;
    default:
        break;
    }
    if (c == '-' || g_ascii_isdigit(c)) {
        f->lex = c == '-' ? LEX_MINUS : c == '0' ? LEX_ZERO : LEX_INTEGER;
    } else if (g_ascii_islower(c)) {
        f->lex = LEX_KEYWORD;
    } else {
        framer_stray(f, c);
        return;
    }
    framer_keep(f, &c, 1);
}

/* Takes bytes of a string; returns how many. */
static size_t lex_string(JsonFramer *f, const char *data, size_t size)
{
    size_t n = 0;
    unsigned char c;

    while (n < size && data[n] != f->quote && data[n] != '\\' && (guchar)data[n] >= 0x20 &&
           (guchar)data[n] < 0xFE) {
        n++;
    }
    if (n > 0) {
        framer_keep(f, data, n);
        return n;
    }
    c = data[0];
    if (c == (guchar)f->quote) {
        f->lex = LEX_START;
        framer_string(f);
    } else if (c == '\\') {
        framer_keep(f, data, 1);
        f->lex = LEX_ESCAPE;
    } else {
        framer_stray(f, c);
    }
    return 1;
}

/* Takes one byte of a number or keyword; returns false if it is the first after it. */
static bool lex_scalar(JsonFramer *f, char c)
{
    int next;

    if (f->lex == LEX_KEYWORD) {
        next = g_ascii_islower(c) ? LEX_KEYWORD : LEX_START;
    } else {
        next = lex_number_next(f->lex, c);
    }
    if (next < 0) {
        framer_stray(f, c);
        return true;
    }
    if (next != LEX_START) {
        f->lex = next;
        framer_keep(f, &c, 1);
        return true;
    }
    next = f->lex;
    f->lex = LEX_START;
    if (next == LEX_KEYWORD) {
        framer_keyword(f);
    } else {
        framer_number(f);
    }
    return false;
}

/* Takes at least one byte, unless the byte ended a scalar; returns how many. */
static size_t lex_bytes(JsonFramer *f, const char *data, size_t size)
{
    unsigned char c = data[0];

    switch (f->lex) {
    case LEX_START:
        lex_start(f, c);
        return 1;
    case LEX_STRING:
        return lex_string(f, data, size);
    case LEX_ESCAPE:
        if (c < 0x20 || c >= 0xFE) {
            framer_stray(f, c);
            return 1;
        }
        f->lex = LEX_STRING;
        framer_keep(f, data, 1);
        return 1;
    case LEX_RECOVERY:
        if (c < 0x20 || strchr("{}[]:,", c)) {
            f->lex = LEX_START;
            return c == 0 ? 1 : 0;
        }
        return 1;
    default:
        return lex_scalar(f, c) ? 1 : 0;
    }
}

JsonFramer *json_framer_new(JsonValueFunc *fn, void *opaque)
{
    JsonFramer *f = g_new0(JsonFramer, 1);

    f->fn = fn;
    f->opaque = opaque;
    f->token = g_string_new(NULL);
    f->levels = g_array_new(FALSE, FALSE, sizeof(JsonLevel));
    return f;
}

static void framer_destroy(JsonFramer *f)
{
    framer_reset_value(f);
    g_array_free(f->levels, TRUE);
    g_string_free(f->token, TRUE);
    g_free(f);
}

void json_framer_feed(JsonFramer *framer, const char *data, size_t size)
{
    size_t done = 0;

    framer->feeding = true;
    while (done < size && !framer->dead) {
        done += lex_bytes(framer, data + done, size - done);
    }
    framer->feeding = false;
    if (framer->dead) {
        framer_destroy(framer);
    } else if (framer->token->allocated_len > (1u << 16) && framer->lex == LEX_START) {
        g_string_free(framer->token, TRUE); /* one long string must not stay for ever */
        framer->token = g_string_new(NULL);
    }
}

void json_framer_flush(JsonFramer *framer)
{
    bool open;

    framer->feeding = true;
    if (framer->lex >= LEX_MINUS && framer->lex <= LEX_KEYWORD) {
        lex_scalar(framer, ' '); /* the end of input ends a number or keyword as a blank does */
    }
    open = framer->lex == LEX_STRING || framer->lex == LEX_ESCAPE || framer->braces > 0 ||
           framer->brackets > 0;
    framer->lex = LEX_START;
    if (!framer->dead && open && !framer->told) {
        framer_tell_error(framer, "JSON parse error, unexpected end of input");
    }
    framer->feeding = false;
    framer_reset_value(framer);
    if (framer->dead) {
        framer_destroy(framer);
    }
}

void json_framer_free(JsonFramer *framer)
{
    if (framer && framer->feeding) {
        framer->dead = true;
    } else if (framer) {
        framer_destroy(framer);
    }
}

/* What json_parse() has seen so far. */
typedef struct ParseOne {
    json_object *value;
    unsigned count;
    GError *err;
} ParseOne;

static void parse_one_value(void *opaque, json_object *value, const GError *err)
{
    ParseOne *one = opaque;

    one->count++;
    if (err && !one->err) {
        one->err = g_error_copy(err);
    } else if (one->count == 1) {
        one->value = json_object_get(value);
    }
}

json_object *json_parse(const char *text, GError **errp)
{
    ParseOne one = {0};
    JsonFramer *framer = json_framer_new(parse_one_value, &one);

    json_framer_feed(framer, text, strlen(text));
    json_framer_flush(framer);
    json_framer_free(framer);
    if (!one.err && one.count != 1) {
        error_set(&one.err, "JSON parse error, %s",
                  one.count ? "more than one value" : "expecting value");
    }
    if (one.err) {
        json_object_put(one.value);
        g_propagate_error(errp, one.err);
        return NULL;
    }
    return one.value;
}
