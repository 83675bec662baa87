/* Which library this is. The build and the packages read the three numbers from here. Until 1.0 a new MINOR
 * may change the interface, and with it the name of the shared library (libddl.so.MAJOR.MINOR); a new PATCH
 * does not. */
#ifndef DDL_VERSION_H
#define DDL_VERSION_H

#include "ddl/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented for incompatible changes of the interface, from 1.0 on. */
#define DDL_VERSION_MAJOR 0
/* Incremented for additions; until 1.0, also for incompatible changes. */
#define DDL_VERSION_MINOR 1
/* Incremented for bug fixes. */
#define DDL_VERSION_PATCH 0

/* The day of this version, for the manual pages. */
#define DDL_VERSION_DATE "2026-11-21"

/* "0.1.0", of the headers. */
#define DDL_VERSION DDL_VERSION_TEXT_(DDL_VERSION_MAJOR, DDL_VERSION_MINOR, DDL_VERSION_PATCH)
/* For the line above: the arguments' values. */
#define DDL_VERSION_TEXT_(major, minor, patch) DDL_VERSION_JOIN_(major, minor, patch)
/* For the line above: joined by dots. */
#define DDL_VERSION_JOIN_(major, minor, patch) #major "." #minor "." #patch

/* The version of the library that runs: it may be a later PATCH than the headers. */
DDL_API const char *ddl_version(void);

#ifdef __cplusplus
}
#endif
#endif
