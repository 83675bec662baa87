# What the report pages consist of (cli/page/), and Chart.js if it is installed, as a C file of the program: sets
# DDL_PAGE_SOURCE. Without Chart.js the program refuses --html.
set(DDL_PAGE_ASSETS "")
foreach(name page.css page.js compare.js inspect.js prompt.js ablate.js report.js serve.html serve.css serve.js LICENSE.chart.js)
  list(APPEND DDL_PAGE_ASSETS ${CMAKE_CURRENT_SOURCE_DIR}/cli/page/${name})
endforeach()

find_file(DDL_CHART_JS chart.min.js PATH_SUFFIXES share/javascript/chart.js PATHS /usr
          DOC "Chart.js 3 for HTML report pages (package libjs-chart.js)")
set(chart_version "")
if(DDL_CHART_JS)
  file(READ ${DDL_CHART_JS} chart_version LIMIT 100)
endif()
if(chart_version MATCHES "Chart\\.js v3\\.")
  list(APPEND DDL_PAGE_ASSETS ${DDL_CHART_JS})
elseif(DDL_CHART_JS)
  message(STATUS "${DDL_CHART_JS} is not Chart.js 3: ddl writes no HTML pages (install libjs-chart.js)")
else()
  message(STATUS "Chart.js is missing: ddl writes no HTML pages (install libjs-chart.js)")
endif()

set(DDL_PAGE_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/page_assets.c)
add_custom_command(
  OUTPUT ${DDL_PAGE_SOURCE}
  COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed.cmake -- ${DDL_PAGE_SOURCE} ${DDL_PAGE_ASSETS}
  DEPENDS ${DDL_PAGE_ASSETS} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed.cmake
  VERBATIM)
