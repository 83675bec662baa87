# Runs between installing into the packages' folders and packing: Debian wants manual pages compressed.
file(GLOB_RECURSE pages ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*.[15])
list(FILTER pages INCLUDE REGEX "/man/man[15]/")
if(pages)
  execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
