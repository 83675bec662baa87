/* The HTML pages: their structure, their data against --json, hostile names, and what they look like in a
 * browser: no JavaScript error, no empty chart, no sideways scrolling at three widths in both color schemes,
 * and printed. The scratch folder has a picture of each, for inspection by eye. The part with the browser is
 * skipped without Chromium; a sample has one width and half of the pages of models. */
#include "support/browser.h"
#include "support/files.h"
#include "support/program.h"
#include "support/runs.h"

#include "base/lock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A run whose name and text would end the script element, start another or a comment, if they were not
 * escaped. */
#define HOSTILE "b-1<!--<script>&\""

static bool has_pages, has_browser; /* the program was built with Chart.js; Chromium is installed */

/* ---- runs and pages ---- */

static void train(const char *name, const char *options)
{
    remove_scratch(name);
    if (ddl("train --quiet --size micro --hidden-size 16 --seq 16 --batch 2 --steps 20 --warmup 2 "
            "--val-every 5 "
            "--val-tokens 64 --checkpoint-every 0 --log-every 1 --telemetry-every 5 --vocab-size 300 "
            "--train-data '%s' "
            "--val-data '%s' "
            "--out '%s' %s",
            scratch_path("train.bin"), scratch_path("val.bin"), scratch_path(name), options))
        fail_msg("ddl train %s: %s", options, printed);
}

static size_t occurrences(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* Elements are balanced, and nothing refers to a network: the only addresses are in the comments of Chart.js,
 * which begins after `data`. */
static void assert_no_requests(const char *text, const char *data)
{
    static const char *const requests[] = { "src=\"",         "@import", "url(",   "fetch(",
                                            "XMLHttpRequest", "<link",   "<iframe" };
    const char *chart = strstr(data, "* Chart.js v"), *ours = strstr(data, "/* What all report pages share");
    assert_non_null(chart);
    assert_non_null(ours);
    assert_int_equal(occurrences(text, "<script"), 4);
    assert_int_equal(occurrences(text, "</script>"), 4);
    assert_int_equal(occurrences(text, "<style>") + occurrences(text, "</style>"), 2);
    assert_int_equal(occurrences(text, "://"), occurrences(chart, "://") - occurrences(ours, "://"));
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        assert_int_equal(occurrences(text, requests[i]),
                         occurrences(chart, requests[i]) - occurrences(ours, requests[i]));
    assert_non_null(strstr(
        text, "content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\""));
}

/* The page `name`.html of the scratch folder. */
static const char *page_path(const char *name)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s.html", scratch_path("."), name);
    return path;
}

/* Checks the frame of a page; returns its data, which the caller releases. */
static json_t *read_page(const char *name)
{
    size_t size;
    json_error_t why;
    char *text = read_file(page_path(name), &size);
    assert_int_equal(strlen(text), size);
    assert_int_equal(strncmp(text, "<!DOCTYPE html>\n<html lang=\"en\">", 32), 0);
    assert_non_null(strstr(text, "THE SOFTWARE IS PROVIDED \"AS IS\""));
    /* The data ends where the script element does: no "<" in it. */
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    char *json = strstr(text, begin);
    assert_non_null(json);
    json += sizeof begin - 1;
    size_t length = strcspn(json, "<");
    assert_int_equal(strncmp(json + length, "</script>\n<!--\n", 15), 0);
    json_t *data = json_loadb(json, length, JSON_REJECT_DUPLICATES, &why);
    if (!data)
        fail_msg("%s: %s", name, why.text);
    assert_no_requests(text, json + length);
    free(text);
    return data;
}

/* Each visible canvas needs several colors. Charts are drawn, and take the page's width, in later frames: up
 * to a hundred are waited for. The text of an answer: what is still wrong, or "". */
