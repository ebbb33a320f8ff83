# cmake --install BUILD --prefix P [--component client|programs]: the client library as the package
# Twofold (find_package gives Twofold::client), and the programs.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/Twofold)

# What client/client.h and client/interactive.h include, all of it and no more: the example in
# client/example is built against it by a test.
set(headers protocol/endpoint.h protocol/operation.h protocol/outcome.h protocol/result.h
  protocol/xa.h protocol/xid.h client/client.h client/transaction.h client/interactive.h)
foreach(header ${headers})
  cmake_path(GET header PARENT_PATH room)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/twofold/${room} COMPONENT client)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/protocol/wire.pb.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/twofold/protocol COMPONENT client)

foreach(part client connection wire types backoff)
  set_target_properties(twofold_${part} PROPERTIES EXPORT_NAME ${part})
  install(TARGETS twofold_${part} EXPORT TwofoldTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/twofold)
endforeach()
install(EXPORT TwofoldTargets NAMESPACE Twofold:: DESTINATION ${package_directory}
  COMPONENT client)

configure_package_config_file(cmake/TwofoldConfig.cmake.in
  ${PROJECT_BINARY_DIR}/TwofoldConfig.cmake INSTALL_DESTINATION ${package_directory})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TwofoldConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TwofoldConfig.cmake
    ${PROJECT_BINARY_DIR}/TwofoldConfigVersion.cmake
  DESTINATION ${package_directory} COMPONENT client)

if(TWOFOLD_PROGRAMS)
  install(TARGETS twofold twofold-coordinator twofold-rm twofold-log
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
endif()
