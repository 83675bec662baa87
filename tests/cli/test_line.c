/* cli/line_*.c on a pseudo-terminal. The program runs itself as the reader of lines. */
#include "cli/generate/line.h"
#include "cli/output/terminal.h"
#include "support/pty.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool edits; /* libedit */

/* Prints "<n:line>" for each line, "<cancelled>" and "<end>". */
static int read_lines(void)
{
    catch_interrupts();
    struct line_reader *reader = line_reader_open("? ");
    const char *line;
    size_t n = 0;
    for (enum line_status status; (status = line_read(reader, &line, &n)) != LINE_END; clear_interrupt()) {
        if (interrupted() && interrupt_signal() != SIGINT)
            break;
        if (status == LINE_READ)
            printf("<%zu:%.*s>\n", n, (int)n, line);
        else
            printf("<cancelled>\n");
        fflush(stdout);
    }
    line_reader_close(reader);
    printf(interrupted() ? "<terminated>\n" : "<end>\n");
    return 0;
}

static void start(const char *variable)
{
    const char *const argv[] = { "/proc/self/exe", "read", NULL }, *const environment[] = { "TERM=xterm",
                                                                                            variable, NULL };
    pty_start(argv, environment);
    pty_expect("? ");
}

static void type(const char *keys, const char *printed)
{
    pty_send(keys);
    pty_expect(printed);
    pty_expect("? ");
}

static void lines_are_read(void **state)
{
    (void)state;
    start("LC_ALL=C.UTF-8");
    type("one\n", "<3:one>");
    type("\n", "<0:>");
    type("\xc3\xa9t\xc3\xa9\n", "<5:\xc3\xa9t\xc3\xa9>");
    type("ax\x7f"
         "b\n",
         "<2:ab>");
    pty_send("\x04");
    pty_expect("<end>");
    assert_int_equal(pty_finish(), 0);
}

static void utf8_is_read_in_the_c_locale(void **state)
{
    (void)state;
    start("LC_ALL=C");
    type("\xc3\xa9\n", "<2:\xc3\xa9>");
    pty_send("\x04");
    assert_int_equal(pty_finish(), 0);
}

static void ctrl_c_drops_the_line(void **state)
{
    (void)state;
    start("LC_ALL=C.UTF-8");
    for (int i = 0; i < 3; i++)
        type("half\x03", "<cancelled>");
    type("whole\n", "<5:whole>");
    pty_send("\x04");
    pty_expect("<end>");
    assert_int_equal(pty_finish(), 0);
}

static void sigterm_ends(void **state)
{
    (void)state;
    start("LC_ALL=C.UTF-8");
    pty_signal(SIGTERM);
    pty_expect("<terminated>");
    assert_int_equal(pty_finish(), 0);
}

static void lines_are_edited(void **state)
{
    (void)state;
    if (!edits)
        skip();
    start("LC_ALL=C.UTF-8");
    type("ac\x1b[Db\n", "<3:abc>"); /* left */
    type("two\n", "<3:two>");
    type("\x1b[A\x1b[A!\n", "<4:abc!>"); /* up, up */
    pty_send("\x04");
    assert_int_equal(pty_finish(), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return read_lines();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read),        cmocka_unit_test(utf8_is_read_in_the_c_locale),
        cmocka_unit_test(ctrl_c_drops_the_line), cmocka_unit_test(sigterm_ends),
        cmocka_unit_test(lines_are_edited),
    };
    edits = strstr(argv[0], "libedit") != NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