static const char check_page[] =
    "new Promise((done) => { let tries = 0; const check = () => requestAnimationFrame(() => {"
    "  const wrong = [];"
    "  const alert = document.querySelector('[role=alert]');"
    "  if (alert) wrong.push(alert.textContent);"
    "  if (!('ready' in document.documentElement.dataset)) wrong.push('the page is not ready');"
    "  document.querySelectorAll('canvas').forEach((canvas) => {"
    "    if (!canvas.getAttribute('aria-label')) wrong.push('a canvas has no label');"
    "    if (canvas.offsetParent === null) return;"
    "    if (canvas.width * canvas.height === 0) return wrong.push('no size: ' + "
    "canvas.getAttribute('aria-label'));"
    "    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, "
    "canvas.height).data.buffer);"
    "    if (new Set(pixels).size < 4) wrong.push('empty: ' + canvas.getAttribute('aria-label'));"
    "  });"
    "  const root = document.documentElement;"
    "  if (root.scrollWidth > root.clientWidth)"
    "    wrong.push('scrolls sideways: ' + root.scrollWidth + ' > ' + root.clientWidth);"
    "  if (wrong.length && ++tries < 100) setTimeout(check, 100);"
    "  else done(wrong.join('; '));"
    "}); setTimeout(check, 100); })";

/* Geometry and contrast. At 1280 pixels and more every table is whole: only a folded table, or one of many
 * sublayers, may scroll. A table that does not scroll has no shade at its edge and is no stop of the Tab key.
 * No table has a row or a column without a value. Text has the contrast of WCAG AA; the colors of values
 * differ from the page, and their text from them. */
static const char check_looks[] =
    "(() => {"
    "  const wrong = new Set(), say = (text) => wrong.add(text);"
    "  const width = document.documentElement.clientWidth;"
    "  const shown = (node) => node.checkVisibility();"
    "  document.querySelectorAll('main *, footer').forEach((node) => {"
    "    if (shown(node) && !node.closest('.scroll[role]') && node.getBoundingClientRect().right > width + "
    "0.5)"
    "      say('wider than the page: ' + node.tagName + ' ' + node.className);"
    "  });"
    "  document.querySelectorAll('.scroll').forEach((box) => {"
    "    if (!shown(box)) return;"
    "    const caption = box.textContent.slice(0, 60), hidden = box.scrollWidth > box.clientWidth + 1;"
    "    const style = getComputedStyle(box);"
    "    if (hidden && width >= 1280 && !box.closest('details')) say('clipped: ' + caption);"
    "    if (hidden !== box.hasAttribute('tabindex')) say('wrong stop of Tab: ' + caption);"
    "    if (!hidden && (style.boxShadow !== 'none' || style.backgroundImage !== 'none')) say('shade: ' + "
    "caption);"
    "    const rows = [...box.querySelectorAll('tr')].map((row) => [...row.children].map((cell) => "
    "cell.textContent));"
    "    const body = rows.slice(1);"
    "    body.forEach((row) => row.slice(1).every((cell) => cell === '–') && say('empty row: ' + row[0] + ' "
    "of ' + caption));"
    "    rows[0].forEach((title, c) => body.every((row) => row[c] === '–') && say('empty column: ' + title));"
    "  });"
    "  const parse = (text) => text.match(/[\\d.]+/g).map(Number);"
    "  const contrast = (a, b) => {"
    "    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);"
    "    return (high + 0.05) / (low + 0.05);"
    "  };"
    "  const behind = (node) => {"
    "    for (; node; node = node.parentElement) {"
    "      const parts = parse(getComputedStyle(node).backgroundColor);"
    "      if (parts.length < 4 || parts[3] > 0) return parts.slice(0, 3);"
    "    }"
    "    return [255, 255, 255];"
    "  };"
    "  document.querySelectorAll('main *, footer *').forEach((node) => {"
    "    if (!shown(node) || ![...node.childNodes].some((child) => child.nodeType === 3 && "
    "child.textContent.trim())) return;"
    "    const found = contrast(parse(getComputedStyle(node).color).slice(0, 3), behind(node));"
    "    if (found < 4.5) say('contrast ' + found.toFixed(2) + ' of ' + node.tagName + ': ' + "
    "node.textContent.slice(0, 30));"
    "  });"
    "  const page = behind(document.documentElement), dark = luminance(page) < 0.5;"
    "  for (const scale of [{ low: 0, middle: 1, high: 2 }, { low: 0, high: 2 }]) {"
    "    for (let value = 0; value <= 2; value += 0.125) {"
    "      const { background, text } = painter(scale)(value);"
    "      if (contrast(parse(background), page) < (dark ? 3 : 1.5)) say('color of ' + value + ' vanishes');"
    "      if (contrast(parse(background), partsOf(text)) < 4.5) say('text on the color of ' + value);"
    "    }"
    "  }"
    "  for (const name of ['control', ...Array.from({ length: SERIES }, (one, i) => 'series-' + i)])"
    "    if (contrast(partsOf(color(name)), page) < 3) say('contrast of ' + name);"
    "  return [...wrong].join('; ');"
    "})()";

