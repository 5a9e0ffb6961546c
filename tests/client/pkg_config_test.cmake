# cmake -P pkg_config_test.cmake: folders in gradring.pc, for those that CMake is given.
set(CMAKE_INSTALL_PREFIX /opt/gradring)

function(expect libdir includedir prefix pc_libdir pc_includedir)
  set(CMAKE_INSTALL_LIBDIR ${libdir})
  set(CMAKE_INSTALL_INCLUDEDIR ${includedir})
  include(${CMAKE_CURRENT_LIST_DIR}/../../client/pkg_config.cmake)
  set(is "${PC_PREFIX} ${PC_LIBDIR} ${PC_INCLUDEDIR}")
  if(NOT is STREQUAL "${prefix} ${pc_libdir} ${pc_includedir}")
    message(SEND_ERROR "of ${libdir} and ${includedir} it makes: ${is}")
  endif()
endfunction()

expect(lib include "\${pcfiledir}/../../" "\${prefix}/lib" "\${prefix}/include")
expect(lib/x86_64-linux-gnu include "\${pcfiledir}/../../../" "\${prefix}/lib/x86_64-linux-gnu" "\${prefix}/include")
expect(/store/lib /store/dev/include /opt/gradring /store/lib /store/dev/include)
expect(/store/lib include /opt/gradring /store/lib "\${prefix}/include")
expect(lib /store/dev/include "\${pcfiledir}/../../" "\${prefix}/lib" /store/dev/include)
