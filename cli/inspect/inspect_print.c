/* The text that ddl inspect prints. */
#include "cli/output/escape.h"
#include "cli/inspect/inspect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table of figures ---- */

/* Whether any sublayer has figure f. */
static bool is_present(const ddl_inspection *in, size_t f)
{
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        if (!isnan(ddl_inspect_sublayer(in, s)->figures.value[f]))
            return true;
    }
    return false;
}

/* The figures with a column, those of updates last; returns how many. */
static size_t list_columns(const ddl_inspection *in, size_t n_figures,
                           const struct ddl_figure *const *figures, size_t columns[DDL_MOST_FIGURES])
{
    size_t n = 0;
    for (int of_update = 0; of_update < 2; of_update++) {
        for (size_t f = 0; f < n_figures; f++) {
            if (figures[f]->title && (figures[f]->kind <= DDL_FIGURE_SHRINK) == of_update &&
                is_present(in, f))
                columns[n++] = f;
        }
    }
    return n;
}

/* Right-aligned; a letter may have several bytes. */
static void print_title(const char *title, int width)
{
    int letters = 0;
    for (const char *c = title; *c; c++)
        letters += ((unsigned char)*c & 0xC0) != 0x80;
    printf("%*s%s", width - letters, "", title);
}

static void print_number(double value, int width, int digits)
{
    if (isnan(value))
        printf("%*s", width, "-");
    else
        printf("%*.*f", width, digits, value);
}

/* "attn", or with several steps "attn.0". */
static const char *name_of(const struct ddl_inspect_sublayer *s, char name[16])
{
    snprintf(name, 16, s->n_steps > 1 ? "%s.%u" : "%s", ddl_sublayer_names[s->sub], (unsigned)s->step);
    return name;
}

static void print_sublayer(const struct ddl_inspect_sublayer *s)
{
    char name[16];
    printf("%5zu  %-4s  %-7s", s->layer, name_of(s, name), s->rule);
}

static void print_figures(const ddl_inspection *in)
{
    const struct ddl_figure *figures[DDL_MOST_FIGURES];
    size_t columns[DDL_MOST_FIGURES], n = list_columns(in, ddl_figure_list(figures), figures, columns);
    printf("\nlayer  sub   rule   ");
    for (size_t c = 0; c < n; c++)
        print_title(figures[columns[c]]->title, figures[columns[c]]->digits + 4);
    putchar('\n');
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(in, s);
        print_sublayer(sublayer);
        for (size_t c = 0; c < n; c++) {
            int digits = figures[columns[c]]->digits;
            print_number(sublayer->figures.value[columns[c]], digits + 4, digits);
        }
        putchar('\n');
    }
}

/* ---- what follows it ---- */

static void print_behavior(const ddl_inspection *in)
{
    bool begun = false;
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(in, s);
        char text[128], name[16];
        ddl_inspect_behavior(sublayer, text, sizeof text);
        if (!*text)
            continue;
        printf("%slayer %zu %s: %s\n", begun ? "" : "\n", sublayer->layer, name_of(sublayer, name), text);
        begun = true;
    }
}

/* c > 1: root mean squares of the value channels, and how much each is read. */
static void print_channels(const struct inspected *i)
{
    const struct ddl_config *k = ddl_model_config(i->folder->model);
    float *read = calloc(k->channels, sizeof *read);
    bool reads = read && read_vector(i->folder->model, 0, read);
    printf("\nvalue channels: root mean square%s\n", reads ? ", and the read vectors" : "");
    for (size_t s = 0; s < ddl_inspect_n_sublayers(i->inspection); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(i->inspection, s);
        print_sublayer(sublayer);
        for (size_t j = 0; j < k->channels; j++)
            print_number(sublayer->channel_rms[j], 8, 3);
        if (reads && sublayer->sub == DDL_SUBLAYER_ATTN && sublayer->step == 0 &&
            read_vector(i->folder->model, sublayer->layer, read)) {
            printf("   read");
            for (size_t j = 0; j < k->channels; j++)
                print_number((double)read[j], 8, 3);
        }
        putchar('\n');
    }
    if (reads && read_vector(i->folder->model, DDL_MAX_LAYERS, read)) {
        printf("%-20s%*s   read", "readout", (int)(8 * k->channels), "");
        for (size_t j = 0; j < k->channels; j++)
            print_number((double)read[j], 8, 3);
        putchar('\n');
    }
    free(read);
}

static void print_weights(const char *title, size_t n, const double *weights)
{
    printf("  %s", title);
    for (size_t j = 0; j < n; j++)
        print_number(weights[j], 7, 3);
}

