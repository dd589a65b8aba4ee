/*
 * Line editor for HMP: bytes from a terminal in, echo and whole lines out.
 *
 * Cursor keys, Home, End, Delete, ^A ^E ^B ^F ^D ^K ^U ^W ^L ^C, history (up, down, ^P, ^N), Tab.
 * Typing at the end echoes just that byte; any other change redraws the line.  Without editing
 * (a script at the other side) nothing is echoed and keys mean nothing.  A line is at most
 * LINE_MAX_BYTES long, the history HISTORY_MAX lines: what a client sends is bounded.
 */
#include "qapi/monitor-priv.h"

#include <string.h>

#define LINE_MAX_BYTES 4096
#define HISTORY_MAX    64

typedef enum EscapeState { ESCAPE_NONE, ESCAPE_START, ESCAPE_CSI, ESCAPE_SS3 } EscapeState;

#define KEY(letter) ((letter) - '@') /* Control and that letter */

struct Readline {
    const ReadlineOps *ops;
    void *opaque;
    const char *prompt;
    bool editing;
    GString *line;
    size_t cursor;
    GPtrArray *history; /* of char*, oldest first */
    guint browse;       /* index into it; its length: the line being typed */
    EscapeState escape;
    unsigned csi_number;
    bool after_cr; /* the LF of a CR LF ends no line */
};

Readline *readline_new(const ReadlineOps *ops, void *opaque, const char *prompt, bool editing)
{
    Readline *rl = g_new0(Readline, 1);

    rl->ops = ops;
    rl->opaque = opaque;
    rl->prompt = prompt;
    rl->editing = editing;
    rl->line = g_string_new(NULL);
    rl->history = g_ptr_array_new_with_free_func(g_free);
    return rl;
}

void readline_free(Readline *rl)
{
    g_string_free(rl->line, TRUE);
    g_ptr_array_free(rl->history, TRUE);
    g_free(rl);
}

void readline_restart(Readline *rl)
{
    g_string_truncate(rl->line, 0);
    rl->cursor = 0;
    rl->browse = rl->history->len;
    rl->escape = ESCAPE_NONE;
    rl->after_cr = false;
}

static void output(Readline *rl, const char *text)
{
    rl->ops->output(rl->opaque, text, strlen(text));
}

void readline_show_prompt(Readline *rl)
{
    output(rl, rl->prompt);
}

static void redraw(Readline *rl)
{
    GString *out = g_string_new(NULL);

    g_string_printf(out, "\r%s%s\033[K", rl->prompt, rl->line->str);
    if (rl->cursor < rl->line->len) {
        g_string_append_printf(out, "\033[%zuD", rl->line->len - rl->cursor);
    }
    output(rl, out->str);
    g_string_free(out, TRUE);
}

static void insert(Readline *rl, const char *text, size_t len)
{
    bool at_end = rl->cursor == rl->line->len;

    if (rl->line->len + len > LINE_MAX_BYTES) {
        return;
    }
    g_string_insert_len(rl->line, rl->cursor, text, len);
    rl->cursor += len;
    if (rl->editing && at_end) {
        rl->ops->output(rl->opaque, text, len);
    } else if (rl->editing) {
        redraw(rl);
    }
}

/* Deletes [from, to) and leaves the cursor there. */
static void erase(Readline *rl, size_t from, size_t to)
{
    if (from < to) {
        g_string_erase(rl->line, from, to - from);
        rl->cursor = from;
        redraw(rl);
    }
}

static void move_cursor(Readline *rl, size_t to)
{
    rl->cursor = MIN(to, rl->line->len);
    redraw(rl);
}

static void show_history(Readline *rl, guint index)
{
    if (index > rl->history->len) {
        return;
    }
    rl->browse = index;
    g_string_assign(rl->line,
                    index < rl->history->len ? g_ptr_array_index(rl->history, index) : "");
    move_cursor(rl, rl->line->len);
}

static size_t word_start(const Readline *rl)
{
    size_t at = rl->cursor;

    while (at > 0 && rl->line->str[at - 1] == ' ') {
        at--;
    }
    while (at > 0 && rl->line->str[at - 1] != ' ') {
        at--;
    }
    return at;
}

static void remember(Readline *rl)
{
    const char *last = rl->history->len ? g_ptr_array_index(rl->history, rl->history->len - 1) : "";

    if (rl->line->len && strcmp(last, rl->line->str) != 0) {
        g_ptr_array_add(rl->history, g_strdup(rl->line->str));
        if (rl->history->len > HISTORY_MAX) {
            g_ptr_array_remove_index(rl->history, 0);
        }
    }
}

static void enter(Readline *rl)
{
    char *line = g_strdup(rl->line->str);

    if (rl->editing) {
        output(rl, "\r\n");
        remember(rl);
    }
    readline_restart(rl);
    rl->ops->line(rl->opaque, line);
    g_free(line);
}