/* Chooses every radio button and option in turn. */
static const char operate_page[] =
    "document.querySelectorAll('input[type=radio]').forEach((input) => input.click());"
    "document.querySelectorAll('select').forEach((select) => [...select.options].forEach((option) => {"
    "  select.value = option.value;"
    "  select.dispatchEvent(new Event('change'));"
    "}));"
    "document.querySelectorAll('details').forEach((details) => (details.open = true)); true";

static void assert_page(const char *page, const char *what)
{
    static const char *const checks[] = { check_page, check_looks };
    for (size_t i = 0; i < 2; i++) {
        json_t *wrong = browser_evaluate(checks[i]);
        if (strcmp(json_string_value(wrong), "") != 0 || *browser_errors())
            fail_msg("%s, %s: %s %s", page, what, json_string_value(wrong), browser_errors());
        json_decref(wrong);
    }
}

/* A condition of the page, in JavaScript. */
static void assert_true_in_page(const char *expression)
{
    json_t *value = browser_evaluate(expression);
    if (!json_is_true(value))
        fail_msg("not true in the page: %s", expression);
    json_decref(value);
}

/* What is in the page after its script has run. */
static void assert_in_page(const char *selector, const char *text)
{
    char expression[1024];
    snprintf(expression, sizeof expression,
             "[...document.querySelectorAll('%s')].some((node) => node.textContent.includes(`%s`))", selector,
             text);
    json_t *found = browser_evaluate(expression);
    if (!json_is_true(found))
        fail_msg("no element %s contains '%s'", selector, text);
    json_decref(found);
}

/* Shows page `name`.html of the scratch folder in all ways. */
static void view_page(const char *name)
{
    static const int widths[] = { 1280, 360, 800, 1600 };
    const char *page = page_path(name);
    char picture[4200], what[64];
    for (size_t w = 0; w < (test_sample_sanitized() ? 2 : 4); w++) {
        for (int dark = 0; dark < 2; dark++) {
            const struct browser_view view = { .width = widths[w], .dark = dark != 0 };
            browser_open(page, &view);
            snprintf(what, sizeof what, "%d-%s", widths[w], dark ? "dark" : "light");
            assert_page(name, what);
            snprintf(picture, sizeof picture, "%s/%s-%s.png", scratch_path("."), name, what);
            browser_screenshot(picture);
        }
    }
    /* The scheme changes while the page is open; every control is used; the page is printed. */
    const struct browser_view light = { .width = 800 };
    browser_set_media(&light);
    assert_page(name, "changed to light");
    json_decref(browser_evaluate(operate_page));
    assert_page(name, "after every control was used");
    snprintf(picture, sizeof picture, "%s/%s.pdf", scratch_path("."), name);
    browser_print(picture);
    const struct browser_view paper = { .print = true };
    browser_set_media(&paper);
    assert_true_in_page(
        "document.documentElement.dataset.print = '', "
        "[...document.querySelectorAll('details')].forEach((one) => (one.open = false)), true");
    assert_true_in_page(
        "[...document.querySelectorAll('.scroll')].every((box) => !box.checkVisibility() || "
        "(box.scrollWidth <= box.clientWidth + 1 && getComputedStyle(box).boxShadow === 'none'))");
    assert_true_in_page("delete document.documentElement.dataset.print");
    browser_set_media(&light);
    assert_page(name, "after it was printed");
}