/* The first sublayer with means of lists, or with means of matrices; NULL if there is none. */
static const struct ddl_inspect_sublayer *with_means(const ddl_inspection *in, bool matrices)
{
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(in, s);
        for (size_t m = 0; m < sublayer->n_means; m++) {
            if ((sublayer->means[m].rows > 0) == matrices)
                return sublayer;
        }
    }
    return NULL;
}

/* Means over tokens of lists, a line for each sublayer, after the root mean squares of streams. */
static void print_lists(const struct inspected *i)
{
    const struct ddl_config *k = ddl_model_config(i->folder->model);
    const struct ddl_inspect_sublayer *first = with_means(i->inspection, false);
    size_t n = ddl_config_has_streams(k) ? ddl_config_state_channels(k) : 0;
    if (!first)
        return;
    printf("\n%s", n ? "streams: root mean square" : "means over tokens");
    for (size_t m = 0; m < first->n_means; m++)
        printf("%s%s", first->means[m].rows ? "" : ", ", first->means[m].rows ? "" : first->means[m].about);
    putchar('\n');
    for (size_t s = 0; s < ddl_inspect_n_sublayers(i->inspection); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(i->inspection, s);
        print_sublayer(sublayer);
        if (n)
            print_weights("rms", n, sublayer->channel_rms);
        for (size_t m = 0; m < sublayer->n_means; m++) {
            const struct ddl_inspect_mean *mean = &sublayer->means[m];
            if (!mean->rows)
                print_weights(mean->title, mean->columns, mean->value);
        }
        putchar('\n');
    }
}

/* Means over tokens of matrices, row by row. */
static void print_matrices(const ddl_inspection *in)
{
    const struct ddl_inspect_sublayer *first = with_means(in, true);
    if (!first)
        return;
    for (size_t m = 0; m < first->n_means; m++) {
        if (first->means[m].rows && (m == 0 || strcmp(first->means[m].about, first->means[m - 1].about) != 0))
            printf("\n%s, and the products of those up to each sublayer\n", first->means[m].about);
    }
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(in, s);
        for (size_t k = 0; k < first->means[first->n_means - 1].rows; k++) {
            if (k == 0)
                print_sublayer(sublayer);
            else
                printf("%20s", "");
            for (size_t m = 0, n = 0; m < sublayer->n_means; m++) {
                const struct ddl_inspect_mean *mean = &sublayer->means[m];
                if (k < mean->rows)
                    print_weights(n++ ? "  " : "", mean->columns, mean->value + k * mean->columns);
            }
            putchar('\n');
        }
    }
}

/* The mean gate at positions [from, to). */
static double mean_between(const struct ddl_inspect_sublayer *s, size_t from, size_t to)
{
    double sum = 0;
    for (size_t t = from; t < to; t++)
        sum += s->by_position[t];
    return sum / (double)(to - from);
}

/* Columns of 1, 1, 2, 4, ... positions. */
static void print_positions(const ddl_inspection *in)
{
    size_t seq = ddl_inspect_seq(in);
    printf("\ngate by position\nlayer  sub   rule   ");
    for (size_t from = 0; from < seq; from = from ? 2 * from : 1)
        printf("%5zu+", from);
    putchar('\n');
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(in, s);
        if (!sublayer->by_position)
            continue;
        print_sublayer(sublayer);
        for (size_t from = 0, to; from < seq; from = to) {
            to = from ? 2 * from : 1;
            print_number(mean_between(sublayer, from, to < seq ? to : seq), 6, 2);
        }
        putchar('\n');
    }
}

static void print_context(const ddl_tokenizer *tokenizer, const struct ddl_inspect_token *token)
{
    for (size_t t = 0; t < token->n; t++) {
        size_t size = 0;
        const char *bytes = tokenizer ? ddl_tokenizer_bytes(tokenizer, token->tokens[t], &size) : NULL;
        printf("%s", t == token->at ? "[" : "");
        if (bytes)
            print_field_text(bytes, size);
        else
            printf("%s%ld", t ? " " : "", (long)token->tokens[t]);
        printf("%s", t == token->at ? "]" : "");
    }
    putchar('\n');
}

static void print_extremes(const struct inspected *i)
{
    printf("\ntokens with the highest and the lowest gate, in context\n");
    for (size_t s = 0; s < ddl_inspect_n_sublayers(i->inspection); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(i->inspection, s);
        const struct ddl_inspect_token *of[] = { sublayer->highest, sublayer->lowest };
        for (size_t e = 0; e < 2 && sublayer->n_extremes; e++) {
            print_sublayer(sublayer);
            printf("  %.3f  ", of[e]->beta);
            print_context(i->folder->tokenizer, of[e]);
        }
    }
}

/* How many sublayers have a gate. */
static size_t count_gates(const ddl_inspection *in)
{
    size_t n = 0;
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++)
        n += ddl_inspect_sublayer(in, s)->gates != NULL;
    return n;
}

