# DDL_VERSION, from the three numbers of include/ddl/version.h, and its day as mail writes it.
set(DDL_VERSION_HEADER ${CMAKE_CURRENT_SOURCE_DIR}/include/ddl/version.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${DDL_VERSION_HEADER})
file(STRINGS ${DDL_VERSION_HEADER} lines REGEX "^#define DDL_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
list(TRANSFORM lines REPLACE "^#define DDL_VERSION_[A-Z]+ " "")
list(JOIN lines "." DDL_VERSION)
file(STRINGS ${DDL_VERSION_HEADER} day REGEX "^#define DDL_VERSION_DATE ")
string(REGEX MATCH "[0-9-]+" day "${day}")
execute_process(COMMAND date --utc --date=${day} "+%a, %d %b %Y %H:%M:%S %z" OUTPUT_VARIABLE DDL_VERSION_RFC_DATE
                OUTPUT_STRIP_TRAILING_WHITESPACE)
