/* Headless Chromium, controlled through its DevTools protocol on a pair of pipes. One at a time. */
#ifndef DDL_TEST_BROWSER_H
#define DDL_TEST_BROWSER_H

#include "support/support.h"

#include <jansson.h>

/* Starts Chromium with a profile in the scratch folder. False, with a message, if none is installed
 * (DDL_CHROMIUM, chromium, chromium-browser or google-chrome). Every failure later fails the test. */
bool browser_start(void);
void browser_stop(void);

/* What a page is shown in. */
struct browser_view {
    int width; /* of the window, in CSS pixels */
    bool dark, print;
};
/* Loads a file and waits until it is loaded. */
void browser_open(const char *path, const struct browser_view *view);
/* The same for an address. */
void browser_open_url(const char *url, const struct browser_view *view);
/* Changes the color scheme and medium of the page that is open. */
void browser_set_media(const struct browser_view *view);
/* Value of a JavaScript expression in the page, a promise is awaited; free with json_decref. */
json_t *browser_evaluate(const char *expression);
/* Writes a picture of the whole page to a PNG file. */
void browser_screenshot(const char *png);
/* Writes the page as it is printed to a PDF file. */
void browser_print(const char *pdf);
/* Exceptions and error messages since browser_open, a line each; "" if there were none. */
const char *browser_errors(void);

#endif
