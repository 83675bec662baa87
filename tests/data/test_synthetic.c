/* Tests data/synthetic.c: answers are solved again from the text, masks count them in their groups, no
 * problem is in both splits, and a seed gives the same files. */
#include "support/runs.h"

#include "ddl/data.h"
#include "ddl/eval.h"
#include "ddl/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST = 1 << 16, LONGEST = 300 };

/* Problems of a split, one after the other, each with a NUL. */
struct problems {
    char text[4 * MOST];
    size_t n, size;
};

static void add_problem(struct problems *p, const char *text, size_t n)
{
    assert_true(p->size + n + 1 < sizeof p->text);
    memcpy(p->text + p->size, text, n);
    p->text[p->size + n] = '\0';
    p->size += n + 1;
    p->n++;
}

/* ---- solutions: text of a sequence without its first token, and a digit for the group of each character
 * ---- */

/* The group of a query: '0' if an earlier one has the same symbol and hops, or, in a cycle of n symbols (0:
 * no cycle), is its inverse: from its end, n less its hops. Queries are hops, symbol, answer from `symbol`
 * on. */
static char group_of_query(const char *first, const char *query, int symbol, int hops, int n)
{
    for (const char *earlier = first; earlier < query; earlier += 3) {
        if (earlier[symbol] == query[symbol] && earlier[hops] == query[hops])
            return '0';
        if (n && earlier[2] == query[symbol] && earlier[hops] - '0' + query[hops] - '0' == n)
            return '0';
    }
    return query[hops];
}

static void solve_pointer(const char *text, const char *groups, struct problems *out)
{
    const char *bar = strchr(text, '|');
    char next[128] = { 0 };
    assert_int_equal(bar - text, 8);
    for (const char *at = text; at < bar; at += 2) {
        assert_true(at[0] >= 'a' && at[0] <= 'd' && !next[(int)at[0]]);
        next[(int)at[0]] = at[1];
    }
    for (const char *at = bar + 1; *at; at += 3) {
        char end = at[0];
        assert_true(at[1] == '1' || at[1] == '3');
        for (int h = at[1] - '0'; h > 0; h--)
            end = next[(int)end];
        assert_int_equal(at[2], end);
        assert_int_equal(groups[at + 2 - text], group_of_query(bar + 1, at, 0, 1, 0));
    }
    add_problem(out, text, strlen(text));
}

/* With cycle and pair_tokens: the symbols a to d, then a token for each pair of them. */
static void solve_pair_tokens(const char *text, const char *groups, struct problems *out)
{
    int next[4] = { -1, -1, -1, -1 }, at = 0, steps = 0;
    assert_int_equal(strchr(text, '|') - text, 4);
    for (int i = 0; i < 4; i++) {
        const int pair = text[i] - 'e';
        assert_true(pair >= 0 && pair < 16 && next[pair / 4] < 0);
        next[pair / 4] = pair % 4;
    }
    do {
        at = next[at];
        steps++;
    } while (at != 0);
    assert_int_equal(steps, 4);
    for (const char *query = text + 5; *query; query += 3) {
        int end = query[1] - 'a';
        assert_true(query[0] == '1' || query[0] == '3');
        for (int h = query[0] - '0'; h > 0; h--)
            end = next[end];
        assert_int_equal(query[2], 'a' + end);
        assert_int_equal(groups[query + 2 - text], group_of_query(text + 5, query, 1, 0, 4));
    }
    add_problem(out, text, strlen(text));
}

static void solve_mqar(const char *text, const char *groups, struct problems *out)
{
    const char *bar = strchr(text, '|');
    assert_int_equal(bar - text, 8);
    for (const char *at = bar + 1; *at; at += 2) {
        const char *pair = text;
        while (pair < bar && *pair != *at)
            pair += 2;
        assert_true(pair < bar && at[0] <= 'f' && at[1] > 'f' && at[1] == pair[1]);
        assert_int_equal(groups[at + 1 - text], '1');
    }
    add_problem(out, text, strlen(text));
}