/* ---- compare ---- */

static void write_compare_page(void)
{
    if (ddl("compare '%s' '%s' '%s' '%s' --val --max-loss 5.9 --html '%s'", scratch_path("a-0"),
            scratch_path("a-1"), scratch_path("b-0"), scratch_path(HOSTILE), page_path("compare")))
        fail_msg("ddl compare: %s", printed);
}

static void compare_page(void **state)
{
    (void)state;
    if (!has_pages)
        skip();
    write_compare_page();
    json_t *data = read_page("compare");
    json_t *result = ddl_json("compare '%s' '%s' '%s' '%s' --json", scratch_path("a-0"), scratch_path("a-1"),
                              scratch_path("b-0"), scratch_path(HOSTILE));
    assert_true(json_equal(result, json_object_get(data, "result")));
    const json_t *runs = json_object_get(result, "runs"),
                 *curve = json_array_get(json_object_get(data, "curves"), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 3), "run")), HOSTILE);
    assert_int_equal(json_array_size(json_object_get(data, "curves")), 2);
    assert_int_equal(json_array_size(json_object_get(curve, "loss")), 21);
    assert_int_equal(json_array_size(json_object_get(curve, "val_high")), 21);
    assert_true(json_is_null(json_array_get(json_object_get(curve, "val_loss"), 1)));
    /* The last point is the mean of the two final losses. */
    double loss = json_number_value(json_array_get(json_object_get(curve, "val_loss"), 20));
    double a = json_number_value(json_object_get(json_array_get(runs, 2), "val_loss"));
    double b = json_number_value(json_object_get(json_array_get(runs, 3), "val_loss"));
    assert_true(fabs(loss - (a + b) / 2) < 1e-5);
    json_decref(result);
    json_decref(data);
    assert_int_equal(ddl("compare '%s' --html nowhere/page.html", scratch_path("a-0")), 1);
    assert_printed("nowhere/page.html: cannot create: No such file or directory");
}

static void compare_in_browser(void **state)
{
    (void)state;
    if (!has_browser)
        skip();
    write_compare_page();
    view_page("compare");
    assert_in_page("li", HOSTILE);
    assert_in_page("th", "b-0");
    assert_in_page("caption", "Validation loss");
    assert_in_page("p", "4 runs in 2 groups, compared with a-0. ");
}

/* Runs of one seed each have no table of statistics, and names as ddl sweep makes them fit. */
#define LONG_NAME "model=ddl-cc-ec_lr=0.004_weight_decay=0.1_ddl_value_channels=4_seed=0"

static void compare_single_seeds(void **state)
{
    (void)state;
    remove_scratch("baseline");
    copy_scratch("a-0", "baseline");
    remove_scratch(LONG_NAME);
    copy_scratch("b-0", LONG_NAME);
    assert_int_equal(ddl("compare '%s' '%s' %s%s'", scratch_path("baseline"), scratch_path(LONG_NAME),
                         has_pages ? "--html '" : "--max-loss '9",
                         has_pages ? page_path("compare-single") : ""),
                     0);
    assert_printed("each group has one run: standard deviations, intervals and p-values need a second run");
    if (!has_browser)
        skip();
    view_page("compare-single");
    assert_in_page("p", "2 runs, compared with baseline. ");
    assert_in_page("p", "Each group has one run");
    assert_in_page("td", "baseline");
    assert_true_in_page("![...document.querySelectorAll('th')].some((node) => "
                        "/sd|interval|Welch|paired/.test(node.textContent))");
}

