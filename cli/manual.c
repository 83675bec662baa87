/* Manual pages, in the macros of man(7), from the tables that --help shows. */
#include "cli/cli.h"

#include "ddl/config.h"
#include "ddl/train.h"
#include "ddl/version.h"

#include <stdio.h>
#include <string.h>

enum { LINE = 78 };

/* ---- roff ---- */

/* What roff would take for its own, or set as another character than the one that is typed. */
static const char *escaped(char c)
{
    static const struct {
        char c;
        const char *as;
    } rows[] = { { '\\', "\\e" },  { '-', "\\-" },   { '\'', "\\(aq" }, { '`', "\\(ga" },
                 { '~', "\\(ti" }, { '^', "\\(ha" }, { '"', "\\(dq" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].c == c)
            return rows[i].as;
    }
    return NULL;
}

/* Returns how many characters that took. */
static size_t put(const char *text, size_t n)
{
    size_t width = 0;
    for (size_t i = 0; i < n; i++) {
        const char *as = escaped(text[i]);
        if (as)
            fputs(as, stdout);
        else
            putchar(text[i]);
        width += as ? strlen(as) : 1;
    }
    return width;
}

/* A word on a text line; *column is 0 at its start. A full stop ends the line, as the format requires.
 */
static void put_word(const char *word, size_t n, size_t *column)
{
    size_t width = n;
    for (size_t i = 0; i < n; i++)
        width += escaped(word[i]) ? strlen(escaped(word[i])) - 1 : 0;
    if (*column && *column + 1 + width > LINE) {
        putchar('\n');
        *column = 0;
    }
    if (*column)
        putchar(' ');
    else if (*word == '.')
        fputs("\\&", stdout);
    *column += 1 + put(word, n);
    if (n > 1 && strchr(".?!", word[n - 1]) && word[n - 2] != '.') {
        putchar('\n');
        *column = 0;
    }
}

/* Text that roff fills; ends its line. */
static void put_text(const char *const *lines)
{
    size_t column = 0;
    for (; lines && *lines; lines++) {
        for (const char *word = *lines + strspn(*lines, " "); *word; word += strspn(word, " ")) {
            size_t n = strcspn(word, " ");
            put_word(word, n, &column);
            word += n;
        }
    }
    if (column)
        putchar('\n');
}

static void put_line(const char *text)
{
    put_text((const char *const[]){ text, NULL });
}

