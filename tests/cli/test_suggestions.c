/* What each command suggests for an unknown option: a table of inputs and messages. */
#include "support/program.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *arguments, *says; /* a message that ends in '\n' is compared to its end */
} cases[] = {
    /* typos */
    { "train --sped 1", "unknown option '--sped', did you mean '--seed'?\n" },
    { "train --weight-deacy 0.1", "did you mean '--weight-decay'?\n" },
    { "train --learningrate 1", "did you mean '--lr'?\n" },
    { "train --rl 1", "did you mean '--lr'?\n" },
    { "train --LR 1", "did you mean '--lr'?\n" },
    { "train --no-resme", "did you mean '--no-resume'?\n" },
    { "train --ddl-value-chanels 2", "did you mean '--ddl-value-channels'?\n" },
    { "generate x --promt a", "did you mean '--prompt'?\n" },
    { "generate x --maxtokens 3", "did you mean '--max-tokens'?\n" },
    { "sweep x --dryrun", "did you mean '--dry-run'?\n" },
    { "compare x --markdwon", "did you mean '--markdown'?\n" },
    { "compare x --contrasts a", "did you mean '--contrast'?\n" },
    { "compare x --margn 3", "did you mean '--margin'?\n" },
    { "compare x --corection none", "did you mean '--correction'?\n" },
    { "inspect x --save-state f", "did you mean '--save-states'?\n" },
    { "inspect x --save-sublayer 0.mlp", "did you mean '--save-sublayers'?\n" },
    { "export x --ignore-extras", "did you mean '--ignore-extra'?\n" },
    { "verify x --jsn", "did you mean '--json'?\n" },
    { "help --pags", "did you mean '--pages'?\n" },
    /* abbreviations and words */
    { "data build --val-frac 0.1", "did you mean '--val-fraction'?\n" },
    { "data info x --voc 3", "did you mean '--vocab'?\n" },
    { "data synthetic pointer --hop 3", "did you mean '--hops'?\n" },
    { "train --num-heads 4", "did you mean '--num-attention-heads'?\n" },
    { "train --heads 4", "did you mean '--num-attention-heads'?\n" },
    { "train --layers 4", "did you mean '--num-hidden-layers'?\n" },
    { "train --channels 2", "did you mean '--ddl-value-channels'?\n" },
    { "train --beta 0.9", "did you mean '--beta1' or '--beta2'?\n" },
    { "train --data x", "did you mean '--train-data', '--val-data' or '--tasks-data'?\n" },
    { "train --random-seed 3", "did you mean '--seed'?\n" },
    { "generate x --tokens 5", "did you mean '--max-tokens'?\n" },
    { "eval x --tokens 5", "did you mean '--val-tokens'?\n" },
    { "eval x --task arc", "did you mean '--tasks'?\n" },
    { "inspect x --token 5", "did you mean '--tokens'?\n" },
    { "graft x --layer 3", "did you mean '--layers'?\n" },
    { "tokenizer train --vocab 300", "did you mean '--vocab-size'?\n" },
    { "logprobs x --strid 3", "did you mean '--stride'?\n" },
    { "ablate x --val-token 3", "did you mean '--val-tokens'?\n" },
    { "tokenizer encode --jsno", "did you mean '--json'?\n" },
    { "tokenizer decode --tokenzier x", "did you mean '--tokenizer'?\n" },
    { "tokenizer info --jso", "did you mean '--json'?\n" },
    { "bench step --iters 3", "did you mean '--steps'?\n" },
    { "bench op --filtr x", "did you mean '--filter'?\n" },
    { "bench decode --cach f32", "did you mean '--cache'?\n" },
    { "bench tokenizer --texts x", "did you mean '--text'?\n" },
    { "bench comm --byte 3", "did you mean '--bytes'?\n" },
    { "report x --out f", "did you mean '--html'?\n" },
    { "info --n-layer 4 --tensor", "did you mean '--tensors'?\n" },
    /* names of other programs with another meaning */
    { "train --min-lr 1e-5",
      "unknown option '--min-lr', did you mean '--lr-min-ratio'? It is relative to the peak: min_lr / lr\n" },
    { "train --num-train-epochs 3", "did you mean '--steps'? There are no epochs: " },
    { "train --eval_iters=200",
      "unknown option '--eval_iters', did you mean '--val-tokens'? It counts tokens: eval_iters x batch x" },
    { "train --dropout 0.1", "unknown option '--dropout': the models have no dropout\n" },
    { "serve x --ctx-size 4", "did you mean '--context'?" },
    { "generate x --ctx-size 4", "unknown option '--ctx-size': the context is the model's block_size\n" },
    { "eval x --model-args pretrained=x", "unknown option '--model-args': the model is an argument: " },
    /* words of the help text */
    { "generate x --greedy",
      "unknown option '--greedy', see '--temperature': sampling temperature (0: greedy)\n" },
    /* nothing resembles it */
    { "train --frobnicate 1", "unknown option '--frobnicate'; 'ddl help train' lists the options\n" },
    { "train --mup=1 --xyz", "unknown option '--xyz'; 'ddl help train' lists the options\n" },
    { "train --set 3", "unknown option '--set'; 'ddl help train' lists the options\n" },
    { "train --gpus 2", "unknown option '--gpus'; 'ddl help train' lists the options\n" },
    { "train --no-lr", "unknown option '--no-lr'; 'ddl help train' lists the options\n" },
    { "generate x -p foo", "unknown option '-p', did you mean '--prompt'?\n" },
    { "data build --frobnicate", "unknown option '--frobnicate'; 'ddl help data build' lists the options\n" },
    { "compare x --smooth 3", "unknown option '--smooth'; 'ddl help compare' lists the options\n" },
    { "completion --foo", "unknown option '--foo'; 'ddl help completion' lists the options\n" },
};
enum { N = sizeof cases / sizeof *cases };

