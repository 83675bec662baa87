# What ddl links: docs/design.md says why each. Sets DDL_LIBRARIES, and DDL_CMOCKA for the tests.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)

find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
  message(FATAL_ERROR "oneDNN is missing: install libdnnl-dev")
endif()
add_library(dnnl_imported UNKNOWN IMPORTED)
set_target_properties(dnnl_imported PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                                               INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})

set(DDL_LIBRARIES PkgConfig::JANSSON PkgConfig::YAML PkgConfig::PCRE2 PkgConfig::ZSTD PkgConfig::ZLIB dnnl_imported
    OpenMP::OpenMP_C Threads::Threads m)

if(DDL_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  set(DDL_CMOCKA PkgConfig::CMOCKA)
endif()