/* ---- inspect and ablate ---- */

/* Writes page `name`.html with the arguments, and asserts that its result is what --json prints. */
static void assert_page_result(const char *name, const char *arguments)
{
    if (!has_pages)
        skip();
    json_t *result = ddl_json("%s --quiet --json --html '%s'", arguments, page_path(name));
    json_t *data = read_page(name);
    assert_true(json_equal(result, json_object_get(data, "result")));
    json_decref(result);
    json_decref(data);
}

/* Of a prompt that would end the script element. */
#define PROMPT "a</script><b>x"

static const struct model_page {
    const char *name, *command, *preset, *options;
    const char *selector, *text; /* an element of the finished page */
} model_pages[] = {
    { "inspect", "inspect", "ddl-cc-ec", "--tokens 256", "h3", "layer 2 mlp" },
    { "inspect-add", "inspect", "baseline", "--tokens 256", "p", "No sublayer of this model has a gate." },
    { "inspect-highway", "inspect", "highway", "--tokens 256", "td", "highway" },
    { "prompt", "inspect", "ddl-cc-ec", "--prompt '" PROMPT "'", ".tokens", PROMPT },
    { "prompt-add", "inspect", "baseline", "--prompt '" PROMPT "'", "caption", "size of the step" },
    { "ablate", "ablate", "ddl-cc-ec", "--val-tokens 256", "td", "beta=0" },
};
enum { N_MODEL_PAGES = sizeof model_pages / sizeof *model_pages };

static void write_model_page(const struct model_page *page)
{
    char arguments[8192], text[2300] = "";
    if (!strstr(page->options, "--prompt"))
        snprintf(text, sizeof text, "--text '%s'", tiny_text("text.txt", 600));
    snprintf(arguments, sizeof arguments, "%s '%s' %s %s", page->command,
             tiny_folder(page->preset, page->preset), page->options, text);
    assert_page_result(page->name, arguments);
}

static void pages_of_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODEL_PAGES; i++)
        write_model_page(&model_pages[i]);
    assert_int_equal(ddl("ablate '%s' --text '%s' --val-tokens 64 --html nowhere/page.html",
                         tiny_folder("baseline", "baseline"), tiny_text("text.txt", 600)),
                     1);
    assert_printed("nowhere/page.html: cannot create: No such file or directory");
}

static void pages_of_models_in_browser(void **state)
{
    (void)state;
    if (!has_browser)
        skip();
    for (size_t i = 0; i < N_MODEL_PAGES; i++) {
        if (!test_takes(i, 2))
            continue;
        write_model_page(&model_pages[i]);
        view_page(model_pages[i].name);
        assert_in_page(model_pages[i].selector, model_pages[i].text);
    }
}

/* The colors of a gate do not depend on the data: 0, 1 and the end of its range have theirs, and 1 is gray.
 */
static void gates_have_fixed_colors(void **state)
{
    (void)state;
    if (!has_browser)
        skip();
    for (size_t i = 0; i < N_MODEL_PAGES; i++) {
        if (strcmp(model_pages[i].name, "inspect") != 0 && strcmp(model_pages[i].name, "prompt") != 0)
            continue;
        write_model_page(&model_pages[i]);
        for (int dark = 0; dark < 2; dark++) {
            const struct browser_view view = { .width = 1280, .dark = dark != 0 };
            browser_open(page_path(model_pages[i].name), &view);
            assert_true_in_page(
                "JSON.stringify(gateScale(sublayers)) === '{\"low\":0,\"middle\":1,\"high\":2}'");
            assert_in_page(".legend", "gate02gray: 1");
            assert_true_in_page(
                "['heat-low', 'heat-middle', 'heat-high'].every((name, value) => "
                "painter(gateScale(sublayers))(value).background === `rgb(${partsOf(color(name))})`)");
            assert_true_in_page(
                "((parts) => Math.max(...parts) - Math.min(...parts) < 16)(partsOf(color('heat-middle')))");
            assert_true_in_page(
                "painter(gateScale(sublayers.map((s) => ({ ...s, gate_max: 4 }))))(1).background === "
                "`rgb(${partsOf(color('heat-middle'))})`");
        }
    }
    assert_true_in_page("[...document.querySelectorAll('td.cell')].every((cell) => cell.style.background)");
}

