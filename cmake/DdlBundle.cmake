# ddl_portable: the program that bundle.sh packs, which finds the libraries of the bundle in ../lib/ddl. DT_RPATH, unlike
# DT_RUNPATH, applies to the libraries of these libraries too, so that Debian's files are packed as they are.
add_executable(ddl_portable EXCLUDE_FROM_ALL $<TARGET_OBJECTS:ddl_cli>)
set_target_properties(ddl_portable PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib/ddl"
                                              LINKER_LANGUAGE C)
target_link_options(ddl_portable PRIVATE -Wl,--disable-new-dtags)
target_link_libraries(ddl_portable PRIVATE ddl ${DDL_CLI_LIBRARIES})
