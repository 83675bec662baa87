# The CUDA backend: libddl_cuda.so, a plugin, with nvcc of CUDA 13: AUTO builds it where that is found. It has run on
# simulated devices only (docs/cuda.md), so that it is not built by default. The driver's library is loaded when a device
# is used.
set(DDL_CUDA OFF CACHE STRING "Build the CUDA backend plugin (needs nvcc): AUTO, ON or OFF")
set_property(CACHE DDL_CUDA PROPERTY STRINGS AUTO ON OFF)
find_program(DDL_NVCC nvcc HINTS /usr/local/cuda/bin)
set(build_cuda OFF)
if(DDL_CUDA)
  set(nvcc_found "nvcc is not found")
  if(DDL_NVCC)
    execute_process(COMMAND ${DDL_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
    set(nvcc_found "${DDL_NVCC} is not of CUDA 13")
    if(nvcc_version MATCHES "release ([0-9.]+)" AND CMAKE_MATCH_1 VERSION_GREATER_EQUAL 13)
      set(build_cuda ON)
    endif()
  endif()
  if(NOT build_cuda AND DDL_CUDA STREQUAL "AUTO")
    message(STATUS "DDL_CUDA: ${nvcc_found}: the CUDA backend is left out")
  elseif(NOT build_cuda)
    message(FATAL_ERROR "DDL_CUDA: ${nvcc_found}: install CUDA 13, set DDL_NVCC to its nvcc, or use -DDDL_CUDA=OFF")
  endif()
endif()
file(GLOB DDL_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.c)
file(GLOB DDL_CUDA_KERNELS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/*.cu)
if(build_cuda)
  # No kernel uses what only later architectures have: one PTX, and the code of each architecture from it.
  set(architectures -gencode=arch=compute_80,code=[sm_80,sm_90,sm_100,sm_120,compute_80])
  set(images "")
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/*.h
                                      ${PROJECT_SOURCE_DIR}/src/backend/cuda/kernels/*.cuh)
  foreach(kernels ${DDL_CUDA_KERNELS})
    get_filename_component(name ${kernels} NAME_WE)
    # With -fmad=true a * b + c is contracted otherwise in fused kernels than in others, and their bits differ. attention.cu
    # and products.cu have no fused ones. tests/cuda/compiler.sh has the same flags.
    set(contract false)
    if(name MATCHES "^(attention|products)$")
      set(contract true)
    endif()
    set(image ${CMAKE_BINARY_DIR}/cuda/${name}.fatbin)
    add_custom_command(OUTPUT ${image} DEPENDS ${kernels} ${headers} ${PROJECT_SOURCE_DIR}/src/ops/args.h
      COMMAND ${DDL_NVCC} -std=c++17 -O3 -fmad=${contract} ${architectures} -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include
              -fatbin -o ${image} ${kernels} VERBATIM)
    list(APPEND images ${image})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backend/cuda/image.c PROPERTIES OBJECT_DEPENDS "${images}"
                              COMPILE_DEFINITIONS CUDA_IMAGE_FOLDER="${CMAKE_BINARY_DIR}/cuda")
  add_library(ddl_cuda MODULE ${DDL_CUDA_SOURCES})
  set_target_properties(ddl_cuda PROPERTIES NO_SONAME ON)
  ddl_target(ddl_cuda)
  target_link_libraries(ddl_cuda PRIVATE ddl ${CMAKE_DL_LIBS})
  target_link_options(ddl_cuda PRIVATE -Wl,-z,defs) # an op without a function is an error now, not when it is loaded
  if(DDL_INSTALL)
    install(TARGETS ddl_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ddl COMPONENT cuda)
  endif()
endif()