/* The band of a sublayer's values is from the lowest to the highest, which may be one number. */
static void constant_gates_have_no_band(void **state)
{
    (void)state;
    if (!has_browser)
        skip();
    for (size_t i = 0; i < N_MODEL_PAGES; i++) {
        if (strcmp(model_pages[i].name, "prompt") != 0)
            continue;
        write_model_page(&model_pages[i]);
        const struct browser_view view = { .width = 1280 };
        browser_open(page_path(model_pages[i].name), &view);
        assert_true_in_page(
            "result.prompt.forEach((token) => token.gates.fill(1)), drawAll(), placeDrawings(), "
            "Chart.getChart(document.querySelector('canvas')).data.datasets"
            ".flatMap((set) => set.data).every((point) => point.y === 1)");
    }
}

/* Channels are numbers, colored by their ratio to the mean of the sublayer. */
static void channels_are_numbers(void **state)
{
    (void)state;
    if (!has_browser)
        skip();
    write_model_page(&model_pages[0]);
    const struct browser_view view = { .width = 1280 };
    browser_open(page_path(model_pages[0].name), &view);
    assert_true_in_page("document.querySelectorAll('canvas[aria-label*=channel]').length === 0");
    assert_true_in_page("((cells) => cells.length === 4 * sublayers.length && cells.every((cell) => "
                        "Number(cell.textContent) > "
                        "0))([...document.querySelectorAll('td[style]')])");
}

/* ---- report ---- */

/* The page of a run that has telemetry, validations, a checkpoint and a divergence dump. */
static void write_report_page(void)
{
    static const char dump[] = "{\"step\":7,\"what\":\"loss\",\"micro_batch\":1,\"first\":"
                               "{\"layer\":0,\"part\":\"mlp\",\"tensor\":\"</script><b>\"}}";
    static const char texts[] = "{\"step\":10,\"prompt\":\"a\",\"text\":\"b\"}\n"
                                "{\"step\":20,\"prompt\":\"a\",\"text\":\"</script><b>c\"}\n{\"step\":30,";
    char path[4200];
    if (!has_pages)
        skip();
    snprintf(path, sizeof path, "%s/trouble-7", scratch_path("b-0"));
    remove_scratch("b-0/trouble-7");
    struct ddl_error err;
    assert_ok(ddl_file_make_dir(path, &err), err);
    write_file(scratch_path("b-0/trouble-7/trouble.json"), dump, sizeof dump - 1);
    write_file(scratch_path("b-0/samples.jsonl"), texts, sizeof texts - 1);
    if (ddl_stream(STANDARD_OUTPUT, "report '%s/' --json --html '%s'", scratch_path("b-0"),
                   page_path("report")))
        fail_msg("ddl report: %s", printed);
}

