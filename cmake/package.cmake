# What `cmake --install` puts where others find it: find_package(berth) and target_link_libraries(me PRIVATE berth::berth).
#
# berth::berth is everything; each layer is there by itself too (berth::format, berth::plan, ...). The libraries are static,
# so whoever links them needs the libraries below them as well: berth-config.cmake finds those.
include(CMakePackageConfigHelpers)

add_library(berth_everything INTERFACE)
target_link_libraries(berth_everything INTERFACE berth_engine)
target_sources(berth_everything INTERFACE FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${CMAKE_SOURCE_DIR}/berth/berth.h)
set_target_properties(berth_everything PROPERTIES EXPORT_NAME berth)
install(TARGETS berth_everything EXPORT berth FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(berth_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/berth)
install(EXPORT berth NAMESPACE berth:: FILE berth-targets.cmake DESTINATION ${berth_package_dir})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/berth-config.cmake.in ${CMAKE_BINARY_DIR}/berth-config.cmake
  INSTALL_DESTINATION ${berth_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/berth-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/berth-config.cmake ${CMAKE_BINARY_DIR}/berth-config-version.cmake DESTINATION ${berth_package_dir})
