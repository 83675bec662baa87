/* Threads that take the processor away at odd moments, so that work by several threads is cut differently in
 * time whenever it runs. */
#ifndef DDL_TEST_STRESS_H
#define DDL_TEST_STRESS_H

/* From here on, until stress_end; one at a time. */
void stress_begin(void);
void stress_end(void);

#endif