static void report_page(void **state)
{
    (void)state;
    write_report_page();
    json_t *data = read_page("report"), *result = json_object_get(data, "result");
    const json_t *steps = json_object_get(result, "steps"), *telemetry = json_object_get(result, "telemetry");
    assert_string_equal(json_string_value(json_object_get(result, "status")), "finished");
    assert_int_equal(json_integer_value(json_object_get(result, "step")), 20);
    assert_int_equal(json_integer_value(json_object_get(result, "steps_planned")), 20);
    assert_int_equal(json_array_size(steps), 21);
    assert_int_equal(json_array_size(telemetry), 5); /* steps 1, 5, 10, 15 and 20 */
    assert_int_equal(json_integer_value(json_object_get(json_array_get(telemetry, 1), "step")), 5);
    assert_int_equal(json_array_size(json_object_get(json_array_get(telemetry, 4), "sublayers")), 8);
    assert_string_equal(json_string_value(json_object_get(json_object_get(result, "recipe"), "model")),
                        "ddl-cc-ec");
    assert_int_equal(json_array_size(json_object_get(result, "dumps")), 1);
    assert_int_equal(json_array_size(json_object_get(result, "samples")), 2);
    const json_t *start = json_object_get(json_array_get(steps, 0), "start");
    assert_int_equal(json_integer_value(json_object_get(start, "step")), 0);
    assert_true(json_is_string(json_object_get(start, "processor")));
    /* Figures are those of the lines. */
    const json_t *last = json_array_get(steps, 20);
    assert_true(json_number_value(json_object_get(last, "val_loss")) ==
                json_number_value(json_object_get(result, "val_loss")));
    assert_true(json_number_value(json_object_get(last, "tokens")) ==
                json_number_value(json_object_get(result, "tokens")));
    json_decref(data);
}

/* Without --html the page is in the run's folder, and a summary is printed. */
static void report_summary(void **state)
{
    (void)state;
    if (!has_pages)
        skip();
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "report '%s'", scratch_path("a-0")), 0);
    assert_printed(": finished, step 20 of 20, baseline, ");
    assert_printed("loss: training ");
    assert_printed("a-0/report.html\n");
    assert_true(ddl_file_exists(scratch_path("a-0/report.html")));
    assert_int_equal(ddl("report nowhere"), 1);
    assert_printed("nowhere/metrics.jsonl");
    const struct refusal list[] = { { "report", 2, "a run folder (RUN)" } };
    assert_refused(list, 1);
}

/* Of a long run not all lines are in the page, but every validation, the first and the last are. */
static void report_of_long_run(void **state)
{
    (void)state;
    struct ddl_error err;
    remove_scratch("long");
    assert_ok(ddl_file_make_dir(scratch_path("long"), &err), err);
    FILE *out = fopen(scratch_path("long/metrics.jsonl"), "w");
    assert_non_null(out);
    for (int step = 0; step <= 10000; step++) {
        fprintf(out, "{\"step\":%d,\"loss\":%.6f,\"tokens\":%d%s}\n", step, 2 + 8.0 / (step + 1), 10 * step,
                step % 1000 == 1 ? ",\"val_loss\":3" : "");
        if (step % 20 == 0)
            fprintf(out,
                    "{\"step\":%d,\"kind\":\"telemetry\",\"sublayers\":[{\"layer\":0,\"sub\":\"attn\","
                    "\"rule\":\"add\",\"step\":0.5}]}\n",
                    step);
    }
    fputs("{\"step\":10001,\"lo", out); /* is being written */
    assert_int_equal(fclose(out), 0);
    char output[4200];
    snprintf(output, sizeof output, "%s", scratch_path("long.json"));
    assert_int_equal(ddl("report '%s' --json >'%s'", scratch_path("long"), output), 0);
    json_t *result = json_load_file(output, 0, NULL);
    const json_t *steps = json_object_get(result, "steps");
    assert_string_equal(json_string_value(json_object_get(result, "status")), "stopped");
    assert_int_equal(json_integer_value(json_object_get(result, "n_steps")), 10001);
    assert_int_equal(json_integer_value(json_object_get(result, "n_telemetry")), 501);
    assert_in_range(json_array_size(steps), 2000, 3010);
    assert_in_range(json_array_size(json_object_get(result, "telemetry")), 100, 121);
    size_t validated = 0;
    for (size_t i = 0; i < json_array_size(steps); i++)
        validated += json_object_get(json_array_get(steps, i), "val_loss") != NULL;
    assert_int_equal(validated, 10);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(steps, 0), "step")), 0);
    assert_int_equal(
        json_integer_value(json_object_get(json_array_get(steps, json_array_size(steps) - 1), "step")),
        10000);
    json_decref(result);
}

