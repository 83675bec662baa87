/* Planned contrasts between the groups of a comparison: tests, intervals, effect sizes, equivalence, and the
 * number of seeds that a difference needs. docs/sweep.md has the formulas. */
#ifndef DDL_CONTRAST_H
#define DDL_CONTRAST_H

#include "ddl/compare.h"
#include "ddl/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How contrasts are tested. */
struct ddl_contrast_options {
    double margin; /* of the equivalence tests; 0: no such tests                       */
    double detect; /* difference that `seeds` is for; 0: the margin                    */
    double power;  /* probability of a significant result that `seeds` is for, in (0, 1) */
    double level;  /* of the tests and intervals, in (0, 1); 0: 0.05                   */
    bool holm;     /* Holm's correction over the contrasts                             */
};
/* The mean loss of some groups minus that of others. NaN where a figure is not defined: with fewer than two
 * seeds, without variance, without a margin or a difference to detect. */
struct ddl_contrast {
    const char *text;             /* as given; borrowed                                  */
    const char *loss;             /* "val", or "train" if a group has no validation loss */
    size_t n_left, n_right;       /* groups of which each mean is taken                  */
    size_t n;                     /* seeds that all groups have; the test is paired if it is 2 or more */
    double difference, error, df; /* estimate, standard error, degrees of freedom        */
    double level;                 /* of the options                                      */
    double low, high;             /* confidence interval of the difference: 95 % at level 0.05 */
    double p, holm_p;             /* two-sided p-value of the t-test; after the correction */
    double effect, effect_low, effect_high;   /* in standard deviations of the difference of one seed;
                                                 95 % interval at level 0.05                         */
    double inner_low, inner_high;             /* at twice the level: 90 % at level 0.05              */
    double equivalence_p, equivalence_holm_p; /* of the two one-sided tests; after the correction   */
    double seeds;                             /* needed for the power, in each group                 */
    double equivalence_seeds;                 /* needed for the equivalence test, without a difference */
};

/* Tests the n contrasts `texts` (n) on the groups of `comparison`, whose names are `group_names` and whose
 * runs are `logs`, into out (n), as the `options` say. A contrast is 'A + B - C': the mean of A and B minus
 * C. A term is the name of a group, a named model (all groups of it), or a name with `*` for any characters
 * (all groups that match). DDL_E_USAGE, with a message, for a contrast that is not of this form, a term that
 * no group matches or that is the name of several, or a group on both sides. */
DDL_API ddl_status ddl_contrasts_test(struct ddl_contrast *out, const struct ddl_comparison *comparison,
                                      const struct ddl_run_log *logs, const char *const *group_names,
                                      const char *const *texts, size_t n,
                                      const struct ddl_contrast_options *options, struct ddl_error *err);

/* What a contrast shows at its level, after the correction: "lower", "higher", "equivalent", "lower,
 * equivalent", "higher, equivalent", "undecided", or "-" without a p-value. */
DDL_API const char *ddl_contrast_result(const struct ddl_contrast *contrast);

#ifdef __cplusplus
}
#endif
#endif
