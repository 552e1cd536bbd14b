# WeftInstall: headers, libraries, the command, man pages, find_package(weft) and pkg-config.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")

install(FILES runtime/weft.h runtime/weft_plan.h runtime/weft_decode.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# What a placement policy in a shared object is made from (docs/placement.md).
install(FILES host/placer.h host/listsched.h host/taskgraph.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft)
install(TARGETS weft_shared weft_static EXPORT weftTargets)
install(TARGETS weft_cli)
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${package_dir})
set(policy_dir "${CMAKE_INSTALL_DATADIR}/weft/src")
configure_package_config_file(cmake/weftConfig.cmake.in weftConfig.cmake INSTALL_DESTINATION ${package_dir}
    PATH_VARS policy_dir)
foreach(file ${WEFT_POLICY_FILES})
    get_filename_component(folder "${file}" DIRECTORY)
    install(FILES "${file}" DESTINATION "${policy_dir}/${folder}")
endforeach()
install(FILES "${WEFT_POLICY_ABI_DIR}/weft_policy_abi.h" DESTINATION "${policy_dir}")
write_basic_package_version_file(weftConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES cmake/WeftDeps.cmake cmake/WeftPolicy.cmake "${PROJECT_BINARY_DIR}/weftConfig.cmake"
    "${PROJECT_BINARY_DIR}/weftConfigVersion.cmake" DESTINATION ${package_dir})
if(WEFT_HAVE_UNICODE)
    set(WEFT_PC_UNICODE " libpcre2-8 libutf8proc")
endif()
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/weft.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The man pages are made from the command's own help texts.
add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/man/weft.1" DEPENDS weft_cli cmake/man.sh
    COMMAND "${PROJECT_SOURCE_DIR}/cmake/man.sh" $<TARGET_FILE:weft_cli> "${PROJECT_BINARY_DIR}/man" VERBATIM)
add_custom_target(man ALL DEPENDS "${PROJECT_BINARY_DIR}/man/weft.1")
install(DIRECTORY "${PROJECT_BINARY_DIR}/man/" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