/* How many bytes all of @words have in common at their start. */
static size_t common_prefix(char **words)
{
    size_t len = strlen(words[0]);

    for (char **word = words + 1; *word; word++) {
        size_t i = 0;
        while (i < len && (*word)[i] == words[0][i]) {
            i++;
        }
        len = i;
    }
    return len;
}

/* Completes the text before the cursor as far as it is unique, else lists what it may become. */
static void complete(Readline *rl)
{
    char *text = g_strndup(rl->line->str, rl->cursor);
    char **words = rl->ops->complete(rl->opaque, text);
    size_t have = strlen(text), common;

    if (words && words[0]) {
        common = common_prefix(words);
        if (common > have) {
            insert(rl, words[0] + have, common - have);
        }
        if (!words[1] && common && !strchr("=/", words[0][common - 1])) {
            insert(rl, " ", 1);
        } else if (!words[1]) {
            ; /* the value or the next part of the path follows at once */
        } else if (common <= have) {
            char *list = g_strjoinv("\r\n", words);
            output(rl, "\r\n");
            output(rl, list);
            output(rl, "\r\n");
            g_free(list);
            redraw(rl);
        }
    }
    g_strfreev(words);
    g_free(text);
}

static void control_key(Readline *rl, char c)
{
    switch (c) {
    case KEY('A'):
        move_cursor(rl, 0);
        break;
    case KEY('E'):
        move_cursor(rl, rl->line->len);
        break;
    case KEY('B'):
        move_cursor(rl, rl->cursor ? rl->cursor - 1 : 0);
        break;
    case KEY('F'):
        move_cursor(rl, rl->cursor + 1);
        break;
    case KEY('D'):
        erase(rl, rl->cursor, MIN(rl->cursor + 1, rl->line->len));
        break;
    case KEY('H'):
    case 0x7F:
        erase(rl, rl->cursor ? rl->cursor - 1 : 0, rl->cursor);
        break;
    case KEY('K'):
        erase(rl, rl->cursor, rl->line->len);
        break;
    case KEY('U'):
        erase(rl, 0, rl->cursor);
        break;
    case KEY('W'):
        erase(rl, word_start(rl), rl->cursor);
        break;
    case KEY('L'):
        output(rl, "\033[2J\033[1;1H");
        redraw(rl);
        break;
    case KEY('C'):
        output(rl, "\r\n");
        readline_restart(rl);
        readline_show_prompt(rl);
        break;
    case KEY('P'):
        show_history(rl, rl->browse - 1);
        break;
    case KEY('N'):
        show_history(rl, rl->browse + 1);
        break;
    case '\t':
        complete(rl);
        break;
    case '\033':
        rl->escape = ESCAPE_START;
        break;
    default:
        break;
    }
}

/* The last byte of an escape sequence: cursor keys, Home, End, Delete. */
static void escape_key(Readline *rl, char c)
{
    static const struct {
        char final;
        unsigned number;
        char control;
    } keys[] = {
        {'A', 0, KEY('P')}, {'B', 0, KEY('N')}, {'C', 0, KEY('F')}, {'D', 0, KEY('B')},
        {'H', 0, KEY('A')}, {'F', 0, KEY('E')}, {'~', 1, KEY('A')}, {'~', 3, KEY('D')},
        {'~', 4, KEY('E')}, {'~', 7, KEY('A')}, {'~', 8, KEY('E')},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(keys); i++) {
        if (keys[i].final == c && keys[i].number == rl->csi_number) {
            control_key(rl, keys[i].control);
            return;
        }
    }
}

static void escape_byte(Readline *rl, char c)
{
    if (rl->escape == ESCAPE_START) {
        rl->escape = c == '[' ? ESCAPE_CSI : c == 'O' ? ESCAPE_SS3 : ESCAPE_NONE;
        rl->csi_number = 0;
    } else if (rl->escape == ESCAPE_CSI && g_ascii_isdigit(c)) {
        rl->csi_number = MIN(rl->csi_number * 10 + (c - '0'), 999);
    } else if (rl->escape == ESCAPE_CSI && (guchar)c < 0x40) {
        ; /* more parameters, of keys that mean nothing here */
    } else {
        rl->escape = ESCAPE_NONE;
        escape_key(rl, c);
    }
}

void readline_feed(Readline *rl, char c)
{
    bool lf_of_crlf = c == '\n' && rl->after_cr;

    rl->after_cr = false;
    if (lf_of_crlf) {
        return;
    }
    if (rl->escape != ESCAPE_NONE) {
        escape_byte(rl, c);
    } else if (c == '\r' || c == '\n') {
        enter(rl);
        rl->after_cr = c == '\r';
    } else if ((guchar)c >= 0x20 && c != 0x7F) {
        insert(rl, &c, 1);
    } else if (rl->editing) {
        control_key(rl, c);
    }
}
