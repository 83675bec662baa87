# What `cmake --install` gives beside the program: the library, shared and static, its headers, ddl.pc and a CMake
# package; manual pages and completion; what ships as data. Three components, a Debian package each (DdlPackage.cmake).
# docs/design.md says why each is as it is.
include(CMakePackageConfigHelpers)

# The shared library, of the same objects as the tree's own archive. What a public header does not declare is hidden.
add_library(ddl_shared SHARED $<TARGET_OBJECTS:ddl_objects> ${DDL_KERNEL_OBJECTS})
target_link_libraries(ddl_shared PRIVATE $<BUILD_INTERFACE:${DDL_LIBRARIES}>)
target_link_options(ddl_shared PRIVATE -Wl,-z,defs)
set_target_properties(ddl_shared PROPERTIES OUTPUT_NAME ddl EXPORT_NAME ddl VERSION ${PROJECT_VERSION}
                                            SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# The static library: one object in which hidden names have become local, so that they cannot clash with a user's own.
set(DDL_WHOLE ${CMAKE_CURRENT_BINARY_DIR}/whole/ddl.o)
add_custom_command(
  OUTPUT ${DDL_WHOLE}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/whole
  COMMAND ${CMAKE_LINKER} -r -o ${DDL_WHOLE} $<TARGET_OBJECTS:ddl_objects> ${DDL_KERNEL_OBJECTS}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${DDL_WHOLE}
  DEPENDS $<TARGET_OBJECTS:ddl_objects> ${DDL_KERNEL_OBJECTS}
  COMMAND_EXPAND_LISTS VERBATIM)
set_source_files_properties(${DDL_WHOLE} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_library(ddl_static STATIC ${DDL_WHOLE})
add_dependencies(ddl_static ddl_objects ${DDL_KERNEL_TARGETS}) # make does not see that ddl.o needs their objects
target_link_libraries(ddl_static INTERFACE $<INSTALL_INTERFACE:ddl::dependencies>)
set_target_properties(ddl_static PROPERTIES OUTPUT_NAME ddl LINKER_LANGUAGE C
                                            ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/whole)
foreach(kind shared static)
  target_include_directories(ddl_${kind} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS ddl_${kind} EXPORT ddl_${kind}
          LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
          ARCHIVE COMPONENT development)
endforeach()
install(DIRECTORY include/ddl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

# find_package(ddl)
list(JOIN DDL_PKG_CONFIG_MODULES " " DDL_PC_REQUIRES)
set(DDL_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ddl)
foreach(kind shared static)
  install(EXPORT ddl_${kind} FILE ddl-${kind}.cmake NAMESPACE ddl::
          DESTINATION ${DDL_PACKAGE_DIR} COMPONENT development)
endforeach()
configure_package_config_file(cmake/ddl-config.cmake.in ddl-config.cmake INSTALL_DESTINATION ${DDL_PACKAGE_DIR}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(ddl-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ddl-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/ddl-config-version.cmake
        DESTINATION ${DDL_PACKAGE_DIR} COMPONENT development)

# pkg-config finds the prefix from where ddl.pc lies, however deep that is.
file(RELATIVE_PATH DDL_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" DDL_PC_TO_PREFIX ${DDL_PC_TO_PREFIX})
list(TRANSFORM DDL_PLAIN_LIBRARIES REPLACE "^([^/].*)$" "-l\\1" OUTPUT_VARIABLE DDL_PC_LIBS)
list(JOIN DDL_PC_LIBS " " DDL_PC_LIBS)
configure_file(cmake/ddl.pc.in ddl.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ddl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# The program and what it looks for beside itself (ddl_file_find_shipped).
install(TARGETS ddl_cli COMPONENT program)
install(DIRECTORY data/tokenizer recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/ddl COMPONENT program)
install(FILES README.md data/SOURCES.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
# Help and README name these.
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program
        FILES_MATCHING PATTERN *.md PATTERN *.svg PATTERN *.png PATTERN api EXCLUDE)

# The program writes its manual pages and its completion from the tables that --help shows. Where it cannot run here
# (another architecture), DDL_HELP_PROGRAM names one of the same version that can, or there are none.
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  set(DDL_HELP_PROGRAM "" CACHE FILEPATH "A ddl that runs here, to write the manual pages")
else()
  set(DDL_HELP_PROGRAM ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:ddl_cli>)
endif()
if(DDL_HELP_PROGRAM)
  set(DDL_HELP_DIR ${CMAKE_CURRENT_BINARY_DIR}/help)
  add_custom_command(
    OUTPUT ${DDL_HELP_DIR}/done
    COMMAND ${CMAKE_COMMAND} "-DPROGRAM=${DDL_HELP_PROGRAM}" -DFOLDER=${DDL_HELP_DIR}
            -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/write-help.cmake
    DEPENDS ddl_cli ${CMAKE_CURRENT_SOURCE_DIR}/cmake/write-help.cmake
    VERBATIM)
  add_custom_target(ddl_help ALL DEPENDS ${DDL_HELP_DIR}/done)
  install(DIRECTORY ${DDL_HELP_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
  # Where the shells look below their prefix; Debian's own zsh has another folder for packages.
  set(DDL_ZSH_DIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "Folder of zsh completion below the prefix")
  install(FILES ${DDL_HELP_DIR}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ddl
          COMPONENT program)
  install(FILES ${DDL_HELP_DIR}/zsh DESTINATION ${DDL_ZSH_DIR} RENAME _ddl COMPONENT program)
  install(FILES ${DDL_HELP_DIR}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME ddl.fish
          COMPONENT program)
endif()

# The Python package (python/pyproject.toml) has the two modules that can also be copied, beside its folder.
if(SKBUILD)
  install(FILES python/ddl_torch.py python/ddl_connection.py DESTINATION ${SKBUILD_PLATLIB_DIR} COMPONENT python)
endif()
