# What gradring.pc says of the folders: from itself on, so that the tree may be installed anywhere and moved. One that is
# named from the root is where it is, and so is a file in it.
set(PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH to_prefix "/any/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /any)
  set(PC_PREFIX "\${pcfiledir}/${to_prefix}")
endif()
foreach(folder LIBDIR INCLUDEDIR)
  set(PC_${folder} "${CMAKE_INSTALL_${folder}}")
  if(NOT IS_ABSOLUTE "${PC_${folder}}")
    string(PREPEND PC_${folder} "\${prefix}/")
  endif()
endforeach()
