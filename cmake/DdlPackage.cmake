# `cpack -G DEB`: ddl, libddl0.1 and libddl-dev, one for each component of DdlInstall.cmake, as Debian separates a program, a
# library and its headers; also ddl-mpi and ddl-cuda where their plugins are built (DdlComm.cmake, DdlCuda.cmake).
# `./dev package` builds them for /usr.
set(DDL_MAINTAINER "the ddl authors <ddl@localhost>" CACHE STRING "Who answers for the packages, as Debian writes it")
set(CPACK_PACKAGE_NAME ddl)
set(CPACK_PACKAGE_VENDOR "the ddl authors")
set(CPACK_PACKAGE_CONTACT ${DDL_MAINTAINER})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_FILE_NAME ddl)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own, below
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program runtime development)
foreach(plugin mpi cuda)
  if(TARGET ddl_${plugin})
    list(APPEND CPACK_COMPONENTS_ALL ${plugin})
  endif()
endforeach()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/compress-manual.cmake)
# Older programs run with any later PATCH of their MINOR.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/deb/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/deb/triggers)
# ddl.pc lists the modules of the static library, and pkg-config requires them for the shared library too.
set(DDL_RUNTIME_PACKAGE libddl${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(gemm_of_onednn libdnnl-dev)
set(gemm_of_cblas "libopenblas-dev | libblis-dev")
string(CONCAT CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${DDL_RUNTIME_PACKAGE} (= ${PROJECT_VERSION}), "
       "${gemm_of_${DDL_GEMM}}, libjansson-dev, libyaml-dev, libpcre2-dev, libzstd-dev, libunistring-dev, zlib1g-dev")
if(DDL_TENSORBOARD STREQUAL "protobuf")
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libprotobuf-c-dev")
endif()

# A plugin fits the library of its own version only. mpirun is recommended, not required: Slurm starts ranks too.
set(DDL_PLUGIN_DEPENDS "ddl (= ${PROJECT_VERSION}) | ${DDL_RUNTIME_PACKAGE} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS ${DDL_PLUGIN_DEPENDS})
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS ${DDL_PLUGIN_DEPENDS})
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)

# Debian requires a copyright file and a changelog in every package.
set(DDL_DEB_DIR ${CMAKE_CURRENT_BINARY_DIR}/deb)
# Sets NAME_COPYRIGHT to the holder and NAME_LICENSE to the rest of the license text, indented as Debian requires.
function(ddl_read_license name file)
  file(READ ${CMAKE_CURRENT_SOURCE_DIR}/${file} text)
  string(REGEX MATCH "Copyright \\(c\\) ([^\n]*)" line "${text}")
  set(${name}_COPYRIGHT ${CMAKE_MATCH_1} PARENT_SCOPE)
  string(REGEX REPLACE ".*Copyright \\(c\\) [^\n]*\n\n" "" text "${text}")
  string(REGEX REPLACE "\n+$" "" text "${text}")
  string(REPLACE "\n\n" "\n.\n" text "${text}")
  string(REPLACE "\n" "\n " text " ${text}")
  set(${name}_LICENSE "${text}" PARENT_SCOPE)
endfunction()
ddl_read_license(DDL LICENSE)
ddl_read_license(TOKENIZER data/tokenizer/LICENSE)
configure_file(cmake/copyright.in ${DDL_DEB_DIR}/copyright @ONLY)
string(CONCAT changes "ddl (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * Version ${PROJECT_VERSION}.\n\n"
       " -- ${DDL_MAINTAINER}  ${DDL_VERSION_RFC_DATE}\n")
file(CONFIGURE OUTPUT ${DDL_DEB_DIR}/changelog CONTENT "${changes}" @ONLY)
execute_process(COMMAND gzip -9nc ${DDL_DEB_DIR}/changelog OUTPUT_FILE ${DDL_DEB_DIR}/changelog.gz)

function(ddl_package component name section summary description)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${description}" PARENT_SCOPE)
  install(FILES ${DDL_DEB_DIR}/copyright ${DDL_DEB_DIR}/changelog.gz
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

ddl_package(program ddl science "train, study and ship Deep Delta Learning models"
"Language models whose layers rewrite a state by a gated rank-1 step, where a
Transformer adds to it: a trainer, evaluation, sampling, a tokenizer and a data
builder in one program.")
ddl_package(runtime ${DDL_RUNTIME_PACKAGE} libs "Deep Delta Learning, shared library"
"What programs need to run that were built with libddl-dev: the delta operator,
models, the trainer, the tokenizer.")
ddl_package(development libddl-dev libdevel "Deep Delta Learning, headers and static library"
"The C interface to the delta operator on plain arrays, models, the trainer and
the tokenizer, with a static library, a pkg-config file and a CMake package.")
if(TARGET ddl_mpi)
  ddl_package(mpi ddl-mpi science "Deep Delta Learning, training on several machines"
"The plugin with which ddl, started by mpirun or srun, trains one model with
several processes, on one machine or many.")
endif()
if(TARGET ddl_cuda)
  ddl_package(cuda ddl-cuda science "Deep Delta Learning, CUDA backend"
"The plugin with which ddl computes on NVIDIA GPUs of compute capability 8.0 or
newer. Needs the driver for CUDA 13.")
endif()
include(CPack)
