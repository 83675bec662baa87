# The code for the messages of TensorBoard's event files, generated from src/train/log/tensorboard.proto if protobuf-c is
# installed, and added to ddl_objects.
if(DDL_TENSORBOARD STREQUAL "protobuf")
  set(DDL_GENERATED ${CMAKE_CURRENT_BINARY_DIR}/generated)
  set(messages ${DDL_GENERATED}/train/log/tensorboard.pb-c)
  file(MAKE_DIRECTORY ${DDL_GENERATED})
  add_custom_command(
    OUTPUT ${messages}.c ${messages}.h
    COMMAND ${DDL_PROTOC_C} --proto_path=${CMAKE_CURRENT_SOURCE_DIR}/src --c_out=${DDL_GENERATED}
            ${CMAKE_CURRENT_SOURCE_DIR}/src/train/log/tensorboard.proto
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/train/log/tensorboard.proto
    VERBATIM)
  # Generated code is not held to our warnings.
  set_source_files_properties(${messages}.c PROPERTIES COMPILE_OPTIONS -w)
  target_sources(ddl_objects PRIVATE ${messages}.c ${messages}.h)
  target_include_directories(ddl_objects SYSTEM PRIVATE ${DDL_GENERATED})
endif()
