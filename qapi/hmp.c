/*
 * HMP: the human monitor's command tables, running a line, and the monitor that does so on a
 * chardev with a prompt.
 *
 * A command's name is one or two words ("info network"); the longest that a line begins with
 * wins, and what follows are its arguments.  Parts register their tables; the built-in table
 * comes last, so that a part may replace a command.
 */
#include "qapi/monitor-priv.h"

#include <string.h>

#include "util/json.h"
#include "util/runstate.h"

#define OUTPUT_HIGH (256u << 10)
#define READ_SIZE   4096u

static GSList *tables; /* of const HmpCommand*, newest first */

void hmp_register(const HmpCommand *commands)
{
    if (!g_slist_find(tables, commands)) {
        tables = g_slist_prepend(tables, (gpointer)commands);
    }
}

static void foreach_command(void (*fn)(const HmpCommand *command, void *opaque), void *opaque)
{
    for (GSList *l = tables; l; l = l->next) {
        for (const HmpCommand *c = l->data; c->name; c++) {
            fn(c, opaque);
        }
    }
    for (const HmpCommand *c = hmp_builtin_commands; c->name; c++) {
        fn(c, opaque);
    }
}

/* ---- Finding a command ---- */

/* Does [text, len) equal one of the alternatives in "a|b|c" of @words_len bytes? */
static bool word_matches(const char *alternatives, size_t alternatives_len, const char *text,
                         size_t len)
{
    const char *end = alternatives + alternatives_len;

    while (alternatives <= end) {
        const char *bar = memchr(alternatives, '|', end - alternatives);
        size_t part = (bar ? bar : end) - alternatives;

        if (part == len && memcmp(alternatives, text, len) == 0) {
            return true;
        }
        alternatives += part + 1;
    }
    return false;
}

/* The number of bytes of @line that @name stands for; 0: the line is of another command. */
static size_t match_name(const char *name, const char *line)
{
    const char *at = line;

    for (;;) {
        size_t name_len = strcspn(name, " "), len;

        at += strspn(at, " ");
        len = strcspn(at, " ");
        if (!len || !word_matches(name, name_len, at, len)) {
            return 0;
        }
        at += len;
        name += name_len;
        if (!*name) {
            return at - line;
        }
        name += strspn(name, " ");
    }
}

typedef struct FindCommand {
    const char *line;
    const HmpCommand *found;
    size_t len;
    bool is_group; /* the line's first word begins longer commands */
} FindCommand;

static void find_step(const HmpCommand *command, void *opaque)
{
    FindCommand *find = opaque;
    size_t len = match_name(command->name, find->line), first = strcspn(find->line, " ");

    if (len > find->len) {
        find->found = command;
        find->len = len;
    }
    if (strncmp(command->name, find->line, first) == 0 && command->name[first] == ' ') {
        find->is_group = true;
    }
}

/* ---- help ---- */

static int compare_names(gconstpointer a, gconstpointer b)
{
    const HmpCommand *left = *(const HmpCommand *const *)a;
    const HmpCommand *right = *(const HmpCommand *const *)b;

    return strcmp(left->name, right->name);
}

static void collect_step(const HmpCommand *command, void *opaque)
{
    GPtrArray *all = opaque;

    for (guint i = 0; i < all->len; i++) {
        if (strcmp(((const HmpCommand *)all->pdata[i])->name, command->name) == 0) {
            return;
        }
    }
    g_ptr_array_add(all, (gpointer)command);
}

static GPtrArray *all_commands(void)
{
    GPtrArray *all = g_ptr_array_new();

    foreach_command(collect_step, all);
    g_ptr_array_sort(all, compare_names);
    return all;
}

static void help_line(const HmpCommand *command, GString *out)
{
    bool has_params = command->params && command->params[0];

    g_string_append_printf(out, "%s%s%s -- %s\r\n", command->name, has_params ? " " : "",
                           has_params ? command->params : "", command->help);
}

/* Commands whose name begins with @topic (all but the groups' members when it is empty). */
static void help(const char *topic, GString *out)
{
    GPtrArray *all = all_commands();
    size_t before = out->len, len = strlen(topic);
    bool info_shown = false;

    for (guint i = 0; i < all->len; i++) {
        const HmpCommand *command = all->pdata[i];

        if (len == 0 && g_str_has_prefix(command->name, "info ")) {
            if (!info_shown) {
                g_string_append(out, "info [subcommand] -- show various information\r\n");
            }
            info_shown = true;
        } else if (len == 0 || match_name(command->name, topic) ||
                   (strncmp(command->name, topic, len) == 0 && command->name[len] == ' ')) {
            help_line(command, out);
        }
    }
    if (out->len == before) {
        g_string_append_printf(out, "unknown command: '%s'\r\n", topic);
    }
    g_ptr_array_free(all, TRUE);
}

static void complete_names(const char *text, GPtrArray *words)
{
    GPtrArray *all = all_commands();

    for (guint i = 0; i < all->len; i++) {
        char **names = g_strsplit(((const HmpCommand *)all->pdata[i])->name, "|", 0);

        for (char **name = names; *name; name++) {
            if (g_str_has_prefix(*name, text)) {
                g_ptr_array_add(words, g_strdup(*name));
            }
        }
        g_strfreev(names);
    }
    g_ptr_array_free(all, TRUE);
}

