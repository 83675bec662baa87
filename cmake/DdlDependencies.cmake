# What ddl links: docs/design.md says why each. Sets DDL_LIBRARIES, DDL_CLI_LIBRARIES for the program alone with DDL_LINE
# (which cli/generate/line_*.c is built), and DDL_CMOCKA for the tests. For those who link the
# installed static library, DDL_PKG_CONFIG_MODULES and DDL_PLAIN_LIBRARIES (names or paths) say the same.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)
set(DDL_PKG_CONFIG_MODULES jansson yaml-0.1 libpcre2-8 libzstd zlib)

# Event files for TensorBoard: which src/train/log/tensorboard_*.c is built.
set(DDL_TENSORBOARD none)
pkg_check_modules(PROTOBUF_C QUIET libprotobuf-c)
find_program(DDL_PROTOC_C protoc-c DOC "Compiler of protobuf-c (package protobuf-c-compiler)")
if(PROTOBUF_C_FOUND AND DDL_PROTOC_C)
  set(DDL_TENSORBOARD protobuf)
  list(APPEND DDL_PKG_CONFIG_MODULES libprotobuf-c)
else()
  message(STATUS "protobuf-c is missing: ddl train writes no event files for TensorBoard (install libprotobuf-c-dev and protobuf-c-compiler)")
endif()

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

# Has no pkg-config file.
find_path(UNISTRING_INCLUDE_DIR unicase.h)
find_library(UNISTRING_LIBRARY unistring)
if(NOT UNISTRING_INCLUDE_DIR OR NOT UNISTRING_LIBRARY)
  message(FATAL_ERROR "libunistring is missing: install libunistring-dev")
endif()
add_library(ddl_unistring UNKNOWN IMPORTED)
set_target_properties(ddl_unistring PROPERTIES IMPORTED_LOCATION ${UNISTRING_LIBRARY}
                                               INTERFACE_INCLUDE_DIRECTORIES ${UNISTRING_INCLUDE_DIR})

set(DDL_LIBRARIES PkgConfig::DDL_MODULES ddl_gemm ddl_unistring OpenMP::OpenMP_C Threads::Threads ${CMAKE_DL_LIBS} m)
get_target_property(DDL_GEMM_NAME ddl_gemm IMPORTED_LOCATION)
get_filename_component(DDL_GEMM_NAME ${DDL_GEMM_NAME} NAME_WE)
string(REGEX REPLACE "^lib" "" DDL_GEMM_NAME ${DDL_GEMM_NAME})
set(DDL_PLAIN_LIBRARIES ${DDL_GEMM_NAME} unistring ${OpenMP_C_LIB_NAMES} ${CMAKE_DL_LIBS} m)
# Every compiler finds GCC's OpenMP by its name; clang's lies in a folder that only clang looks into.
list(TRANSFORM DDL_PLAIN_LIBRARIES REPLACE "^omp$" "${OpenMP_omp_LIBRARY}")

pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
set(DDL_LINE plain)
set(DDL_CLI_LIBRARIES PkgConfig::MICROHTTPD)
if(DDL_LIBEDIT)
  pkg_check_modules(LIBEDIT QUIET IMPORTED_TARGET libedit)
  if(LIBEDIT_FOUND)
    set(DDL_LINE libedit)
    list(APPEND DDL_CLI_LIBRARIES PkgConfig::LIBEDIT)
  else()
    message(STATUS "libedit is missing: ddl generate reads lines without editing and history (install libedit-dev)")
  endif()
endif()

if(DDL_TESTS)
  pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka)
  if(CMOCKA_FOUND)
    set(DDL_CMOCKA PkgConfig::CMOCKA)
  else()
    message(STATUS "cmocka is missing: the tests are not built (install libcmocka-dev)")
    set(DDL_TESTS OFF)
  endif()
endif()
