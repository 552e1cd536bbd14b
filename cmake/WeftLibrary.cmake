# WeftLibrary: libweft, shared and static, from the same objects, and the command `weft`.
# Only symbols marked WEFT_API leave the shared library. The command and the tests link the static one.
foreach(kind shared static)
    string(TOUPPER ${kind} upper)
    add_library(weft_${kind} ${upper} $<TARGET_OBJECTS:weft_objects>)
    set_target_properties(weft_${kind} PROPERTIES OUTPUT_NAME weft LINKER_LANGUAGE C)
    target_include_directories(weft_${kind} INTERFACE
        "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/runtime>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    weft_link_deps(weft_${kind})
    if(WEFT_SANITIZE)
        target_link_options(weft_${kind} PUBLIC "-fsanitize=${WEFT_SANITIZE}")
    endif()
endforeach()
target_link_options(weft_shared PRIVATE "-Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/weft.map")
set_target_properties(weft_shared PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME weft)

# The commit goes into every result line. Looked up at each build, written only when it has changed.
set(commit_header "${PROJECT_BINARY_DIR}/generated/weft_commit.h")
add_custom_target(weft_commit BYPRODUCTS "${commit_header}"
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DHEADER=${commit_header}
            -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake
    COMMENT "" VERBATIM)

add_executable(weft_cli)
set_target_properties(weft_cli PROPERTIES OUTPUT_NAME weft RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
weft_target(weft_cli)
target_compile_definitions(weft_cli PRIVATE WEFT_VERSION="${PROJECT_VERSION}")
target_include_directories(weft_cli PRIVATE "${PROJECT_BINARY_DIR}/generated")
add_dependencies(weft_cli weft_commit)
weft_link_deps(weft_cli)
target_link_libraries(weft_cli PRIVATE weft_static)
file(GLOB cli_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/runtime/cli*.c")
target_sources(weft_cli PRIVATE ${cli_sources})
if(WEFT_HAVE_CUDA)
    target_sources(weft_cli PRIVATE "${PROJECT_SOURCE_DIR}/runtime/cli_ceiling.cu")
    set_target_properties(weft_cli PROPERTIES LINKER_LANGUAGE C)
endif()