static void suggestions(void **state)
{
    (void)state;
    for (size_t i = 0; i < N; i++) {
        int status = ddl("%s", cases[i].arguments);
        const char *found = strstr(printed, cases[i].says);
        if (status != 2 || !found || strncmp(printed, "ddl: unknown option '", 21) != 0)
            fail_msg("ddl %s: expected %s, found %d: %s", cases[i].arguments, cases[i].says, status, printed);
        if (cases[i].says[strlen(cases[i].says) - 1] == '\n')
            assert_string_equal(found, cases[i].says);
    }
}

/* The table has every command, and every action of one. */
static void every_command(void **state)
{
    static char overview[sizeof printed], actions[sizeof printed];
    (void)state;
    assert_int_equal(ddl("help"), 0);
    strcpy(overview, printed);
    char *line = strstr(overview, "commands:\n");
    assert_non_null(line);
    for (line = strchr(line, '\n') + 1; strncmp(line, "  ", 2) == 0; line = strchr(line, '\n') + 1) {
        char name[64], wanted[96];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(line + 2, " "), line + 2);
        assert_int_equal(ddl("help %s", name), 0);
        strcpy(actions, printed);
        snprintf(wanted, sizeof wanted, "\n  ddl %s ", name);
        const char *action =
            strstr(actions, "lists the options of an action") ? strstr(actions, wanted) : NULL;
        do {
            if (action) {
                const char *word = action + strlen("\n  ddl ");
                int first = (int)strcspn(word, " ") + 1;
                snprintf(name, sizeof name, "%.*s", first + (int)strcspn(word + first, " \n"), word);
                action = strstr(action + 1, wanted);
            }
            bool has = false;
            for (size_t i = 0; i < N; i++)
                has = has || (strncmp(cases[i].arguments, name, strlen(name)) == 0 &&
                              cases[i].arguments[strlen(name)] == ' ');
            if (!has)
                fail_msg("the table lacks ddl %s", name);
        } while (action);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suggestions),
        cmocka_unit_test(every_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