static char large(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* A help text with a capital first letter, if it begins with a word that is not a name of a key, and a full
 * stop. */
static void put_help(const char *line)
{
    char text[1024];
    size_t n = strlen(line);
    snprintf(text, sizeof text, "%s%s", line, n && line[n - 1] == '.' ? "" : ".");
    bool is_key = memchr(text, '_', strcspn(text, " ")) != NULL;
    if (strncmp(text, "ddl", 3) != 0 && !is_key && text[0] && large(text[1]) != text[1])
        text[0] = large(text[0]);
    put_line(text);
}

static void heading(const char *macro, const char *text)
{
    bool section = strcmp(macro, "SH") == 0;
    printf(".%s ", macro);
    for (; *text; text++)
        put(&(char){ section ? large(*text) : *text }, 1);
    putchar('\n');
}

/* A tagged paragraph's tag: `bold` in bold, the rest in italics. */
static void tag(const char *text, size_t bold)
{
    fputs(".TP\n\\fB", stdout);
    put(text, bold);
    fputs("\\fR", stdout);
    if (text[bold]) {
        fputs("\\fI", stdout);
        put(text + bold, strlen(text + bold));
        fputs("\\fR", stdout);
    }
    putchar('\n');
}

static void title(const char *name, const char *section, const char *about)
{
    fputs(".\\\" Written by 'ddl help --man' from the program's tables; do not edit.\n.TH ", stdout);
    for (const char *c = name; *c; c++)
        put(&(char){ large(*c) }, 1);
    printf(" %s " DDL_VERSION_DATE " \"ddl %s\" \"Deep Delta Learning\"\n.nh\n.ad l\n.SH NAME\n", section,
           ddl_version());
    put(name, strlen(name));
    fputs(" \\- ", stdout);
    put_line(about);
}

/* ---- parts of pages ---- */

static void synopsis(const struct command *command)
{
    char name[64];
    snprintf(name, sizeof name, "ddl %s", command->name);
    fputs(".HP\n\\fB", stdout);
    put(name, strlen(name));
    fputs("\\fR ", stdout);
    put_line(command->usage);
}

static void notes(const char *name, const struct note *list)
{
    if (!list)
        return;
    heading("SH", name);
    for (; list->name; list++) {
        tag(list->name, strlen(list->name));
        put_help(list->about);
    }
}

/* The words that a key takes, its range, and its value in `defaults` (NULL: not said). */
static void describe_value(const struct ddl_option *row, const void *defaults)
{
    static const char *const kinds[] = {
        [DDL_OPTION_BOOL] = "boolean",    [DDL_OPTION_SIZE] = "integer",  [DDL_OPTION_U64] = "integer",
        [DDL_OPTION_FLOAT] = "number",    [DDL_OPTION_DOUBLE] = "number", [DDL_OPTION_STRING] = "string",
        [DDL_OPTION_CHOICE] = "one of",   [DDL_OPTION_PATH] = "path",     [DDL_OPTION_PATHS] = "paths",
        [DDL_OPTION_STRINGS] = "strings",
    };
    char line[1024], value[512] = "", range[160];
    size_t used = (size_t)snprintf(line, sizeof line, "(%s", kinds[row->type]);
    for (size_t i = 0; row->type == DDL_OPTION_CHOICE && row->choices[i] && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s %s", i ? "," : "", row->choices[i]);
    ddl_option_range(row, range, sizeof range);
    if (*range && used < sizeof line)
        used += (size_t)snprintf(line + used, sizeof line - used, ", %s", range);
    if (defaults)
        describe_default_value(row, defaults, value, sizeof value);
    if (*value && used < sizeof line)
        used += (size_t)snprintf(line + used, sizeof line - used, "; default %s", value);
    if (used < sizeof line)
        snprintf(line + used, sizeof line - used, ")");
    put_line(line);
}

static void keys(const char *name, const struct ddl_option *rows, const void *defaults)
{
    heading("SH", name);
    for (; rows->name; rows++) {
        tag(rows->name, strlen(rows->name));
        put_help(rows->help);
        describe_value(rows, defaults);
    }
}

/* The groups of a command or an action; `under` (NULL: none) is the heading of a group without a title. */
static void options(const struct command *command, const char *under)
{
    for (size_t g = 0; g < MAX_OPTION_GROUPS && group_rows(&command->options[g]); g++) {
        const char *name = command->options[g].title;
        if (name || (g == 0 && under))
            heading("SS", name ? name : under);
        for (const struct ddl_option *row = group_rows(&command->options[g]); row->name; row++) {
            char flag[256], value[1100], aliases[256];
            size_t bold = describe_flag(row, flag, sizeof flag);
            tag(flag, bold);
            put_help(row->help);
            describe_default(&command->options[g], row, value, sizeof value);
            if (*value)
                put_line(value + 1);
            describe_aliases(row, aliases, sizeof aliases);
            if (*aliases)
                put_line(aliases + 1);
        }
    }
}

static void exit_statuses(void)
{
    static const struct note rows[] = {
        { "0", "Success" },
        { "1", "Failure; the error message is on standard error" },
        { "2", "An invalid command line or recipe" },
        { "3",
          "Interrupted by SIGINT, SIGTERM, SIGHUP or SIGUSR1; a checkpoint was written if a run had begun. "
          "Some commands, such as verify, are ended by the signal itself; serve ends with 0 once it "
          "listens" },
        { 0 }
    };
    notes("exit status", rows);
}

static void see_also(const char *self)
{
    char name[64];
    const char *before = "";
    heading("SH", "see also");
    for (size_t i = 0; manual_name(i, name, sizeof name); i++) {
        size_t length = strlen(name) - 2;
        if (strncmp(name, self, length) == 0 && self[length] == '\0')
            continue;
        printf("%s.BR ", before);
        put(name, length);
        printf(" (%c)", name[length + 1]);
        before = " ,\n";
    }
    putchar('\n');
}

/* ---- pages ---- */

static void print_program(void)
{
    title("ddl", "1", "train, evaluate and sample Deep Delta Learning models");
    heading("SH", "synopsis");
    fputs(".HP\n\\fBddl\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR ...]\n.HP\n\\fBddl \\-\\-version\\fR\n",
          stdout);
    heading("SH", "description");
    put_text((const char *const[]){
        "A Transformer adds each sublayer's output to its residual stream.",
        "Deep Delta Learning rewrites a state instead, by a gated rank-1 step along a unit direction.",
        "ddl builds the data, trains such models and the baseline, evaluates and compares them.",
        "Results are written to standard output, progress and error messages to standard error.", NULL });
    heading("SH", "commands");
    for (size_t i = 0; commands[i]; i++) {
        tag(commands[i]->name, strlen(commands[i]->name));
        put_help(commands[i]->about);
    }
    heading("SH", "options");
    static const struct note rows[] = { { "--help, -h", "What a command does; the same as ddl help COMMAND" },
                                        { "--version [--verbose]",
                                          "Print the version; with --verbose, also the libraries in use" },
                                        { 0 } };
    for (const struct note *row = rows; row->name; row++) {
        tag(row->name, strlen(row->name));
        put_help(row->about);
    }
    put_text((const char *const[]){ "Every option --name VALUE can also be written --name=VALUE, with '_' "
                                    "in place of '-'; --no-name turns a boolean option off.",
                                    NULL });
    exit_statuses();
    notes(
        "environment",
        (const struct note[]){
            { "OMP_NUM_THREADS", "Threads of one process where --threads is 0" },
            { "GOMP_SPINCOUNT, OMP_WAIT_POLICY",
              "How threads wait for each other; where neither is set, ddl sets the first to 3000" },
            { "DDL_ISA",
              "The instruction set of the kernels, if not the best available one: baseline, avx2, avx512, "
              "avx512vnni, avx512bf16, amx" },
            { "DDL_COMM", "Whether this is one of several ranks: mpi, or none, even if a launcher has "
                          "started several. If not set, the launcher's environment variables decide" },
            { "DDL_COMM_PLUGIN", "Path of the MPI plugin, if not the one in the folders of the program and "
                                 "its library; no other "
                                 "place is searched" },
            { "DDL_BACKEND_PLUGIN", "Path of a plugin with a backend, libddl_NAME.so, besides those in the "
                                    "folders of the program and its library" },
            { "DDL_EXCHANGE",
              "How ranks exchange gradients: host: through host memory and MPI; device: between their "
              "devices, or an error; if not set: between devices where each rank has one of its "
              "own and the library for it" },
            { "DDL_API_KEY", "A key of the clients of ddl serve" },
            { "DDL_COMM_TIMEOUT", "Seconds to wait for another rank before the job is aborted; 0: no limit" },
            { 0 } });
    notes("files", (const struct note[]){ { "PREFIX/share/ddl/tokenizer",
                                            "GPT-2's tokenizer, the default of commands that need one" },
                                          { "PREFIX/share/ddl/recipes", "Recipes of ddl train" },
                                          { 0 } });
    notes("examples",
          (const struct note[]){
              { "ddl tokenizer train corpus.txt --vocab-size 8192 --out my/tokenizer.json", "A vocabulary" },
              { "ddl data build corpus.txt --tokenizer my/tokenizer.json --out my/shards", "Tokens" },
              { "ddl train --model ddl-cc-ec --size tiny --tokenizer my/tokenizer.json "
                "--train-data my/shards --out my/run",
                "A model" },
              { "ddl generate my/run --prompt Once", "A text" },
              { 0 } });
    see_also("ddl");
}

static void print_command(const struct command *command)
{
    char name[64];
    snprintf(name, sizeof name, "ddl-%s", command->name);
    title(name, "1", command->about);
    heading("SH", "synopsis");
    for (size_t i = 0; command->actions && command->actions[i]; i++)
        synopsis(command->actions[i]);
    if (!command->actions)
        synopsis(command);
    heading("SH", "description");
    put_help(command->about);
    put_text(command->text);
    for (size_t i = 0; command->actions && command->actions[i]; i++) {
        const struct command *action = command->actions[i];
        snprintf(name, sizeof name, "ddl %s", action->name);
        heading("SS", name);
        put_help(action->about);
        put_text(action->text);
    }
    heading("SH", "options");
    for (size_t i = 0; command->actions && command->actions[i]; i++) {
        snprintf(name, sizeof name, "options of ddl %s", command->actions[i]->name);
        options(command->actions[i], name);
    }
    options(command, NULL);
    exit_statuses();
    if (command->keys)
        notes(command->keys_title, command->keys());
    notes("files", command->files);
    notes("examples", command->examples);
    snprintf(name, sizeof name, "ddl-%s", command->name);
    see_also(name);
}

/* The named models or sizes: name and line of number i, or NULL past the last. */
static void names(const char *title_of, const char *(*list)(size_t i, const char **about))
{
    const char *about, *name;
    heading("SH", title_of);
    for (size_t i = 0; (name = list(i, &about)); i++) {
        tag(name, strlen(name));
        put_help(about);
    }
}

static void print_recipe(void)
{
    const struct ddl_train_config defaults = ddl_train_defaults();
    title("ddl-recipe", "5", "the recipe of a run of ddl train");
    heading("SH", "synopsis");
    fputs("\\fIkey\\fR: \\fIvalue\\fR\n", stdout);
    heading("SH", "description");
    put_text((const char *const[]){
        "A recipe is a flat YAML mapping in UTF-8, one key per line; # starts a comment.",
        "Each key is also an option of ddl train, with '-' for '_'; options override the recipe.",
        "Unknown and duplicate keys are errors with file and line.",
        "The keys model, size and init_from set defaults of the model's keys,",
        "which explicit keys override.",
        "Relative paths are relative to the working directory, or, with 'relative_to: recipe', to the folder",
        "of the recipe.", "The defaults below are those without the keys model, size and init_from.", NULL });
    keys("keys of the run", ddl_train_options(), &defaults);
    keys("keys of the model", ddl_config_options(), &defaults.config);
    names("named models", ddl_config_preset_list);
    names("controls of delta models, suffixes of their names", ddl_config_control_list);
    names("named sizes", ddl_config_size_list);
    heading("SH", "examples");
    fputs(".nf\nmodel: ddl\\-cc\\-ec\nsize: tiny\ntrain_data: my/shards\n"
          "tokenizer: my/tokenizer.json\nout: my/run\nsteps: 3000\nlr: 2e\\-3\n.fi\n",
          stdout);
    notes("files",
          (const struct note[]){ { "PREFIX/share/ddl/recipes", "Recipes that ship with ddl" }, { 0 } });
    see_also("ddl-recipe");
}

static size_t n_commands(void)
{
    size_t n = 0;
    while (commands[n])
        n++;
    return n;
}

bool manual_name(size_t i, char *out, size_t size)
{
    size_t n = n_commands();
    if (i == 0)
        snprintf(out, size, "ddl.1");
    else if (i <= n)
        snprintf(out, size, "ddl-%s.1", commands[i - 1]->name);
    else
        snprintf(out, size, "ddl-recipe.5");
    return i <= n + 1;
}

void print_manual(size_t i)
{
    size_t n = n_commands();
    if (i == 0)
        print_program();
    else if (i <= n)
        print_command(commands[i - 1]);
    else
        print_recipe();
}