static int compare_words(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Words come back with what stands before them on the line, as the line editor wants it. */
char **hmp_complete(const char *text)
{
    FindCommand find = {.line = text};
    GPtrArray *words = g_ptr_array_new();

    foreach_command(find_step, &find);
    if (!find.found || text[find.len] != ' ') {
        complete_names(text, words);
    } else if (find.found->complete) {
        const char *args = text + find.len + strspn(text + find.len, " ");
        find.found->complete(args, words);
    }
    if (words->len && find.found && text[find.len] == ' ') {
        const char *cut = text + strlen(text);
        while (cut > text && !strchr(" ,=/", cut[-1])) {
            cut--;
        }
        for (guint i = 0; i < words->len; i++) {
            char *word = words->pdata[i];
            words->pdata[i] = g_strdup_printf("%.*s%s", (int)(cut - text), text, word);
            g_free(word);
        }
    }
    g_ptr_array_sort(words, compare_words);
    g_ptr_array_add(words, NULL);
    return (char **)g_ptr_array_free(words, FALSE);
}

/* ---- Running a line ---- */

static void unknown_command(const FindCommand *find, GString *out)
{
    size_t len = strcspn(find->line, " ");

    if (find->is_group) { /* "info foo": both words name it */
        len += strspn(find->line + len, " ");
        len += strcspn(find->line + len, " ");
    }
    g_string_append_printf(out, "unknown command: '%.*s'\r\n", (int)len, find->line);
}

static void run_line(const char *line, GString *out)
{
    FindCommand find = {.line = line};
    const char *args;

    if (!line[0]) {
        return;
    }
    foreach_command(find_step, &find);
    if (match_name("help|?", line)) {
        args = line + match_name("help|?", line);
        help(args + strspn(args, " "), out);
    } else if (strcmp(line, "info") == 0) {
        help("info", out);
    } else if (!find.found) {
        unknown_command(&find, out);
    } else {
        args = line + find.len;
        args += strspn(args, " ");
        if (args[0] && !(find.found->params && find.found->params[0])) {
            g_string_append_printf(out, "%.*s: extraneous characters at the end of line\r\n",
                                   (int)find.len, line);
        } else {
            find.found->run(args, out);
        }
    }
}

/* Every line end as CR LF, also where a command wrote LF alone. */
static char *with_crlf(const GString *text)
{
    GString *out = g_string_sized_new(text->len + 16);

    for (gsize i = 0; i < text->len; i++) {
        if (text->str[i] == '\n' && (i == 0 || text->str[i - 1] != '\r')) {
            g_string_append_c(out, '\r');
        }
        g_string_append_c(out, text->str[i]);
    }
    return g_string_free(out, FALSE);
}

char *hmp_execute(const char *line)
{
    char *copy = g_strstrip(g_strdelimit(g_strdup(line), "\t\r\n", ' '));
    GString *out = g_string_new(NULL);
    char *text;

    run_line(copy, out);
    text = with_crlf(out);
    g_string_free(out, TRUE);
    g_free(copy);
    return text;
}

/* ---- The monitor ---- */

typedef struct HmpMonitor {
    Monitor base;
    Readline *readline;
} HmpMonitor;

static void hmp_output(void *opaque, const char *text, size_t size)
{
    HmpMonitor *m = opaque;

    if (m->base.open) {
        chardev_write(m->base.chr, text, size, SIZE_MAX);
    }
}

static void hmp_line(void *opaque, const char *line)
{
    HmpMonitor *m = opaque;
    unsigned session = m->base.session;
    char *text = hmp_execute(line);

    if (session == m->base.session) {
        hmp_output(m, text, strlen(text));
        if (vm_shutdown_requested() != SHUTDOWN_HOST_QMP_QUIT) { /* else no command follows */
            readline_show_prompt(m->readline);
        }
    }
    g_free(text);
}

static char **hmp_complete_text(void *opaque, const char *text)
{
    (void)opaque;
    return hmp_complete(text);
}

static const ReadlineOps hmp_readline_ops = {
    .output = hmp_output,
    .line = hmp_line,
    .complete = hmp_complete_text,
};

static size_t hmp_can_read(Monitor *mon)
{
    return chardev_queued(mon->chr) > OUTPUT_HIGH ? 0 : READ_SIZE;
}

static void hmp_read(Monitor *mon, const char *data, size_t size)
{
    HmpMonitor *m = (HmpMonitor *)mon;
    unsigned session = mon->session;

    for (size_t i = 0; i < size && session == mon->session; i++) {
        readline_feed(m->readline, data[i]);
    }
}

static void hmp_opened(Monitor *mon)
{
    static const char greeting[] =
        "swnic " SWNIC_VERSION " monitor - type 'help' for more information\r\n";
    HmpMonitor *m = (HmpMonitor *)mon;

    readline_restart(m->readline);
    hmp_output(m, greeting, strlen(greeting));
    readline_show_prompt(m->readline);
}

static void hmp_closed(Monitor *mon)
{
    readline_restart(((HmpMonitor *)mon)->readline);
}

static void hmp_drained(Monitor *mon)
{
    chardev_accept_input(mon->chr);
}

static void hmp_configure(Monitor *mon, bool use_readline)
{
    ((HmpMonitor *)mon)->readline = readline_new(&hmp_readline_ops, mon, "(qemu) ", use_readline);
}

static void hmp_release(Monitor *mon)
{
    readline_free(((HmpMonitor *)mon)->readline);
}

static const MonitorOps hmp_ops = {
    .size = sizeof(HmpMonitor),
    .can_read = hmp_can_read,
    .read = hmp_read,
    .opened = hmp_opened,
    .closed = hmp_closed,
    .drained = hmp_drained,
    .release = hmp_release,
};

Monitor *monitor_new_hmp(Chardev *chr, bool use_readline, GError **errp)
{
    return monitor_new(&hmp_ops, chr, hmp_configure, use_readline, errp);
}