/* With pair_tokens and three symbols: keys a to c, values d to f, then a token for each pair of them. */
static void solve_mqar_pairs(const char *text, const char *groups, struct problems *out)
{
    int value[3] = { -1, -1, -1 };
    assert_int_equal(strchr(text, '|') - text, 2);
    for (int i = 0; i < 2; i++) {
        const int pair = text[i] - 'g';
        assert_true(pair >= 0 && pair < 9 && value[pair / 3] < 0);
        value[pair / 3] = pair % 3;
    }
    for (const char *query = text + 3; *query; query += 2) {
        assert_true(query[0] >= 'a' && query[0] <= 'c');
        assert_int_equal(query[1], 'd' + value[query[0] - 'a']);
        assert_int_equal(groups[query + 1 - text], '1');
    }
    add_problem(out, text, strlen(text));
}

/* Whether the text up to `problem` has the same problem with its sign: problems begin the text, or follow an
 * answer of `fixed` symbols, or of as many as the problem has. */
static bool is_repeated_word(const char *text, const char *word, size_t m, size_t fixed)
{
    for (const char *at = text, *end; at < word; at = end + 1 + (fixed ? fixed : (size_t)(end - at))) {
        end = strchr(at, '=');
        if ((size_t)(end - at) == m && memcmp(at, word, m) == 0)
            return true;
    }
    return false;
}

/* Calls `check` for each "word=answer"; all symbols of the answer have the group of the word's length, unless
 * the text has the problem before. */
static void solve_words(const char *text, const char *groups, size_t fixed,
                        void (*check)(const char *word, size_t m, const char *answer), struct problems *out)
{
    for (const char *word = text, *end; (end = strchr(word, '='));) {
        size_t m = (size_t)(end - word), n = fixed ? fixed : m;
        check(word, m, end + 1);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(groups[end + 1 + i - text],
                             is_repeated_word(text, word, m, fixed) ? '0' : '0' + (int)m);
        add_problem(out, word, m);
        word = end + 1 + n;
    }
}

static void check_permutation(const char *word, size_t m, const char *answer)
{
    static const char ranked[6][4] = { "012", "021", "102", "120", "201", "210" };
    char state[4] = "012";
    for (size_t i = 0; i < m; i++) {
        for (int e = 0; e < 3; e++)
            state[e] = ranked[word[i] - 'a'][state[e] - '0'];
    }
    assert_string_equal(state, ranked[*answer - 'a']);
}

static void solve_permutation(const char *text, const char *groups, struct problems *out)
{
    solve_words(text, groups, 1, check_permutation, out);
}

static void check_parity(const char *word, size_t m, const char *answer)
{
    int ones = 0;
    for (size_t i = 0; i < m; i++)
        ones += word[i] == 'b';
    assert_int_equal(*answer, 'a' + ones % 2);
}

/* Whether an earlier problem of the text begins with the m symbols: it has given the state after them. */
static bool is_repeated_prefix(const char *text, const char *word, size_t m)
{
    for (const char *at = text, *end; at < word; at = end + 1 + (end - at)) {
        end = strchr(at, '=');
        if ((size_t)(end - at) >= m && memcmp(at, word, m) == 0)
            return true;
    }
    return false;
}

/* With `states`: calls `check` for each prefix of each word, whose answer is in the group of its length. */
static void solve_states(const char *text, const char *groups,
                         void (*check)(const char *word, size_t m, const char *answer), struct problems *out)
{
    for (const char *word = text, *end; (end = strchr(word, '='));) {
        const size_t m = (size_t)(end - word);
        for (size_t i = 1; i <= m; i++) {
            check(word, i, end + i);
            assert_int_equal(groups[end + i - text], is_repeated_prefix(text, word, i) ? '0' : '0' + (int)i);
        }
        add_problem(out, word, m);
        word = end + 1 + m;
    }
}

