#define _POSIX_C_SOURCE 200809L
#include "cli/output/page.h"

#include "cli/output/escape.h"

#include "ddl/file.h"
#include "ddl/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct page_asset *find_page_asset(const char *name)
{
    const struct page_asset *asset = page_assets;
    while (asset->name && strcmp(asset->name, name) != 0)
        asset++;
    return asset->name ? asset : NULL;
}

ddl_status page_check(const char *path, struct ddl_error *err)
{
    if (!*path || find_page_asset("chart.min.js"))
        return DDL_OK;
    return ddl_error_set(
        err, DDL_E_UNSUPPORTED,
        "--html: not available: this ddl was built without Chart.js (package libjs-chart.js)");
}

static void put_asset(FILE *out, const char *name)
{
    const struct page_asset *asset = find_page_asset(name);
    if (asset)
        fwrite(asset->bytes, 1, asset->size, out);
}

static void put_script(FILE *out, const char *name)
{
    fputs("<script>\n", out);
    put_asset(out, name);
    fputs("</script>\n", out);
}

/* JSON in a script element: "<" occurs in strings only, where \u003c means the same, so that no text of the
 * data ends the element. */
static void put_json(FILE *out, const char *json, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (json[i] == '<')
            fputs("\\u003c", out);
        else
            putc(json[i], out);
    }
}

/* The data as JSON, malloc'ed; NULL if there is not enough memory. */
static char *make_data(const struct page *page, size_t *size)
{
    char *text = NULL, made[96], date[32] = "";
    FILE *memory = open_memstream(&text, size);
    if (!memory)
        return NULL;
    struct ddl_json json = { memory, false };
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M", &utc);
    snprintf(made, sizeof made, "Written by ddl %s on %s UTC.", ddl_version(), date);
    ddl_json_open(&json, NULL, '{');
    ddl_json_string(&json, "kind", page->kind);
    ddl_json_string(&json, "title", page->title);
    ddl_json_string(&json, "made", made);
    page->write(&json, page->object);
    ddl_json_close(&json, '}');
    bool failed = ferror(memory) != 0;
    if (fclose(memory) == 0 && !failed)
        return text;
    free(text);
    return NULL;
}

/* The policy forbids every request, so that a page never uses a network. */
static void put_page(FILE *out, const struct page *page, const char *json, size_t size)
{
    char script[64];
    snprintf(script, sizeof script, "%s.js", page->kind);
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "script-src 'unsafe-inline'; style-src 'unsafe-inline'\">\n<title>",
          out);
    put_xml_text(out, page->title);
    fputs("</title>\n<style>\n", out);
    put_asset(out, "page.css");
    fputs("</style>\n</head>\n<body>\n<main></main>\n"
          "<noscript><p>This page draws its charts and tables with JavaScript, which is turned off."
          "</p></noscript>\n<footer><p>Charts: Chart.js, MIT License (its text is in the source of this "
          "page). Nothing on this page is loaded from a network.</p></footer>\n"
          "<script type=\"application/json\" id=\"data\">",
          out);
    put_json(out, json, size);
    fputs("</script>\n<!--\n", out);
    put_asset(out, "LICENSE.chart.js");
    fputs("-->\n", out);
    put_script(out, "chart.min.js");
    put_script(out, "page.js");
    put_script(out, script);
    fputs("</body>\n</html>\n", out);
}

ddl_status page_write(const struct page *page, struct ddl_error *err)
{
    size_t size = 0;
    char *json = make_data(page, &size);
    if (!json)
        return ddl_error_set(err, DDL_E_MEMORY, "%.400s: out of memory for the page", page->path);
    struct ddl_file_writer w;
    ddl_status status = page->is_own ? ddl_file_writer_begin(&w, page->path, err)
                                     : ddl_file_writer_begin_output(&w, page->path, err);
    if (!status)
        put_page(w.stream, page, json, size);
    free(json);
    return status ? status : ddl_file_writer_commit(&w, err);
}