/* ---- a prompt ---- */

/* The gate of each sublayer for every token; the size of the step where a sublayer has none. */
static void print_prompt_table(const struct inspected *i)
{
    const ddl_inspection *in = i->inspection;
    const int32_t *tokens = ddl_inspect_first_tokens(in);
    size_t S = ddl_inspect_n_sublayers(in);
    const char *step = "the size of the step |X' - X| / |X|";
    size_t n_gates = count_gates(in);
    printf("\n%s%s%s of each sublayer (a: attention, m: MLP)\n", n_gates ? "gate" : "",
           n_gates && n_gates < S ? ", or without one " : "", n_gates < S ? step : "");
    for (size_t s = 0; s < S; s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(in, s);
        printf("%5zu%c", sublayer->layer, ddl_sublayer_names[sublayer->sub][0]);
    }
    printf("  token\n");
    for (size_t n = 0; n < ddl_inspect_sublayer(in, 0)->n_rows; n++) {
        size_t size = 0;
        const char *bytes = ddl_tokenizer_bytes(i->folder->tokenizer, tokens[n], &size);
        for (size_t s = 0; s < S; s++) {
            const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(in, s);
            print_number((double)(sublayer->gates ? sublayer->gates : sublayer->steps)[n], 6, 2);
        }
        printf("  ");
        print_field_text(bytes ? bytes : "", size);
        putchar('\n');
    }
}

/* ---- all ---- */

static void print_depth(const struct ddl_inspect_depth *depth)
{
    printf("\nover depth: log |det| %.4f", depth->log_det);
    if (depth->tokens)
        printf(", singular values %.4f to %.4f (means of %llu tokens)", depth->sigma_min, depth->sigma_max,
               (unsigned long long)depth->tokens);
    putchar('\n');
}

/* Singular values of the product of the shortcuts up to each delta sublayer. */
static void print_products(const ddl_inspection *in)
{
    printf("\nproduct of the shortcuts up to a sublayer\n%5s  %-4s %9s %9s\n", "layer", "sub", "sigma_min",
           "sigma_max");
    for (size_t s = 0; s < ddl_inspect_n_sublayers(in); s++) {
        const struct ddl_inspect_sublayer *sublayer = ddl_inspect_sublayer(in, s);
        char name[16];
        if (sublayer->is_delta)
            printf("%5zu  %-4s %9.4f %9.4f\n", sublayer->layer, name_of(sublayer, name), sublayer->sigma_min,
                   sublayer->sigma_max);
    }
}

/* The weights of the sums of states, of the latest state first. */
static void print_averages(const ddl_model *model)
{
    const struct ddl_config *k = ddl_model_config(model);
    float weights[DDL_MAX_LAYERS + 1];
    printf("\nweights of the states after blocks in the sum after a layer, that of its own block "
           "first\nlayer\n");
    for (size_t l = 0, row; l < k->n_layers; l++) {
        const struct ddl_param *param = average_weights(model, l, &row);
        if (!param)
            continue;
        ddl_model_read_param(model, row, weights);
        printf("%5zu", l);
        for (size_t j = param->count; j-- > 0;)
            print_number((double)weights[j], 8, 3);
        putchar('\n');
    }
}

void print_inspection(const struct inspected *i)
{
    const ddl_inspection *in = i->inspection;
    struct ddl_loss loss = ddl_inspect_loss(in);
    const struct ddl_inspect_depth *depth = ddl_inspect_depth(in);
    char mean[32] = "-"; /* a single token has no target */
    if (loss.n_targets)
        snprintf(mean, sizeof mean, "%.4f", loss.sum / (double)loss.n_targets);
    printf("%s: loss %s on %llu tokens in sequences of %zu\n", printable(i->dir), mean,
           (unsigned long long)ddl_inspect_tokens(in), ddl_inspect_seq(in));
    for (const char *spec = i->force; *spec; spec += strcspn(spec, "\n") + (strchr(spec, '\n') != NULL))
        printf("forced: %.*s\n", (int)strcspn(spec, "\n"), spec);
    if (i->prompt) {
        print_prompt_table(i);
        return;
    }
    print_figures(in);
    print_behavior(in);
    if (ddl_model_config(i->folder->model)->channels > 1)
        print_channels(i);
    print_lists(i);
    print_matrices(in);
    if (ddl_model_config(i->folder->model)->dense_average)
        print_averages(i->folder->model);
    if (count_gates(in) > 0)
        print_positions(in);
    if (depth)
        print_depth(depth);
    if (depth && depth->tokens)
        print_products(in);
    if (count_gates(in) > 0)
        print_extremes(i);
}