static void solve_permutation_states(const char *text, const char *groups, struct problems *out)
{
    solve_states(text, groups, check_permutation, out);
}

static void solve_parity(const char *text, const char *groups, struct problems *out)
{
    solve_words(text, groups, 1, check_parity, out);
}

static void solve_parity_states(const char *text, const char *groups, struct problems *out)
{
    solve_states(text, groups, check_parity, out);
}

static void check_reverse(const char *word, size_t m, const char *answer)
{
    for (size_t i = 0; i < m; i++)
        assert_int_equal(answer[i], word[m - 1 - i]);
}

static void solve_reverse(const char *text, const char *groups, struct problems *out)
{
    solve_words(text, groups, 0, check_reverse, out);
}

static void solve_modular(const char *text, const char *groups, struct problems *out)
{
    static const char operators[] = "+-*";
    for (const char *at = text; *at && *at != '.'; at += 5) {
        int a = at[0] - 'a', b = at[2] - 'a';
        int results[] = { (a + b) % 7, (a + 7 - b) % 7, a * b % 7 };
        const char *op = strchr(operators, at[1]);
        assert_true(op && at[3] == '=' && a < 7 && b < 7);
        assert_int_equal(at[4] - 'a', results[op - operators]);
        bool is_repeated = false;
        for (const char *earlier = text; earlier < at; earlier += 5)
            is_repeated = is_repeated || memcmp(earlier, at, 4) == 0;
        assert_int_equal(groups[at + 4 - text], is_repeated ? '0' : '1' + (op - operators));
        add_problem(out, at, 3);
    }
}

/* ---- tests ---- */

static struct ddl_synthetic_config small(int task, const char *out)
{
    struct ddl_synthetic_config c = ddl_synthetic_defaults();
    c.task = task;
    c.sequences = 40;
    c.val_sequences = 10;
    c.val_fraction = 0.25;
    c.once = task != DDL_SYNTHETIC_MQAR;
    snprintf(c.out, sizeof c.out, "%s", scratch_path(out));
    switch (task) {
    case DDL_SYNTHETIC_POINTER:
        c.pairs = 4;
        c.queries = 3;
        snprintf(c.hops, sizeof c.hops, "1,3");
        break;
    case DDL_SYNTHETIC_MQAR:
        c.symbols = 6;
        c.pairs = 4;
        c.queries = 4;
        break;
    case DDL_SYNTHETIC_PERMUTATION:
        c.elements = 3;
        c.steps = 6;
        break;
    case DDL_SYNTHETIC_PARITY:
        c.steps = 9;
        break;
    case DDL_SYNTHETIC_MODULAR:
        c.modulus = 7;
        c.length = 33;
        snprintf(c.operators, sizeof c.operators, "*+-");
        break;
    default:
        c.steps = 5;
        c.symbols = 3;
    }
    return c;
}

typedef void solve_fn(const char *text, const char *groups, struct problems *out);

/* Solves the sequences of a split, and checks that exactly the answers are counted: their groups are '0'
 * after the solution has read them. */
static uint64_t solve_split(const char *folder, int split, size_t length, solve_fn *solve,
                            struct problems *out)
{
    struct ddl_error err;
    ddl_tokenizer *tokenizer;
    ddl_shards *shards;
    uint64_t counted = 0;
    *out = (struct problems){ 0 };
    assert_ok(ddl_tokenizer_load(&tokenizer, folder, &err), err);
    assert_ok(ddl_shards_open_with(&shards, folder, &(struct ddl_shards_options){ .split = split }, &err),
              err);
    assert_int_equal(ddl_shards_count(shards) % length, 0);
    for (uint64_t at = 0; at < ddl_shards_count(shards); at += length) {
        int32_t ids[LONGEST];
        unsigned char mask[LONGEST];
        char text[LONGEST] = "", groups[LONGEST] = "";
        assert_true(length < LONGEST);
        ddl_shards_read(shards, at, length, ids);
        ddl_shards_read_groups(shards, at, length, mask);
        assert_true(ids[0] == ddl_tokenizer_end_of_text(tokenizer) && mask[0] == 0);
        for (size_t i = 1; i < length; i++) {
            size_t n;
            text[i - 1] = *ddl_tokenizer_bytes(tokenizer, ids[i], &n);
            groups[i - 1] = (char)('0' + mask[i]);
            assert_int_equal(n, 1);
            counted += mask[i] > 0;
            assert_true(mask[i] == 0 || !strchr("=|.", text[i - 1]));
        }
        solve(text, groups, out);
    }
    ddl_shards_close(shards);
    ddl_tokenizer_free(tokenizer);
    return counted;
}

