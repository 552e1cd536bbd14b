# WeftInstall: headers, libraries, the command, man pages, find_package(weft) and pkg-config.
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weft")

if(EXISTS "${PROJECT_SOURCE_DIR}/runtime/weft.h")
    install(FILES runtime/weft.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(TARGETS weft_shared weft_static EXPORT weftTargets)
install(TARGETS weft_cli)
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${package_dir})
configure_package_config_file(cmake/weftConfig.cmake.in weftConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(weftConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES cmake/WeftDeps.cmake "${PROJECT_BINARY_DIR}/weftConfig.cmake"
    "${PROJECT_BINARY_DIR}/weftConfigVersion.cmake" DESTINATION ${package_dir})
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/weft.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(GLOB pages "${PROJECT_SOURCE_DIR}/docs/man/*.1")
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
