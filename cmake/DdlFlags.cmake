# ddl_target(name): the language level, warnings, sanitizers and include folders of every target of ours.
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
if(CMAKE_C_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG") # CMake's own, not a user's
  set(CMAKE_C_FLAGS_RELEASE "-O3 -g1")
endif()
# A failed assert names src/..., not the folder of the build.
add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)

if(DDL_SANITIZE)
  set(CMAKE_C_VISIBILITY_PRESET default) # its library is shared, and tests call what an installed one hides
  add_compile_options(-fsanitize=${DDL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DDL_SANITIZE})
  add_compile_definitions(DDL_SANITIZED=1)
endif()

function(ddl_target name)
  set_target_properties(${name} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wstrict-prototypes -Wmissing-prototypes
                                         -Wshadow -fno-math-errno -Wno-missing-field-initializers)
  if(DDL_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "OBJECT_LIBRARY")
    target_link_libraries(${name} PRIVATE ${DDL_LIBRARIES})
    if("${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_RELEASE}" MATCHES "-flto")
      target_compile_options(${name} PRIVATE -fno-lto) # DdlInstall.cmake hides names in objects
    endif()
  endif()
endfunction()