/* A process that holds the lock is training. */
static void report_of_running_run(void **state)
{
    (void)state;
    struct ddl_error err;
    struct ddl_lock lock;
    assert_ok(ddl_lock_take(&lock, scratch_path("a-1"), &err), err);
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "report '%s' --json", scratch_path("a-1")), 0);
    assert_printed("\"status\":\"running\"");
    ddl_lock_release(&lock);
    assert_int_equal(ddl_stream(STANDARD_OUTPUT, "report '%s' --json", scratch_path("a-1")), 0);
    assert_printed("\"status\":\"finished\"");
    assert_false(ddl_file_exists(scratch_path("a-1/report.html")));
}

static void report_in_browser(void **state)
{
    (void)state;
    if (!has_browser)
        skip();
    write_report_page();
    view_page("report");
    assert_in_page("td", "tensor </script><b>");
    assert_in_page("h2", "Histograms over the steps");
    assert_in_page("td", "non-finite value");
    assert_in_page("td", "started");
    assert_in_page("pre", "a</script><b>c");
    /* The validation before training is not joined to the next, at step 5. */
    assert_true_in_page("((points) => points[0].apart && isNaN(points[1].y) && points[2].y > 0)"
                        "(Chart.getChart(document.querySelector('canvas')).data.datasets[1].data)");
    /* The recipe uses the width of the page: its keys are in columns. */
    const struct browser_view wide = { .width = 1280 };
    browser_open(page_path("report"), &wide);
    assert_true_in_page(
        "((keys) => new Set(keys.map((key) => key.getBoundingClientRect().left)).size > 1)"
        "([...document.querySelectorAll('dl.keys dt')].filter((key) => key.checkVisibility()))");
    if (ddl("report '%s' --html '%s'", scratch_path("long"), page_path("report-long")))
        fail_msg("ddl report: %s", printed);
    view_page("report-long");
    assert_in_page("p", "of 10,001 logged steps");
}

/* ---- the tests ---- */

static int make_runs(void **state)
{
    (void)state;
    write_random_shard(scratch_path("train.bin"), 1, 300, 4000);
    write_random_shard(scratch_path("val.bin"), 2, 300, 400);
    train("a-0", "--model baseline --seed 0");
    train("a-1", "--model baseline --seed 1");
    train("b-0", "--model ddl-cc-ec --seed 0");
    train("b-1", "--model ddl-cc-ec --seed 1");
    remove_scratch(HOSTILE);
    copy_scratch("b-1", HOSTILE);
    has_pages = ddl("compare x --html x") == 1 && !strstr(printed, "built without Chart.js");
    if (!has_pages)
        print_message("skipped: ddl was built without Chart.js\n");
    has_browser = has_pages && browser_start();
    return 0;
}

static int stop_browser(void **state)
{
    (void)state;
    browser_stop();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_models),
        cmocka_unit_test(compare_page),
        cmocka_unit_test(report_page),
        cmocka_unit_test(report_summary),
        cmocka_unit_test(report_of_long_run),
        cmocka_unit_test(report_of_running_run),
        cmocka_unit_test(report_in_browser),
        cmocka_unit_test(compare_in_browser),
        cmocka_unit_test(compare_single_seeds),
        cmocka_unit_test(gates_have_fixed_colors),
        cmocka_unit_test(constant_gates_have_no_band),
        cmocka_unit_test(channels_are_numbers),
        cmocka_unit_test(pages_of_models_in_browser),
    };
    return cmocka_run_group_tests(tests, make_runs, stop_browser);
}
