# Where the library looks for plugins, and the MPI plugin if MPI is installed. Sanitized trees have none: MPI libraries are
# not clean under sanitizers.
file(RELATIVE_PATH plugin_folder ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/ddl)
set_source_files_properties(src/base/plugin.c PROPERTIES COMPILE_DEFINITIONS DDL_PLUGIN_FOLDER="${plugin_folder}")

if(DDL_MPI AND NOT DDL_SANITIZE)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    # No SONAME: programs load it by its path and are never linked with it.
    add_library(ddl_mpi MODULE src/comm/mpi/plugin.c)
    set_target_properties(ddl_mpi PROPERTIES NO_SONAME ON)
    ddl_target(ddl_mpi)
    target_link_libraries(ddl_mpi PRIVATE MPI::MPI_C Threads::Threads)
    target_link_options(ddl_mpi PRIVATE -Wl,-z,defs)
    if(DDL_INSTALL)
      install(TARGETS ddl_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ddl COMPONENT mpi)
    endif()
  else()
    message(STATUS "MPI is missing: ddl runs as one process (install libopenmpi-dev)")
  endif()
endif()