static void problems_are_solved(void **state)
{
    (void)state;
    static solve_fn *const solve[DDL_SYNTHETIC_KINDS] = { solve_pointer, solve_mqar,    solve_permutation,
                                                          solve_parity,  solve_modular, solve_reverse };
    static struct problems train, val;
    for (int task = 0; task < DDL_SYNTHETIC_KINDS; task++) {
        struct ddl_synthetic_config c = small(task, "tasks");
        struct ddl_synthetic_result r;
        struct ddl_error err;
        remove_scratch("tasks");
        assert_ok(ddl_data_synthetic(&c, NULL, NULL, &r, &err), err);
        assert_int_equal(solve_split(c.out, DDL_SHARDS_TRAIN, r.length, solve[task], &train), r.counted[0]);
        assert_int_equal(solve_split(c.out, DDL_SHARDS_VAL, r.length, solve[task], &val), r.counted[1]);
        assert_int_equal(train.n, r.problems[0]);
        assert_int_equal(val.n, r.problems[1]);
        assert_true(val.n >= 10);
        for (const char *v = val.text; v < val.text + val.size; v += strlen(v) + 1) {
            for (const char *t = train.text; t < train.text + train.size; t += strlen(t) + 1) {
                if (strcmp(v, t) == 0)
                    fail_msg("%s: %s is in both splits", ddl_synthetic_names[task], v);
            }
        }
    }
}

