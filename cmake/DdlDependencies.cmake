# What ddl links: docs/design.md says why each. Sets DDL_LIBRARIES, and DDL_CMOCKA for the tests.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)

if(DDL_GEMM STREQUAL "onednn")
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
  find_library(DNNL_LIBRARY dnnl)
  if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
    message(FATAL_ERROR "oneDNN is missing: install libdnnl-dev, or configure with -DDDL_GEMM=cblas")
  endif()
  add_library(ddl_gemm UNKNOWN IMPORTED)
  set_target_properties(ddl_gemm PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                                            INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
elseif(DDL_GEMM STREQUAL "cblas")
  # Whatever the system's `cblas` is; OpenBLAS and BLIS have it in their own library. An OpenMP build obeys our threads.
  find_path(CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas blis)
  find_library(CBLAS_LIBRARY NAMES openblas blis cblas)
  if(NOT CBLAS_INCLUDE_DIR OR NOT CBLAS_LIBRARY)
    message(FATAL_ERROR "No BLAS with C bindings found: install libopenblas-openmp-dev")
  endif()
  add_library(ddl_gemm UNKNOWN IMPORTED)
  set_target_properties(ddl_gemm PROPERTIES IMPORTED_LOCATION ${CBLAS_LIBRARY}
                                            INTERFACE_INCLUDE_DIRECTORIES ${CBLAS_INCLUDE_DIR})
else()
  message(FATAL_ERROR "DDL_GEMM is onednn or cblas, found '${DDL_GEMM}'")
endif()

set(DDL_LIBRARIES PkgConfig::JANSSON PkgConfig::YAML PkgConfig::PCRE2 PkgConfig::ZSTD PkgConfig::ZLIB ddl_gemm
    OpenMP::OpenMP_C Threads::Threads m)

if(DDL_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  set(DDL_CMOCKA PkgConfig::CMOCKA)
endif()
