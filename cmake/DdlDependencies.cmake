# What ddl links: docs/design.md says why each. Sets DDL_LIBRARIES, and DDL_CMOCKA for the tests. For those who link the
# installed static library, DDL_PKG_CONFIG_MODULES and DDL_PLAIN_LIBRARIES (names or paths) say the same.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)
set(DDL_PKG_CONFIG_MODULES jansson yaml-0.1 libpcre2-8 libzstd zlib)
pkg_check_modules(DDL_MODULES REQUIRED IMPORTED_TARGET ${DDL_PKG_CONFIG_MODULES})

if(DDL_GEMM STREQUAL "onednn")
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
  find_library(DNNL_LIBRARY dnnl)
  set(gemm DNNL)
  set(hint "oneDNN is missing: install libdnnl-dev, or configure with -DDDL_GEMM=cblas")
elseif(DDL_GEMM STREQUAL "cblas")
  # Whatever the system's `cblas` is; OpenBLAS and BLIS have it in their own library. An OpenMP build obeys our threads.
  find_path(CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas blis)
  find_library(CBLAS_LIBRARY NAMES openblas blis cblas)
  set(gemm CBLAS)
  set(hint "No BLAS with C bindings found: install libopenblas-openmp-dev")
else()
  message(FATAL_ERROR "DDL_GEMM is onednn or cblas, found '${DDL_GEMM}'")
endif()
if(NOT ${gemm}_INCLUDE_DIR OR NOT ${gemm}_LIBRARY)
  message(FATAL_ERROR "${hint}")
endif()
add_library(ddl_gemm UNKNOWN IMPORTED)
set_target_properties(ddl_gemm PROPERTIES IMPORTED_LOCATION ${${gemm}_LIBRARY}
                                          INTERFACE_INCLUDE_DIRECTORIES ${${gemm}_INCLUDE_DIR})

set(DDL_LIBRARIES PkgConfig::DDL_MODULES ddl_gemm OpenMP::OpenMP_C Threads::Threads m)
get_target_property(DDL_GEMM_NAME ddl_gemm IMPORTED_LOCATION)
get_filename_component(DDL_GEMM_NAME ${DDL_GEMM_NAME} NAME_WE)
string(REGEX REPLACE "^lib" "" DDL_GEMM_NAME ${DDL_GEMM_NAME})
set(DDL_PLAIN_LIBRARIES ${DDL_GEMM_NAME} ${OpenMP_C_LIB_NAMES} m)
# Every compiler finds GCC's OpenMP by its name; clang's lies in a folder that only clang looks into.
list(TRANSFORM DDL_PLAIN_LIBRARIES REPLACE "^omp$" "${OpenMP_omp_LIBRARY}")

if(DDL_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  set(DDL_CMOCKA PkgConfig::CMOCKA)
endif()