static void a_pair_is_a_token(void **state)
{
    (void)state;
    static struct problems train;
    struct ddl_synthetic_config c = small(DDL_SYNTHETIC_POINTER, "pairs");
    struct ddl_synthetic_result r;
    struct ddl_error err;
    size_t n;
    c.cycle = c.pair_tokens = true;
    remove_scratch("pairs");
    assert_ok(ddl_data_synthetic(&c, NULL, NULL, &r, &err), err);
    assert_int_equal(r.length, 1 + 4 + 1 + 3 * 3);
    assert_int_equal(solve_split(c.out, DDL_SHARDS_TRAIN, r.length, solve_pair_tokens, &train), r.counted[0]);
    char *record = read_file(file_in(c.out, "shards.json"), &n);
    assert_non_null(strstr(record, "\"cycle\": \"true\""));
    assert_non_null(strstr(record, "\"pair_tokens\": \"true\""));
    free(record);
    c.overwrite = true;
    c.pairs = 16;
    assert_int_equal(ddl_data_synthetic(&c, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "--pairs: expected 2 to 15, found 16");
    c.pairs = 4;
    c.task = DDL_SYNTHETIC_MQAR;
    c.hops[0] = '\0';
    c.once = false;
    assert_int_equal(ddl_data_synthetic(&c, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "--cycle: the task mqar has no such option");
    c.cycle = false;
    c.symbols = 3;
    c.pairs = c.queries = 2;
    assert_ok(ddl_data_synthetic(&c, NULL, NULL, &r, &err), err);
    assert_int_equal(r.length, 1 + 2 + 1 + 2 * 2);
    assert_int_equal(solve_split(c.out, DDL_SHARDS_TRAIN, r.length, solve_mqar_pairs, &train), r.counted[0]);
    c.symbols = 16;
    assert_int_equal(ddl_data_synthetic(&c, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "--symbols: expected 2 to 15, found 16");
}

/* With `states` the state after each symbol is an answer. */
static void each_state_is_an_answer(void **state)
{
    (void)state;
    static const int tasks[] = { DDL_SYNTHETIC_PERMUTATION, DDL_SYNTHETIC_PARITY };
    static solve_fn *const solve[] = { solve_permutation_states, solve_parity_states };
    static struct problems train;
    for (int i = 0; i < 2; i++) {
        struct ddl_synthetic_config c = small(tasks[i], "states");
        struct ddl_synthetic_result r;
        struct ddl_error err;
        c.states = true;
        c.length = 2 * c.steps + 1;
        c.overwrite = true;
        assert_int_equal(ddl_data_synthetic(&c, NULL, NULL, NULL, &err), DDL_E_USAGE);
        assert_says(&err, "--length: expected ");
        c.length = 120;
        assert_ok(ddl_data_synthetic(&c, NULL, NULL, &r, &err), err);
        assert_int_equal(solve_split(c.out, DDL_SHARDS_TRAIN, r.length, solve[i], &train), r.counted[0]);
        assert_int_equal(train.n, r.problems[0]);
        for (size_t m = 1; m <= c.steps; m++)
            assert_true(r.groups[0][m] > 0);
    }
}

/* Without `once` all answers are counted; the tokens are the same. */
static void answers_that_are_given_away(void **state)
{
    (void)state;
    struct ddl_synthetic_config c = small(DDL_SYNTHETIC_POINTER, "once"), all = c;
    struct ddl_synthetic_result once, r;
    struct ddl_error err;
    remove_scratch("once");
    remove_scratch("all");
    snprintf(all.out, sizeof all.out, "%s", scratch_path("all"));
    all.once = false;
    assert_ok(ddl_data_synthetic(&c, NULL, NULL, &once, &err), err);
    assert_ok(ddl_data_synthetic(&all, NULL, NULL, &r, &err), err);
    assert_int_equal(r.counted[0], 40 * 3);
    assert_true(once.counted[0] < r.counted[0] && once.counted[0] > 40);
    assert_int_equal(r.groups[0][1] + r.groups[0][3], r.counted[0]);
    assert_same_file(file_in(c.out, "train_000000.bin"), file_in(all.out, "train_000000.bin"));
    c.overwrite = c.cycle = true;
    snprintf(c.hops, sizeof c.hops, "1,4");
    assert_int_equal(ddl_data_synthetic(&c, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "--hops: 4 hops around a cycle of 4 symbols: expected fewer");
    c.hops[0] = '\0';
    assert_ok(ddl_data_synthetic(&c, NULL, NULL, &r, &err), err);
    assert_true(r.groups[0][1] > 0 && r.groups[0][2] > 0 && r.groups[0][4] + r.groups[0][8] == 0);
}

/* Each number of symbols of which a split has a problem is as frequent as any other, also where long ones
 * often do not fit. */
static void lengths_are_even(void **state)
{
    (void)state;
    struct ddl_error err;
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct ddl_synthetic_config c = small(DDL_SYNTHETIC_PARITY, "lengths");
        struct ddl_synthetic_result r;
        c.seed = seed;
        c.overwrite = true;
        c.once = false;
        c.sequences = c.val_sequences = 400;
        c.val_fraction = 0.1;
        c.steps = seed % 2 ? 9 : 40;
        c.length = seed % 2 ? 0 : 60;
        assert_ok(ddl_data_synthetic(&c, NULL, NULL, &r, &err), err);
        for (int split = 0; split < 2; split++) {
            double lengths = 0;
            for (size_t m = 1; m <= c.steps; m++)
                lengths += r.groups[split][m] > 0;
            assert_true(lengths >= 5);
            for (size_t m = 1; m <= c.steps; m++) {
                const double n = (double)r.groups[split][m], even = (double)r.counted[split] / lengths;
                if (n > 0 && !(fabs(n - even) < 6 * sqrt(even)))
                    fail_msg("seed %d, split %d: %g of %g answers have length %zu", (int)seed, split, n, even,
                             m);
            }
        }
    }
}

static void a_seed_gives_the_same_files(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_synthetic_config a = small(DDL_SYNTHETIC_POINTER, "a"), b = small(DDL_SYNTHETIC_POINTER, "b");
    remove_scratch("a");
    remove_scratch("b");
    assert_ok(ddl_data_synthetic(&a, NULL, NULL, NULL, &err), err);
    assert_ok(ddl_data_synthetic(&b, NULL, NULL, NULL, &err), err);
    static const char *const files[] = { "train_000000.bin", "train_000000.mask", "val_000000.bin",
                                         "val_000000.mask", "tokenizer.json" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_same_file(file_in(a.out, files[i]), file_in(b.out, files[i]));
    assert_int_equal(ddl_data_synthetic(&a, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "a: already has shards (train_000000.bin)");
    size_t n, m;
    char *before = read_file(file_in(b.out, "train_000000.bin"), &n);
    b.overwrite = true;
    b.seed = 1;
    assert_ok(ddl_data_synthetic(&b, NULL, NULL, NULL, &err), err);
    char *after = read_file(file_in(b.out, "train_000000.bin"), &m);
    assert_true(n == m && memcmp(before, after, n) != 0);
    free(before);
    free(after);
}

static void keeps_a_tokenizer(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_synthetic_config c = small(DDL_SYNTHETIC_REVERSE, "kept");
    remove_scratch("kept");
    assert_int_equal(mkdir(c.out, 0777), 0);
    write_file(file_in(c.out, "tokenizer.json"), "mine", 4);
    assert_int_equal(ddl_data_synthetic(&c, NULL, NULL, NULL, &err), DDL_E_USAGE);
    assert_says(&err, "kept/tokenizer.json: exists already: choose another folder or use --overwrite");
    size_t n;
    char *text = read_file(file_in(c.out, "tokenizer.json"), &n);
    assert_true(n == 4 && memcmp(text, "mine", 4) == 0);
    assert_false(ddl_file_exists(file_in(c.out, "shards.json")));
    free(text);
    c.overwrite = true;
    assert_ok(ddl_data_synthetic(&c, NULL, NULL, NULL, &err), err);
}

static void wrong_sizes(void **state)
{
    (void)state;
    struct ddl_error err;
    static const struct {
        int task;
        size_t pairs, queries, steps, length, elements, modulus;
        double val_fraction;
        const char *text, *gist;
    } cases[] = {
        { DDL_SYNTHETIC_PARITY, 3, 0, 0, 0, 0, 0, 0.1, "", "--pairs: the task parity has no such option" },
        { DDL_SYNTHETIC_POINTER, 0, 0, 0, 0, 0, 0, 0.1, "1,10", "--hops: expected up to 9 digits 1 to 9" },
        { DDL_SYNTHETIC_MQAR, 80, 0, 0, 0, 0, 0, 0.1, "", "--pairs: expected 1 to 64, found 80" },
        { DDL_SYNTHETIC_MQAR, 4, 5, 0, 0, 0, 0, 0.1, "", "--queries: expected 1 to 4, found 5" },
        { DDL_SYNTHETIC_PERMUTATION, 0, 0, 0, 0, 6, 0, 0.1, "", "--elements: expected 2 to 5, found 6" },
        { DDL_SYNTHETIC_REVERSE, 0, 0, 20, 30, 0, 0, 0.1, "", "--length: expected 42 to 65536, found 30" },
        { DDL_SYNTHETIC_PARITY, 0, 0, 256, 0, 0, 0, 0.1, "", "--steps: expected 1 to 255, found 256" },
        { DDL_SYNTHETIC_MODULAR, 0, 0, 0, 0, 0, 1, 0.1, "", "--modulus: expected 2 to 256, found 1" },
        { DDL_SYNTHETIC_PARITY, 0, 0, 0, 0, 0, 0, 1, "",
          "--val_fraction: expected a number between 0 and 1" },
        { DDL_SYNTHETIC_PARITY, 0, 0, 1, 0, 0, 0, 1e-9, "",
          "val_fraction: none of 10000 problems is for validation" },
        { 9, 0, 0, 0, 0, 0, 0, 0.1, "", "task: 9 is out of range" },
    };
    remove_scratch("wrong");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddl_synthetic_config c = ddl_synthetic_defaults();
        snprintf(c.out, sizeof c.out, "%s", scratch_path("wrong"));
        c.task = cases[i].task;
        c.pairs = cases[i].pairs;
        c.queries = cases[i].queries;
        c.steps = cases[i].steps;
        c.length = cases[i].length;
        c.elements = cases[i].elements;
        c.modulus = cases[i].modulus;
        c.val_fraction = cases[i].val_fraction;
        c.sequences = 2;
        snprintf(c.hops, sizeof c.hops, "%s", cases[i].text);
        assert_int_equal(ddl_data_synthetic(&c, NULL, NULL, NULL, &err), DDL_E_USAGE);
        assert_says(&err, cases[i].gist);
        assert_false(ddl_file_exists(scratch_path("wrong")));
    }
}

/* A run that reads whole sequences validates on the windows that ddl eval reads, whole sequences. */
static void check_validation(const struct ddl_synthetic_config *c, const struct ddl_synthetic_result *r,
                             int order)
{
    struct ddl_error err;
    struct ddl_eval_result eval;
    struct ddl_train_progress last;
    struct ddl_eval_group groups[DDL_MASK_GROUPS];
    ddl_shards *shards;
    ddl_backend *backend;
    ddl_model *model;
    remove_scratch("run");
    struct ddl_train_config t = tiny_run("ddl-1", 64, "ref", "run");
    snprintf(t.train_data, sizeof t.train_data, "%s", c->out);
    t.order = order;
    t.seq = t.config.block_size = r->length;
    t.steps = 2;
    t.warmup = 0;
    t.val_every = 2;
    t.val_tokens = 100000;
    assert_ok(ddl_train_run(&t, NULL, &last, &err), err);
    assert_ok(ddl_backend_create(&backend, "ref", 0, &err), err);
    assert_ok(ddl_model_load(&model, t.out, backend, NULL, NULL, &err), err);
    assert_ok(
        ddl_shards_open_with(&shards, c->out, &(struct ddl_shards_options){ .split = DDL_SHARDS_VAL }, &err),
        err);
    const struct ddl_eval_config config = { .groups = groups };
    assert_ok(ddl_eval_shards(model, NULL, shards, &config, &eval, &err), err);
    assert_int_equal(eval.tokens, r->counted[1]);
    assert_int_equal(groups[1].answers, r->counted[1]);
    assert_true(last.has_val && fabs(last.val_loss - eval.loss) < 1e-6);
    ddl_shards_close(shards);
    ddl_model_free(model);
    ddl_backend_free(backend);
}

static void a_run_validates_whole_sequences(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_synthetic_config c = small(DDL_SYNTHETIC_MQAR, "mqar");
    struct ddl_synthetic_result r;
    remove_scratch("mqar");
    assert_ok(ddl_data_synthetic(&c, NULL, NULL, &r, &err), err);
    check_validation(&c, &r, DDL_ORDER_ALIGNED);
    check_validation(&c, &r, DDL_ORDER_SEQUENTIAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(problems_are_solved),
        cmocka_unit_test(a_pair_is_a_token),
        cmocka_unit_test(each_state_is_an_answer),
        cmocka_unit_test(answers_that_are_given_away),
        cmocka_unit_test(lengths_are_even),
        cmocka_unit_test(a_seed_gives_the_same_files),
        cmocka_unit_test(keeps_a_tokenizer),
        cmocka_unit_test(wrong_sizes),
        cmocka_unit_test(a_run_validates_whole_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
